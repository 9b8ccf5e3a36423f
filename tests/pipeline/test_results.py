import json

import pytest

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.given_collection import make_collection
from pyserini_ance.pipeline.results import Run, judged_queries, low_results, results_record, unimproved_stages
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir

ROWS = [{"row": "bm25", "RR@10": 0.5, "test seconds": 2.04}]
ROWS.append({"row": "ance", "RR@10": 0.625, "train seconds": 10.0, "refresh seconds": 3.0})
EXPORTED = {"notes": ["queries: as here"], "command": "search --index i"}


def demo(*overrides: str) -> Recipe:
    return load("demo/ance", "final_evaluation.measures=[RR@10]", *overrides)


def judged_by(judgments: dict[str, dict[str, int]], threshold: int = 1) -> Collection:
    """100 training queries, and a test split with these judgments of two documents."""
    training = {f"t{n}": f"another {n}" for n in range(100)}
    queries = {"train": training, "test": dict.fromkeys(judgments, "text")}
    judged = {"train": {id: {"d0": threshold} for id in training}, "test": judgments}
    return make_collection({"d0": "x", "d1": "y"}, queries, judged, relevance_threshold=threshold)


def written(folder, *overrides: str, exported=EXPORTED, collection=None) -> tuple[str, dict]:
    """Write the results of a run of `demo/ance`; returns its text and its `measures.json`."""
    run, recipe = RunDir(folder), demo(*overrides)
    run.create(dump(recipe), overwrite=True)
    read, seconds = collection or judged_by({"q1": {"d0": 1}}), {"everything": 12.5}
    record = results_record(recipe, read, RunLog(run), ROWS, seconds, {"process": 7}, exported)
    run.measures.write_text(json.dumps(record))
    return Run(folder).as_text(), record


def test_the_table_and_what_to_type_next(tmp_path):
    text, record = written(tmp_path, "expect=null", "seed=7")
    assert text == (
        "| row  |  RR@10 | train seconds | refresh seconds | test seconds |\n"
        "| ---- | -----: | ------------: | --------------: | -----------: |\n"
        "| bm25 | 0.5000 |             - |               - |          2.0 |\n"
        "| ance | 0.6250 |          10.0 |             3.0 |            - |\n"
        "\n"
        "- train seconds: optimizer steps\n"
        "- refresh seconds: checkpoints, encoding, mining, dev evaluation\n"
        "- test seconds: encoding and ranking for the final evaluation\n"
        "\n"
        "seconds: everything 12.5\n"
        "queries: as here\n"
        "search with it:\n"
        "  search --index i"
    )
    assert (record["recipe"], record["measures"]) == ("demo/ance", ["RR@10"])
    assert record["memory_bytes"] == {"process": 7}
    assert record["config_hash"] == written(tmp_path)[1]["config_hash"] and "warnings" not in record


def test_a_folder_that_libraries_cannot_open_is_to_be_renamed(tmp_path):
    text, _ = written(tmp_path, exported={**EXPORTED, "command": "search --index 'r\udce4n'"})
    assert "search with it, once the folder is renamed (its name is not UTF-8):\n  search" in text


def test_expected_figures_follow_the_table_but_not_those_of_a_variant(tmp_path):
    row = "| RR@10 |   0.6000 |   0.6250 | +0.0250    |"
    assert row in written(tmp_path, "expect={test: {RR@10: 0.6}}")[0]
    assert "expected" not in written(tmp_path, "encoder.projection=64")[0]


@pytest.mark.parametrize(
    ("grades", "lines"),
    [
        ({"q1": [1], "q2": [1]}, []),
        ({"q1": [1], "q2": [0], "q3": [0, 0]}, ["3 judged queries, 2 of them without"]),
        ({"q1": [2], "q2": [1]}, ["2 judged queries, 1 of them without"]),
    ],
)
def test_judged_queries_without_a_relevant_document_are_named_below_the_table(tmp_path, grades, lines):
    """From the threshold 1, or 2 where the highest grade is that."""
    judged = {query: {f"d{n}": grade for n, grade in enumerate(of)} for query, of in grades.items()}
    collection = judged_by(judged, max(map(max, grades.values())))
    found = judged_queries(demo().final_evaluation, collection)
    assert found == [f"test: {line} a relevant document (they count as 0)" for line in lines]
    assert all(f"\n- {line}\n" in written(tmp_path, collection=collection)[0] for line in found)


@pytest.mark.parametrize(
    ("bm25", "untrained", "hybrid", "warnings"),
    [
        (0.64, 0.625, 0.65, []),
        (0.64, 0.625, 0.63, ["bm25 alone is above the result: RR@10 0.6400, ance 0.6250, hybrid 0.6300"]),
        (0.5, 0.75, 0.65, ["ance is below the untrained encoder: RR@10 0.6250 instead of 0.7500."]),
    ],
)
def test_a_result_below_its_start_and_bm25_above_both_fused_are_loud(bm25, untrained, hybrid, warnings):
    rows = [{**ROWS[0], "RR@10": bm25}, {"row": "untrained", "RR@10": untrained}, ROWS[1]]
    rows.append({"row": "hybrid", "RR@10": hybrid})
    assert [line.partition(" See ")[0] for line in low_results(demo().final_evaluation, rows)] == warnings


def test_a_stage_that_never_improved_is_named_with_what_its_result_is(small_recipe, tmp_path):
    ends = {"first": 0, "again": 0, "from-first": 0, "better": 5, "elsewhere": 0}
    starts = {"again": "previous", "from-first": {"stage": "first"}, "elsewhere": {"folder": str(tmp_path)}}
    stage = {"steps": 10, "batch_queries": 2, "optimizer": {"learning_rate": 1e-3}}
    stage["terms"] = {"query": {"negatives": ["random"]}}
    recipe = small_recipe({name: {**stage, "init_from": starts.get(name, "initial")} for name in ends})
    log = RunLog(RunDir(tmp_path))
    for name, step in ends.items():
        log.decide("stage_end", stage=name, step=10, result=f"{name}-{step:08d}", weights="w")
    assert unimproved_stages(recipe, log) == [
        "stage first never improved on its start (initial), which is its result",
        "stage again never improved on its start (previous), which is its result",
        "stage from-first never improved on its start (stage first), which is its result",
        f"stage elsewhere never improved on its start (folder {tmp_path}), which is its result",
    ]
