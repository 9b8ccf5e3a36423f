"""Forgetting between generations, from ranks whose reciprocals are compared by hand."""

import json
import shutil

import numpy as np
import pytest

from pyserini_ance.commands import compare
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.reports.forgetting import RefreshInterval, forgetting, refresh_intervals
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import publishing


def as_array(ranks: list[int | None]) -> np.ndarray:
    return np.array([rank or 0 for rank in ranks], np.int32)


@pytest.fixture
def make_run(tmp_path):
    def make(
        name: str,
        *generations: tuple[str, int, list],
        recipe: str = "demo/ance",
        overrides: tuple[str, ...] = (),
    ):
        run = RunDir(tmp_path / name)
        run.create(dump(load(recipe, *overrides).recipe))
        generation = {"event": "generation"}
        records = [
            {
                **generation,
                "stage": stage,
                "step": step + 1,
                "checkpoint_step": step,
                "tables": {"query.0": {"positives": {}} if ranks else {}},
            }
            for stage, step, ranks in generations
        ]
        for stage, step, ranks in generations:
            with publishing(run.generation(stage, step), {}) as folder:
                if ranks:
                    np.save(folder / "query.0.positive_ranks.npy", as_array(ranks))
        run.metrics.write_text(
            "".join(
                json.dumps(record) + "\n"
                for record in [{"event": "step", "stage": "ance", "step": 0}, *records]
            )
        )
        rows = [{"row": "ance", "RR@10": 0.5, "train seconds": 1.0}]
        run.measures.write_text(
            json.dumps({"recipe": recipe, "config_hash": "v", "measures": ["RR@10"], "rows": rows})
        )
        return run.folder

    return make


def test_forgotten_and_learnt_queries(make_run):
    """Four queries: worse, better, unchanged, and from rank 120 to none, which RR@100 ignores."""
    run = make_run(
        "1",
        ("bm25-neg", 0, None),
        ("ance", 0, [1, 4, 7, 120]),
        ("ance", 40, [2, 1, 7, None]),
        ("ance", 80, [101, 1, 7, 100]),
    )
    first, second = refresh_intervals(run)
    assert first == RefreshInterval("ance-0", "ance-40", 0.25, 0.25, pytest.approx((1 / 2 + 1 + 1 / 7) / 4))
    assert second == RefreshInterval(
        "ance-40", "ance-80", 0.25, 0.25, pytest.approx((0 + 1 + 1 / 7 + 1 / 100) / 4)
    )


@pytest.mark.parametrize("best, until", [(120, "ance-120"), (100, "ance-100"), (40, None), (20, None)])
def test_the_result_of_the_run_comes_after_its_last_generation_if_it_is_later(make_run, best, until):
    run = make_run("1", ("ance", 0, [1, 4, 7]), ("ance", 40, [2, 4, 7]))
    with (run / "metrics.jsonl").open("a") as metrics:
        record = {"event": "training_queries", "stage": "ance", "step": 120}
        precisions = {"mined": "fp32", "evaluated": "fp32"}
        metrics.write(json.dumps({**record, "precisions": precisions}) + "\n")
    np.save(RunDir(run).training_ranks, as_array([1, 8, None]))
    ended = [
        {"event": "stage_end", "stage": stage, "result": f"{stage}-{step:08d}"}
        for stage, step in (("bm25-neg", 60), ("ance", best))
    ]
    (run / "decisions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in ended))
    expected = [
        RefreshInterval(
            "ance-40", until, pytest.approx(2 / 3), pytest.approx(1 / 3), pytest.approx((1 + 1 / 8) / 3)
        )
    ]
    assert refresh_intervals(run)[1:] == (expected if until else [])


def test_the_result_in_another_precision_is_named_as_missing(make_run, caplog):
    run = make_run("1", ("ance", 0, [1, 4]), ("ance", 40, [2, 4]))
    record = {"event": "training_queries", "stage": "ance", "step": 120}
    record["precisions"] = {"mined": "bf16", "evaluated": "fp32"}
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps(record) + "\n")
    assert [interval.until for interval in refresh_intervals(run)] == ["ance-40"]
    [message] = caplog.messages
    assert all(words in message for words in (str(run), "mined in bf16", "evaluated in fp32"))


def test_a_table_of_means_over_seeds(make_run, capsys):
    runs = [
        make_run(seed, ("ance", 0, [2, 2]), ("ance", 40, ranks), overrides=(f"seed={seed}",))
        for seed, ranks in (("1", [3, 3]), ("2", [3, 1]))
    ]
    compare.main([*map(str, runs), "--forgetting"])
    assert (
        capsys.readouterr().out.splitlines()[2]
        == "| demo/ance | ance-0 | ance-40 |    2 |    0.7500 | 0.2500 |       0.5000 |"
    )


@pytest.mark.parametrize(
    "setting",
    [
        "stages.ance.refresh.query_chunks=2",
        "stages.ance.terms.query.negatives=[{kind: ann, min_candidates: 2}]",
    ],
)
def test_runs_without_two_generations_have_no_row_and_of_other_queries_are_refused(make_run, setting):
    once, twice = (
        make_run("1", ("bm25-neg", 0, None), ("ance", 0, [1])),
        make_run("2", ("ance", 0, [1]), ("ance", 40, [1])),
    )
    assert [row["recipe"] for row in forgetting([("once", once), ("twice", twice)])[0]] == ["twice"]
    with pytest.raises(ValueError, match="none of these runs has mined with its own model twice"):
        forgetting([("once", once)])
    with pytest.raises(
        ValueError,
        match=r"stage ance has refresh\.query_chunks, .* or min_candidates, .* different training queries",
    ):
        refresh_intervals(make_run("3", ("ance", 0, [1]), overrides=(setting,)))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{kind: ann, top_k: 50}", r"ranks as few as 50 documents, where 1 of 2 queries have no positive"),
        (
            "{kind: mix, weights: [1], top_k: 150, sources: [{kind: ann, top_k: 60}]}",
            "as few as 60 documents",
        ),
        ("{kind: ann, top_k: 200, top_k_unit: passage}", r"negatives\.0 \(ann\) .* as few as 1 documents"),
    ],
)
def test_rankings_too_short_for_the_measure_are_rejected(make_run, source, message):
    """Rankings that contain all positives are long enough."""
    overrides = (f"stages.ance.terms.query.negatives=[{source}]",)
    short = make_run("short", ("ance", 0, [1, 50]), ("ance", 40, [1, None]), overrides=overrides)
    whole = make_run("whole", ("ance", 0, [1, 50]), ("ance", 40, [1, 2]), overrides=overrides)
    with pytest.raises(ValueError, match=message):
        refresh_intervals(short)
    (interval,) = refresh_intervals(whole)
    assert (interval.forgotten, interval.learnt) == (0, 0.5)


def test_candidates_fetched_for_filters_are_ranked_too(make_run):
    """top_k 50 and `oversample` 100."""
    overrides = ("stages.ance.terms.query.negatives=[{kind: ann, top_k: 50, filters: [duplicates]}]",)
    (interval,) = refresh_intervals(
        make_run("1", ("ance", 0, [1, 120]), ("ance", 40, [1, None]), overrides=overrides)
    )
    assert (interval.forgotten, interval.learnt) == (0, 0)


def test_the_model_s_own_tables_are_compared_not_those_of_a_fixed_ranking(make_run):
    """BM25's tables have ranks of the positives too."""
    overrides = ("stages.ance.terms.query.negatives=[{kind: bm25}, {kind: ann}]",)
    run = make_run("1", ("ance", 0, [1, 2]), ("ance", 40, [2, 1]), overrides=overrides)
    assert refresh_intervals(run) == []


def test_a_generation_that_was_removed_is_named(make_run):
    run = make_run("1", ("ance", 0, [1, 2]), ("ance", 40, [2, 1]))
    shutil.rmtree(RunDir(run).generation("ance", 0))
    with pytest.raises(FileNotFoundError, match="ance-00000000 is not complete"):
        refresh_intervals(run)
