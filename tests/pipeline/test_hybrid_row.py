import json
import shlex
import subprocess
from pathlib import Path

import pytest
from helpers.small_set import ONE_STEP
from helpers.stages import changed

from pyserini_ance.data.trec import read_qrels, read_run
from pyserini_ance.distributed.world import World
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.evaluation.tables import last_stage
from pyserini_ance.pipeline import experiment, final_evaluator, preparation
from pyserini_ance.pipeline.final_evaluator import FinalEvaluator, fusion_command
from pyserini_ance.pipeline.model_export import write_qrels
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.pyserini_bridge import bm25
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir

STAGES = {"a": ONE_STEP}
HITS = 3
# Scores by query and document; the right documents are those of the query's colour and `horse`.
SPARSE = {
    "test-0": {"red-apple": 9.5, "red-horse": 7.25, "red-stone": 4.5},
    "test-1": {"green-horse": 8.0, "blue-horse": 7.5, "pink-horse": 2.0},
    "test-3": {"gray-horse": 3.0},  # a query with one hit: its score becomes 1
}
DENSE = {
    "test-0": {"red-horse": 0.875, "red-river": 0.75, "blue-horse": 0.5},
    "test-1": {"blue-horse": 0.9375, "green-river": 0.625, "green-horse": 0.5},
    "test-2": {"blue-cloud": 0.5, "blue-horse": 0.25, "red-horse": 0.125},  # BM25 finds nothing
    "test-3": {"gray-cloud": 0.75, "gray-horse": 0.5, "gray-apple": 0.25},
    "test-4": {"pink-tiger": 0.5, "pink-cloud": 0.375, "pink-horse": 0.25},  # nor here
}


def lines(run: dict[str, dict[str, float]]) -> str:
    return "".join(
        f"{query} Q0 {document} {rank} {score} t\n"
        for query, hits in run.items()
        for rank, (document, score) in enumerate(hits.items(), start=1)
    )


@pytest.fixture
def recipe(small_recipe) -> Recipe:
    return small_recipe(STAGES, bm25={}, final_evaluation={"hits": HITS, "measures": ["RR@3", "nDCG@3"]})


def fuse_twice(world: World, recipe: Recipe, folder: Path) -> tuple[dict, dict]:
    final_evaluator.QUERIES_PER_BLOCK = 1  # two blocks are without a hit of BM25
    run = RunDir(folder)
    evaluator = FinalEvaluator(recipe, tokenize(recipe, read_collection(recipe)), run, world)
    return evaluator.hybrid_row("a"), evaluator.hybrid_row("a")


@pytest.fixture
def fused(recipe, run_processes, tmp_path) -> tuple[RunDir, list]:
    """A run directory with the row, and what `fuse_twice` returned in each of two processes."""
    run = RunDir(tmp_path / "run")
    run.run_files.mkdir(parents=True)
    write_qrels(read_collection(recipe), "test", run.qrels("test"))
    run.ranking("bm25", "test").write_text(lines(SPARSE))
    for path in (run.ranking("a", "test"), run.final_run("test")):
        path.write_text(lines(DENSE))
    return run, run_processes(2, fuse_twice, recipe, run.folder)


def test_scaled_scores_are_summed_and_measured_once_as_the_printed_command_does(recipe, fused):
    """Pyserini writes all digits, this package those of a float32."""
    run, ((row, again), other) = fused
    assert row == again == other[0] == other[1]
    assert row["row"] == "hybrid" and "train seconds" not in row
    # by hand, the rank of the right document: 1 (0.54 + 1), 1 (1 + 0), 2, 1 (1 + 0.5), and 3
    assert row["RR@3"] == pytest.approx((1 + 1 / 2 + 1 / 2 + 1 + 1 / 3) / 5)
    command = fusion_command(run, ["test"], HITS)
    subprocess.run(shlex.split(command), check=True, capture_output=True)
    peer = read_run(run.folder / "run.hybrid.txt")
    assert {query: pytest.approx(hits, rel=1e-7) for query, hits in peer.items()} == read_run(
        run.ranking("hybrid", "test")
    )
    measures = recipe.final_evaluation.measures_of("test")
    measured = evaluate(read_qrels(run.qrels("test")), peer, measures)
    assert measured == {str(name): row[str(name)] for name in measures}


def train(recipe: Recipe, folder: Path, resume: bool = False) -> None:
    def retrieve(documents, rankings, *rest) -> None:
        for one in rankings:
            one.output.parent.mkdir(parents=True, exist_ok=True)
            one.output.write_text(lines(SPARSE))

    bm25.retrieve = retrieve
    preparation.check_tools = lambda recipe: None  # there may be no Java
    experiment.train(recipe, folder, resume=resume)


def table(run: RunDir) -> list[dict]:
    return json.loads(run.measures.read_text())["rows"]


def test_rows_that_the_recipe_does_not_want_are_not_ranked(recipe, run_processes, tmp_path):
    """BM25, which no source needs, is not even called."""
    for rows, expected in (((), ["a"]), (("untrained",), ["untrained", "a"])):
        run = RunDir(tmp_path / str(len(rows)))
        wanted = changed(recipe, f"final_evaluation.rows=[{', '.join(rows)}]")
        run_processes(1, train, wanted, run.folder, join=False)
        assert [row["row"] for row in table(run)] == expected
        written = {path.name for path in run.run_files.glob("*.trec")}
        assert written == {f"{row}.test.trec" for row in expected}


def test_a_run_with_bm25_ends_with_the_row(recipe, run_processes, tmp_path):
    """RM3, which has a row of its own, is not fused."""
    run, recipe = RunDir(tmp_path / "run"), changed(recipe, "bm25.rm3=true")
    run_processes(1, train, recipe, run.folder, join=False)
    rows, written = table(run), run.ranking("hybrid", "test").stat().st_mtime_ns
    assert [row["row"] for row in rows] == ["bm25", "bm25+rm3", "untrained", "a", "hybrid"]
    assert last_stage(rows)["row"] == "a"
    exported = json.loads(run.measures.read_text())["export"]
    assert exported["hybrid"] == fusion_command(run, ["test"], HITS)
    run_processes(1, train, recipe, run.folder, True, join=False)
    assert table(run)[-1] == rows[-1] and run.ranking("hybrid", "test").stat().st_mtime_ns == written
