import json
import shutil

import numpy as np
import pytest

from pyserini_ance.commands import compare
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.reports.forgetting import RefreshInterval, forgetting, refresh_intervals
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import publishing

NEGATIVES = "stages.ance.terms.query.negatives="
OTHER_QUERIES = r"stage ance has refresh\.query_chunks, .* or min_candidates, .* different training queries"


def as_array(ranks: list[int | None]) -> np.ndarray:
    return np.array([rank or 0 for rank in ranks], np.int32)


def write(path, records: list[dict]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def make_run(folder, *generations: tuple[str, int, list | None], overrides: tuple[str, ...] = ()):
    """A run of demo/ance with the ranks at its generations: (stage, step, ranks)."""
    run = RunDir(folder)
    run.create(dump(load("demo/ance", *overrides)))
    records: list[dict] = [{"event": "step", "stage": "ance", "step": 0}]
    for stage, step, ranks in generations:
        adoption = {"event": "generation", "stage": stage, "step": step + 1, "checkpoint_step": step}
        records.append({**adoption, "tables": {"query.0": {"positives": {}} if ranks else {}}})
        with publishing(run.generation(stage, step), {}) as folder:
            if ranks:
                np.save(folder / "query.0.positive_ranks.npy", as_array(ranks))
    write(run.metrics, records)
    rows = [{"row": "ance", "RR@10": 0.5, "train seconds": 1.0}]
    results = {"recipe": "demo/ance", "config_hash": "v", "measures": ["RR@10"], "rows": rows}
    run.measures.write_text(json.dumps(results))
    return run.folder


def add_result(run, precision: str = "fp32") -> None:
    """The ranks of the training queries by the run's result."""
    precisions = {"mined": precision, "evaluated": "fp32"}
    record = {"event": "training_queries", "stage": "ance", "step": 120, "precisions": precisions}
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps(record) + "\n")


def test_forgotten_and_learnt_queries(tmp_path):
    """Four queries: worse, better, unchanged, and from rank 120 to none, which RR@100 ignores."""
    ance = (0, [1, 4, 7, 120]), (40, [2, 1, 7, None]), (80, [101, 1, 7, 100])
    run = make_run(tmp_path / "1", ("bm25-neg", 0, None), *(("ance", *each) for each in ance))
    means = (1 / 2 + 1 + 1 / 7) / 4, (0 + 1 + 1 / 7 + 1 / 100) / 4
    assert refresh_intervals(run) == [
        RefreshInterval("ance-0", "ance-40", 0.25, 0.25, pytest.approx(means[0])),
        RefreshInterval("ance-40", "ance-80", 0.25, 0.25, pytest.approx(means[1])),
    ]


@pytest.mark.parametrize(("best", "until"), [(120, "ance-120"), (100, "ance-100"), (40, None), (20, None)])
def test_the_result_of_the_run_comes_after_its_last_generation_if_it_is_later(tmp_path, best, until):
    run = make_run(tmp_path / "1", ("ance", 0, [1, 4, 7]), ("ance", 40, [2, 4, 7]))
    add_result(run)
    np.save(RunDir(run).training_ranks, as_array([1, 8, None]))
    ends = (("bm25-neg", 60), ("ance", best))
    ended = [{"event": "stage_end", "stage": name, "result": f"{name}-{step:08d}"} for name, step in ends]
    write(run / "decisions.jsonl", ended)
    shares = [pytest.approx(value) for value in (2 / 3, 1 / 3, (1 + 1 / 8) / 3)]
    expected = [RefreshInterval("ance-40", until, *shares)] if until else []
    assert refresh_intervals(run)[1:] == expected


def test_the_result_in_another_precision_is_named_as_missing(tmp_path, caplog):
    run = make_run(tmp_path / "1", ("ance", 0, [1, 4]), ("ance", 40, [2, 4]))
    add_result(run, "bf16")
    assert [interval.until for interval in refresh_intervals(run)] == ["ance-40"]
    [message] = caplog.messages
    assert all(words in message for words in (str(run), "mined in bf16", "evaluated in fp32"))


def test_a_table_of_means_over_seeds(tmp_path, capsys):
    seeds, start = {"1": [3, 3], "2": [3, 1]}.items(), ("ance", 0, [2, 2])
    runs = [make_run(tmp_path / n, start, ("ance", 40, of), overrides=(f"seed={n}",)) for n, of in seeds]
    compare.main([*map(str, runs), "--forgetting"])
    row = "| demo/ance | ance-0 | ance-40 |    2 |    0.7500 | 0.2500 |       0.5000 |"
    assert capsys.readouterr().out.splitlines()[2] == row


def test_runs_without_two_generations_have_no_row(tmp_path):
    once = make_run(tmp_path / "1", ("bm25-neg", 0, None), ("ance", 0, [1]))
    twice = make_run(tmp_path / "2", ("ance", 0, [1]), ("ance", 40, [1]))
    assert [row["recipe"] for row in forgetting([("once", once), ("twice", twice)])[0]] == ["twice"]
    with pytest.raises(ValueError, match="none of these runs has mined with its own model twice"):
        forgetting([("once", once)])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("stages.ance.refresh.query_chunks=2", OTHER_QUERIES),
        (f"{NEGATIVES}[{{kind: ann, min_candidates: 2}}]", OTHER_QUERIES),
        (f"{NEGATIVES}[{{kind: ann, top_k: 50}}]", "as few as 50 documents, where 1 of 2 queries have n"),
        (
            f"{NEGATIVES}[{{kind: mix, weights: [1], top_k: 150, sources: [{{kind: ann, top_k: 60}}]}}]",
            "as few as 60 documents",
        ),
        (f"{NEGATIVES}[{{kind: ann, top_k: 200, top_k_unit: passage}}]", r"\.0 \(ann\) .* as 1 documents"),
    ],
)
def test_runs_that_cannot_be_measured_are_refused(tmp_path, setting, message):
    """A ranking that contains all positives is long enough."""
    run = make_run(tmp_path / "1", ("ance", 0, [1, 50]), ("ance", 40, [1, None]), overrides=(setting,))
    with pytest.raises(ValueError, match=message):
        refresh_intervals(run)
    if message is not OTHER_QUERIES:
        whole = make_run(tmp_path / "2", ("ance", 0, [1, 50]), ("ance", 40, [1, 2]), overrides=(setting,))
        assert [(one.forgotten, one.learnt) for one in refresh_intervals(whole)] == [(0, 0.5)]


@pytest.mark.parametrize(
    ("negatives", "first", "intervals"),
    [
        # Candidates fetched for filters are ranked too: top_k 50 and `oversample` 100.
        ("[{kind: ann, top_k: 50, filters: [duplicates]}]", [1, 120], [(0, 0)]),
        # BM25's tables have ranks of the positives too; the model's own are compared.
        ("[{kind: bm25}, {kind: ann}]", [1, 2], []),
    ],
)
def test_the_ranking_of_the_model_counts(tmp_path, negatives, first, intervals):
    overrides = (f"{NEGATIVES}{negatives}",)
    run = make_run(tmp_path / "1", ("ance", 0, first), ("ance", 40, [1, None]), overrides=overrides)
    assert [(one.forgotten, one.learnt) for one in refresh_intervals(run)] == intervals


def test_a_generation_that_was_removed_is_named(tmp_path):
    run = make_run(tmp_path / "1", ("ance", 0, [1, 2]), ("ance", 40, [2, 1]))
    shutil.rmtree(RunDir(run).generation("ance", 0))
    with pytest.raises(FileNotFoundError, match="ance-00000000 is not complete"):
        refresh_intervals(run)
