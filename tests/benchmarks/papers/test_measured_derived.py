"""Measures that results tables lack, from hand-written files of a run directory and of folders about it."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.finished_run import finished

from benchmarks.papers.tables import read_tables
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import sha256_file, write_json
from pyserini_ance.storage.publish import publishing

PUBLISHED = """
sources: {paper: a paper}
rows:
- {method: bm25-search, as: BM25, source: paper, dev: {RR@10: 0.2, Hole@2: 0.1, Overlap@2: 1.0}}
- {method: bm25-search, as: BM25 alone, source: paper, milliseconds: 62, dev: {RR@10: 0.19}}
- {method: ance, as: ANCE, source: paper, dev: {Hole@2: 0.2, Overlap@2: 0.3, EM: 0.4}}
- {method: ance, as: ANCE + BERT, source: paper, reranker: "BERT, first 3", milliseconds: 79.4,
   dev: {RR@10: 0.36}}
- {method: ance, as: "ANCE, Epi-1", source: paper, interval: only, train: {forgotten: 0.089}}
"""
RANKINGS = {
    "bm25": {"q1": ["a", "b", "c"], "q2": ["a", "b"]},
    "only": {"q1": ["a", "x", "b"], "q2": ["x", "y", "a"]},
}
QRELS = "q1 0 a 1\nq1 0 b 0\nq2 0 a 1\nq2 0 b 0\nq3 0 a 1\n"


@pytest.fixture
def folder(base, tmp_path) -> Path:
    """A set of one recipe, and its published scores."""
    made = tmp_path / "set"
    made.mkdir()
    (made / "ance.yaml").write_text(base.read_text() + "final_evaluation: {split: dev}\n")
    (made / "_published.yaml").write_text(PUBLISHED)
    return made


@pytest.fixture
def run(folder, tmp_path) -> RunDir:
    """A run with rankings of BM25 and of its result."""
    made = RunDir(finished(tmp_path / "runs" / "a", folder / "ance.yaml", {"bm25": 0.2, "only": 0.3}))
    made.qrels("dev").write_text(QRELS)
    made.run_files.mkdir()
    for row, ranking in RANKINGS.items():
        lines = [
            f"{query} Q0 {document} {rank} {9 - rank} t\n"
            for query, documents in ranking.items()
            for rank, document in enumerate(documents, start=1)
        ]
        made.ranking(row, "dev").write_text("".join(lines))
    made.final_run("dev").write_text(made.ranking("only", "dev").read_text())
    return made


def tables(folder: Path, run: RunDir) -> dict[str, list[list[str]]]:
    """The cells of the tables by heading; that of the notes has lines."""
    texts = read_tables(str(folder), run.folder.parent).as_markdown().split("\n\n")
    found = {}
    for heading, text in zip(["", *texts], texts, strict=False):
        if text.startswith("|"):
            lines = text.splitlines()[2:]
            found[heading.partition(" (")[0]] = [
                [cell.strip() for cell in line.split("|")[1:-1]] for line in lines
            ]
    return found | {"notes": [texts[-1].splitlines()]}


JUDGED = "Unjudged documents, and documents shared with BM25's ranking"


def test_holes_and_overlap_of_the_first_two(folder, run):
    """x and y are not judged: 1 of 2 and 2 of 2; of BM25's first two the result has 1 of 2 and 0 of 2."""
    assert tables(folder, run)[JUDGED] == [
        ["bm25-search", "measured", "a", "1", "0.000", "1.000"],
        ["bm25-search", "BM25", "paper", "-", "0.100", "1.000"],
        ["ance", "measured", "a", "1", "0.750", "0.250"],
        ["ance", "ANCE", "paper", "-", "0.200", "0.300"],
    ]


def test_without_bm25_the_cell_says_so(folder, run):
    run.ranking("bm25", "dev").unlink()
    assert ["ance", "measured", "a", "1", "0.750", "no BM25 ranking"] in tables(folder, run)[JUDGED]


def reranked(run: RunDir, name: str, ranking: Path, search: float | None) -> Path:
    """A folder of `rerank` in the run directory."""
    made = run.folder / name
    made.mkdir()
    about = {"model": "hub/BERT", "ranking": str(ranking), "ranking_sha256": sha256_file(ranking)}
    write_json(made / "about.json", about)
    timed = {} if search is None else {"mean ms": search, "50% ms": 1.0}
    rows = [
        {"ranking": "first stage", "RR@10": 0.3, **timed},
        {"ranking": "first 3", "RR@10": 0.35, "mean ms": 30.4, "50% ms": 30.0},
    ]
    write_json(made / "measures.json", {"queries": 2, "rows": rows})
    return made


def test_two_stages_with_the_latency_of_both(folder, run):
    reranked(run, "reranked", run.final_run("dev"), 40.2)
    reranked(run, "reranked-bm25", run.ranking("bm25", "dev"), None)
    assert tables(folder, run)["Reranked"] == [
        ["bm25-search", "-", "measured", "a", "1", "0.300", "search not timed"],
        ["bm25-search", "-", "BM25 alone", "paper", "-", "0.190", "62"],
        ["bm25-search", "BERT, first 3", "measured", "a", "1", "0.350", "search not timed"],
        ["ance", "BERT, first 3", "measured", "a", "1", "0.350", "71"],
        ["ance", "BERT, first 3", "ANCE + BERT", "paper", "-", "0.360", "79"],
        ["ance", "-", "measured", "a", "1", "0.300", "40"],
    ]


def test_a_folder_about_an_earlier_ranking_is_skipped(folder, run):
    made = reranked(run, "reranked", run.final_run("dev"), 40.2)
    run.final_run("dev").write_text("q1 Q0 a 1 1 t\n")
    found = tables(folder, run)
    assert len(found["Reranked"]) == 2
    assert f"skipped: {made} was made from an earlier {run.final_run('dev')}" in found["notes"][0]


def test_answers_of_a_reader(folder, run):
    made = run.folder.parent / "answers"
    made.mkdir()
    about = {"ranking": str(run.final_run("dev")), "ranking_sha256": sha256_file(run.final_run("dev"))}
    write_json(made / "about.json", {"reader": {"kind": "extractive", "model": "hub/reader"}, **about})
    write_json(made / "measures.json", {"rows": [{"passages": 5, "EM": 0.25, "F1": 0.5}]})
    assert tables(folder, run)["Answers of a reader"] == [
        ["ance", "-", "ANCE", "paper", "-", "0.400"],
        ["ance", "reader, first 5", "measured", "a", "1", "0.250"],
    ]


def mined(run: RunDir, top_k: int, *generations: tuple[int, list]) -> None:
    """Let the run be one that mines with its own model, with these ranks of the positives by step."""
    negatives = f"stages.only.terms.query.negatives=[{{kind: ann, top_k: {top_k}}}]"
    recipe = load(run.recipe, negatives, "stages.only.refresh={every_steps: 5}").recipe
    run.recipe.write_text(dump(recipe))
    records = [
        {"event": "generation", "stage": "only", "checkpoint_step": step}
        | {"tables": {"query.0": {"positives": {}}}}
        for step, _ in generations
    ]
    for step, ranks in generations:
        with publishing(run.generation("only", step), {}) as generation:
            np.save(
                generation / "query.0.positive_ranks.npy", np.array([rank or 0 for rank in ranks], np.int32)
            )
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_forgetting_by_episode(folder, run):
    """One of four queries ranks worse at the end of the stage than at its start."""
    mined(run, 100, (0, [1, 4, 7, 9]), (5, [2, 1, 7, 9]))
    [rows] = [rows for heading, rows in tables(folder, run).items() if "rank worse" in heading]
    assert rows[0][:2] + rows[0][3:] == ["ance", "only", "a", "1", "0.250"]
    assert rows[1] == ["ance", "only", "ANCE, Epi-1", "paper", "-", "0.089"]


def test_a_run_whose_rankings_are_too_short_has_a_note(folder, run):
    mined(run, 50, (0, [1, None]), (5, [1, None]))
    [note] = [line for line in tables(folder, run)["notes"][0] if line.startswith("no forgetting: ")]
    assert "stages.only.terms.query.negatives.0 (ann) of its recipe ranks as few as 50 documents" in note
