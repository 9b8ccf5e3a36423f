import pytest

from pyserini_ance.runs.evaluation import open_evaluation, publish_evaluation
from pyserini_ance.runs.orders import Order, next_orders, read_orders, write_orders
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import publishing


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir(tmp_path)


def tables(step: int, awaited: bool = True) -> Order:
    return Order("tables", "ance", step, "w", awaited)


def dev(step: int, awaited: bool = True) -> Order:
    return Order("dev", "ance", step, "w", awaited)


def make(run: RunDir, order: Order) -> None:
    if order.kind == "dev":
        publish_evaluation(run.evaluation(order.stage, order.step), {"dev": 0.5}, order.weights, {})
        return
    with publishing(run.generation(order.stage, order.step), {}):
        pass


def test_what_is_ordered_is_made_of_the_stages_own_checkpoint_or_of_another(run):
    assert tables(40).folder(run) == run.checkpoints / "ance-00000040"
    assert Order("tables", "epi-2", 0, "w", checkpoint="epi-1-00000200").folder(run) == run.checkpoints / "epi-1-00000200"


def test_orders_are_read_as_they_were_written(run):
    assert read_orders(run) == []
    write_orders(run, [tables(0), dev(5, awaited=False)])
    assert read_orders(run) == [tables(0), dev(5, awaited=False)]


@pytest.mark.parametrize(
    ("orders", "made", "expected"),
    [
        ([], [], []),
        ([tables(40)], [], [tables(40)]),
        ([tables(40)], [tables(40)], []),
        ([tables(40), tables(80)], [], [tables(40)]),
        ([tables(40, False), tables(80, False)], [], [tables(80, False)]),
        ([tables(40, False), tables(80), tables(120, False)], [], [tables(80)]),
        ([dev(40), tables(80), dev(120)], [], [tables(80)]),
        ([dev(40, False), dev(80, False)], [], [dev(40, False)]),
        ([dev(40, False), tables(60), dev(80)], [tables(60)], [dev(40, False)]),
        ([dev(40), tables(40)], [], [tables(40), dev(40)]),
        ([dev(40), tables(40)], [tables(40)], [dev(40)]),
        ([dev(40, False), tables(80, False), dev(80, False)], [], [tables(80, False), dev(80, False)]),
    ],
)
def test_tables_come_first_the_oldest_awaited_or_the_newest_then_dev_measures(run, orders, made, expected):
    for order in made:
        make(run, order)
    assert next_orders(orders, run) == expected


def test_an_evaluation_of_other_weights_is_refused(run):
    make(run, dev(40))
    assert open_evaluation(run.evaluation("ance", 40), "w")["value"] == 0.5
    with pytest.raises(RuntimeError, match=r"ance-00000040.json was measured with weights w, expected other; remove it"):
        open_evaluation(run.evaluation("ance", 40), "other")
