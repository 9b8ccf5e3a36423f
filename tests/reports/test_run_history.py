import json
import math

import pytest
from helpers.stages import changed

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.reports.run_history import RunHistory, Series
from pyserini_ance.runs.rundir import RunDir

MARGIN = {"mean": 0.5, "p10": 0.1, "p50": 0.5, "p90": 0.9}


def table(kind: str, candidates: int, dropped: dict, new_share=None, **more) -> dict:
    return {"kind": kind, "candidates": candidates, "dropped": dropped, "new_share": new_share, **more}


def event(kind: str, stage: str, step: int, **values) -> dict:
    return {"event": kind, "stage": stage, "step": step, **values}


def generation(stage: str, step: int, checkpoint: int, tables: dict, **seconds: float) -> dict:
    return event("generation", stage, step, checkpoint_step=checkpoint, tables=tables, seconds=seconds)


def step(stage: str, number: int, loss: float, **terms: float) -> dict:
    return event("step", stage, number, loss=loss, terms=terms, seconds=2.0, grad_norm=1.5)


def dev(step: int, value: float) -> dict:
    return event("dev", "ance", step, checkpoint_step=step, measure="RR@10", value=value)


FIRST = {"query.0": table("ann", 10, {"known positives": 3}, margin=MARGIN), "query.1": table("bm25", 5, {})}
SECOND = {"query.0": table("ann", 12, {"known positives": 1}, 0.25)}
RECORDS = [
    generation("warm", 0, 0, {"query.0": table("bm25", 7, {"duplicates": 0})}, search=1.0),
    event("refresh", "warm", 0, seconds=1.5, tables_seconds=1.0),
    *(step("warm", number, 4.0 - number, query=4.0 - number) for number in range(3)),
    generation("ance", 0, 0, FIRST, search=1.0, encode_documents=3.0),
    dev(0, 0.25),
    event("refresh", "ance", 0, seconds=6.0, tables_seconds=4.5, dev_seconds=1.0),
    step("ance", 0, 1.5, query=1.0, dual=5.0),
    step("ance", 1, 1.25, query=0.75, dual=5.0),
    generation("ance", 2, 1, SECOND, search=1.0),
    dev(2, 0.5),
    event("refresh", "ance", 2, seconds=3.0, tables_seconds=1.0, dev_seconds=1.0),
    step("ance", 2, 1.0, query=0.5, dual=5.0),
]


@pytest.fixture
def history(tmp_path) -> RunHistory:
    stage = {"batch_queries": 4, "optimizer": {"learning_rate": 1e-3}}
    loss = {"kind": "nll", "scale": 1}
    ance = {
        "query": {"negatives": [{"kind": "ann", "top_k": 9}, {"kind": "bm25"}], "loss": loss},
        "dual": {"anchor": "document", "negatives": [{"kind": "random"}], "weight": 0.1, "loss": loss},
    }
    stages = {
        "warm": {**stage, "steps": 3, "terms": {"query": {"negatives": [{"kind": "bm25"}], "loss": loss}}},
        "ance": {**stage, "steps": 9, "terms": ance, "refresh": {"every_steps": 2}},
    }
    data = {"kind": "beir", "folder": "some/where"}
    recipe = {"data": data, "encoder": {"model": "some-model"}, "stages": stages}
    path = tmp_path / "two.yaml"
    path.write_text(json.dumps(recipe))
    run = RunDir(tmp_path / "run")
    run.create(dump(load(path)))
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return RunHistory(run)


def values(lines: dict[str, Series]) -> dict[str, list[tuple]]:
    """The points of lines, with None where one is interrupted."""
    points = {name: zip(line.x, line.y, strict=True) for name, line in lines.items()}
    return {name: [(x, None if math.isnan(y) else y) for x, y in of] for name, of in points.items()}


@pytest.mark.parametrize(
    ("plot", "expected"),
    [
        (  # each term, and their sum where there are several
            "loss",
            {
                "query": [(0, 4.0), (1, 3.0), (2, 2.0), (2, None), (3, 1.0), (4, 0.75), (5, 0.5)],
                "weighted sum": [(3, 1.5), (4, 1.25), (5, 1.0)],
                "dual": [(3, 5.0), (4, 5.0), (5, 5.0)],
            },
        ),
        ("dev", {"RR@10": [(3, 0.25), (5, 0.5)]}),
        ("age", {"age": [(3, 0), (5, 2), (5, 1), (6, 2)]}),  # of the model's own negatives alone
        ("turnover", {"query: ann": [(5, 0.25)]}),
        ("margin of ann", {"query: ann": [(3, 0.5)]}),
        ("dropped", {"duplicates": [(0, 0)], "known positives": [(3, 3), (5, 1)]}),  # of a refresh's tables
    ],
)
def test_lines_over_the_steps_of_all_stages(history, plot, expected):
    assert history.stages == {"warm": (0, 3), "ance": (3, 3)} and history.steps == 6
    assert [history.position(record) for record in history.adoptions] == [3, 5]
    assert values(history.lines[plot]) == expected


def test_seconds_add_up_to_the_whole_run(history):
    rows = [{"row": "ance", "test seconds": 2.5}]
    results = {"rows": rows, "seconds": {"data and tokens": 1.0, "everything": 30.0}}
    expected = {"optimizer steps": 12.0, "mining: search": 3.0, "mining: encode documents": 3.0}
    expected |= {"waiting for and reading tables": 0.5, "dev evaluation": 2.0, "final evaluation": 2.5}
    expected |= {"saving and pruning checkpoints": 2.0, "data and tokens": 1.0, "the rest": 4.0}
    assert history.seconds(results) == expected
    assert sum(history.seconds(None).values()) == 12.0 + 1.5 + 6.0 + 3.0


def test_seconds_of_cross_encoders_are_a_part(history):
    teacher = {"event": "teacher", "teacher": "b", "seconds": {"mine": 2.0, "train": 3.0}}
    history.records = [*history.records, teacher, teacher]
    seconds = history.seconds(None)
    assert seconds["teachers: mining"] == 4.0 and seconds["teachers: training"] == 6.0


def test_mining_in_another_process_takes_none_of_the_runs_seconds(history):
    history.recipe = changed(history.recipe, "stages.ance.refresh.mode=async")
    seconds = history.seconds(None)
    assert seconds["mining: search"] == 1.0 and seconds["waiting for and reading tables"] == 5.5
