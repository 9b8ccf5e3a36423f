import json
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from helpers.asked_set import make_asked_recipe
from helpers.small_set import ONE_STEP
from helpers.stages import changed

from pyserini_ance.data.trec import read_qrels, read_run, write_qrels
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.evaluation.tables import last_stage
from pyserini_ance.pipeline import experiment, final_evaluator, preparation
from pyserini_ance.pipeline.final_evaluator import PADDING, FinalEvaluator, fusion_command, sort_by_score
from pyserini_ance.pipeline.model_export import export
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.pyserini_bridge import bm25
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir

STAGES = {"a": ONE_STEP}
TITLED = "{title} [SEP] {text}"
FORMS = [(24, TITLED, "dpr", "dpr"), (4, TITLED, "bert", "auto"), (24, "{text}", "bert", "auto")]


@pytest.fixture(params=["torch", "faiss"])
def recipe(request, small_recipe, tmp_path) -> Recipe:
    ranked = [(n, colour) for n in range(5) for colour in ("gray", "red", "pink")]
    lines = (f"test-{n} Q0 {colour}-horse 1 1.0 t\n" for n, colour in ranked)
    (tmp_path / "first.trec").write_text("".join(lines))
    test = {"measures": ["RR@10", "R@20", "nDCG@3"], "rerank": {"test": str(tmp_path / "first.trec")}}
    encoding = {"precision": "fp32", "tokens_per_batch": 64, "search": request.param}
    return small_recipe(STAGES, final_evaluation=test, encoding=encoding)


def start(recipe: Recipe, folder: Path) -> None:
    """A run directory up to the untrained encoder."""
    run = RunDir(folder)
    write_qrels(run.qrels("test"), read_collection(recipe).judgments("test"))
    publish_checkpoint(run, initial_encoder(recipe.encoder, 0), None, TrainingProgress("initial", 0))


def opened(recipe: Recipe, folder: Path, world: World | None = None) -> tuple[FinalEvaluator, Checkpoint]:
    """The evaluator of the run, and the untrained encoder."""
    run, data = RunDir(folder), tokenize(recipe, read_collection(recipe))
    return FinalEvaluator(recipe, data, run, world or World()), Checkpoint.open(run.checkpoint("initial", 0))


def in_passages(small_recipe, passages: int, test: dict, folder: Path) -> tuple[FinalEvaluator, Checkpoint]:
    documents = f"encoder.tokenization.document={{length_tokens: 10, passages: {passages}}}"
    recipe = changed(small_recipe(STAGES, final_evaluation=test), documents)
    start(recipe, folder)
    return opened(recipe, folder)


def close(world: World, recipe: Recipe, folder: Path) -> tuple[dict, dict, tuple[dict, dict], np.ndarray]:
    """A row, the same again, the export's, and what the index holds."""
    import faiss

    evaluator, checkpoint = opened(recipe, folder, world)
    row, again = (evaluator.evaluate_row("untrained", checkpoint, more=7) for _ in range(2))
    exported = export("a", checkpoint, evaluator, {})
    return row, again, exported, faiss.read_index(str(evaluator.run.index / "index")).reconstruct_n(0, 30)


def test_processes_close_a_run_as_one_does(run_processes, recipe, tmp_path):
    folders = [tmp_path / f"{size}" for size in (1, 3)]
    for folder in folders:
        folder.mkdir()
        start(recipe, folder)
    ((expected, _, _, vectors),) = run_processes(1, close, recipe, folders[0])
    ends = run_processes(3, close, recipe, folders[1])
    for row, again, (record, how), index in ends:
        assert row == again == ends[0][0] and row["more"] == 7
        measured = [*recipe.final_evaluation.measures, "test-rerank nDCG@3"]
        assert [row[name] for name in measured] == [expected[name] for name in measured]
        assert 0 < row["test-rerank nDCG@3"] < 1
        measures = recipe.final_evaluation.measures
        assert [record[name] for name in measures] == [row[name] for name in measures]
        assert how == ends[0][2][1] and "pyserini" in how["command"]
        np.testing.assert_allclose(index, vectors, atol=1e-5)
    alone, together = (read_run(folder / "run.test.trec") for folder in folders)
    assert {q: list(hits) for q, hits in together.items()} == {q: list(hits) for q, hits in alone.items()}
    assert json.loads((folders[1] / "runs" / "untrained.json").read_text()) == ends[0][0]


def export_a_pair(world: World, recipe: Recipe, folder: Path) -> tuple[str, dict]:
    """The form of the tower of queries, and how to search with it."""
    evaluator, checkpoint = opened(recipe, folder, world)
    exported = export("a", checkpoint, evaluator, {})[1]
    return json.loads((evaluator.run.model / "queries" / "config.json").read_text())["model_type"], exported


@pytest.mark.parametrize("length, template, form, stock", FORMS)
def test_a_pair_has_dpr_form_if_it_fits(run_processes, small_recipe, tmp_path, length, template, form, stock):
    """Which it does not cut; stock `auto` does, where BERT's form says. A pair that sentence-transformers can
    express keeps BERT's form."""
    document = f"document: {{length_tokens: 24, template: '{template}'}}"
    tokenization = f"encoder.tokenization={{query: {{length_tokens: {length}}}, {document}}}"
    recipe = small_recipe(STAGES, final_evaluation={"measures": ["RR@10"]})
    recipe = changed(recipe, tokenization, "encoder.tied=false", "encoder.pooling=cls")
    start(recipe, tmp_path)
    ((found, exported),) = run_processes(1, export_a_pair, recipe, tmp_path)
    assert (found, exported["queries"][3]) == (form, stock)
    assert f"--encoder-class {stock}" in exported["command"]
    folders = tmp_path / "model", tmp_path / "checkpoints" / "initial-00000000" / "encoder"
    ours, theirs = (load_encoder(folder).encode(["the red apple"], "query") for folder in folders)
    assert np.array_equal(ours, theirs)  # either form can be trained further
    told = [note for note in exported["notes"] if note.startswith("sentence-transformers takes whole texts")]
    assert bool(told) == (template != "{text}")
    assert (tmp_path / "model" / "modules.json").is_file() == (form != "dpr")


@pytest.mark.parametrize("passages", [1, 3])
def test_documents_rank_the_queries_that_they_answer(small_recipe, tmp_path, passages):
    """Documents in passages do by their best one, as queries rank them."""
    test = {"measures": ["RR@10"], "query_measures": ["RR@10", "Success@1"]}
    evaluator, checkpoint = in_passages(small_recipe, passages, test, tmp_path)
    row = evaluator.evaluate_row("untrained", checkpoint)
    asked = read_run(evaluator.run.ranking("untrained", "test.queries"))
    found = read_run(evaluator.run.ranking("untrained", "test"))  # all documents
    assert len(asked) == 5 and all(len(hits) == 5 for hits in asked.values())
    for document, hits in asked.items():
        assert hits == pytest.approx({query: found[query][document] for query in hits}, abs=1e-4)
    judged = read_qrels(evaluator.run.qrels("test"))
    asking = {document: query for query, grades in reversed(judged.items()) for document in grades}
    ranks = [1 + [*hits].index(asking[document]) for document, hits in asked.items()]
    assert row["queries RR@10"] == pytest.approx(sum(1 / rank for rank in ranks) / 5)
    assert row["queries Success@1"] == pytest.approx(sum(rank == 1 for rank in ranks) / 5)
    assert len(set(ranks)) > 1


@pytest.mark.parametrize("passages", [1, 3])
def test_candidates_are_reranked_by_the_same_scores(small_recipe, tmp_path, passages):
    found = [f"{c}-{t}" for t in ("cloud", "horse", "apple") for c in ("gray", "red", "pink")]
    candidates = {f"test-{n}": found for n in range(4)}
    ranked = ((query, *each) for query, documents in candidates.items() for each in enumerate(documents))
    lines = (f"{query} Q0 {document} 1 {9 - place} t\n" for query, place, document in ranked)
    (tmp_path / "first.trec").write_text("".join(lines))
    test = {"measures": ["nDCG@5", "R@7"], "rerank": {"test": str(tmp_path / "first.trec")}}
    evaluator, checkpoint = in_passages(small_recipe, passages, test, tmp_path)
    run, row = evaluator.run, evaluator.evaluate_row("untrained", checkpoint)
    found, whole = (read_run(run.ranking("untrained", of)) for of in ("test-rerank", "test"))
    reranked, given = ({query: sorted(of) for query, of in by.items()} for by in (found, candidates))
    assert reranked == given
    for query, hits in found.items():
        assert list(hits.values()) == sorted(hits.values(), reverse=True)
        assert hits == pytest.approx({document: whole[query][document] for document in hits}, abs=1e-4)
    assert [list(hits) for hits in found.values()] != list(candidates.values())
    judged = evaluate(read_qrels(run.qrels("test")), found, parse_measures(["nDCG@5", "R@7"]))
    assert judged == {name: row[f"test-rerank {name}"] for name in judged} and 0 < judged["R@7"] < 1


def test_questions_with_answers_alone_are_measured_by_what_passages_hold(small_recipe, tmp_path):
    """`Stone` is in passages 0, 3, 6, 9; another order of three passages is measured alike."""
    lines = ["0 Q0 p5 1 2.0 t", "1 Q0 p1 1 2.0 t", "1 Q0 p3 2 1.0 t", "2 Q0 p0 1 2.0 t"]
    (tmp_path / "first.trec").write_text("\n".join(lines))
    measures, rerank = ["Success@1", "Success@4", "Success@12"], {"test": str(tmp_path / "first.trec")}
    recipe = make_asked_recipe(small_recipe, tmp_path, STAGES, {"measures": measures, "rerank": rerank})
    run = RunDir(tmp_path / "run")
    publish_checkpoint(run, initial_encoder(recipe.encoder, 0), None, TrainingProgress("initial", 0))
    evaluator, checkpoint = opened(recipe, run.folder)
    row = evaluator.evaluate_row("untrained", checkpoint)
    held = {"0": {"p4", "p5"}, "1": {"p0", "p3", "p6", "p9"}, "2": {"p11"}, "3": set()}
    found = read_run(run.ranking("untrained", "test"))
    for cutoff in (1, 4, 12):
        hits = [bool(held[question] & set(list(found[question])[:cutoff])) for question in held]
        assert row[f"Success@{cutoff}"] == sum(hits) / 4
    assert row["Success@12"] == 0.75 and row["test-rerank Success@4"] == 0.5
    assert not run.qrels("test").exists()


def close_by_indexes(world: World, recipe: Recipe, folder: Path) -> tuple[list[dict], list[dict]]:
    """Records of a row and of the export's, each after those of its indexes."""
    evaluator, checkpoint = opened(recipe, folder, world)
    row = evaluator.evaluate_row("untrained", checkpoint)
    exported, _ = export("a", checkpoint, evaluator, {})
    return [*evaluator.index_rows("untrained"), row], [*evaluator.index_rows("a"), exported]


def test_a_row_comes_again_for_each_index(run_processes, small_recipe, tmp_path):
    """`Flat` is exact, so that its row is the model's own; codes of 4 bits for 8 numbers rank otherwise."""
    settings = {"measures": ["RR@10", "R@20", "nDCG@3"], "indexes": ["Flat", "IVF1,PQ4x4"]}
    recipe = small_recipe(STAGES, final_evaluation=settings)
    start(recipe, tmp_path)
    ends = run_processes(2, close_by_indexes, recipe, tmp_path)
    assert ends[0] == ends[1]
    for records, name in zip(ends[0], ("untrained", "a"), strict=True):
        assert [record["row"] for record in records] == [f"{name}+Flat", f"{name}+IVF1,PQ4x4", name]
        assert all(set(recipe.final_evaluation.measures) <= set(record) for record in records)
        measures = recipe.final_evaluation.measures
        assert [record["bytes a document"] for record in records] == [128, 2, 128]
        flat, _, own = ([record[measure] for measure in measures] for record in records)
        assert flat == own
        run = RunDir(tmp_path).run_files
        rankings = [read_run(run / f"{record['row']}.test.trec") for record in records]
        first, third = ([(query, list(hits)) for query, hits in sorted(rankings[i].items())] for i in (0, 2))
        assert first == third
        assert rankings[1] != rankings[2] and all(len(hits) == 30 for hits in rankings[1].values())


def test_ties_are_in_the_order_of_rows_and_nothing_comes_last():
    rows = np.array([[2, 0, 1, PADDING], [1, PADDING, PADDING, 0]], np.int32)
    scores, ordered = sort_by_score(np.array([[1.0, 3.0, 3.0, 0], [-5.0, 0, 0, -4.0]], np.float32), rows)
    assert ordered.tolist() == [[0, 1, 2, PADDING], [0, 1, PADDING, PADDING]]
    assert scores[0, :3].tolist() == [3.0, 3.0, 1.0] and scores[1, :2].tolist() == [-4.0, -5.0]


HITS = 100
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
    hits = ((query, rank, *hit) for query, own in run.items() for rank, hit in enumerate(own.items(), 1))
    return "".join(f"{query} Q0 {document} {rank} {score} t\n" for query, rank, document, score in hits)


@pytest.fixture
def with_bm25(small_recipe) -> Recipe:
    return small_recipe(STAGES, bm25={}, final_evaluation={"measures": ["RR@3", "nDCG@3"]})


def fuse_twice(world: World, recipe: Recipe, folder: Path) -> tuple[dict, dict]:
    final_evaluator.QUERIES_PER_BLOCK = 1  # two blocks are without a hit of BM25
    evaluator = FinalEvaluator(recipe, tokenize(recipe, read_collection(recipe)), RunDir(folder), world)
    return evaluator.hybrid_row("a"), evaluator.hybrid_row("a")


def test_scaled_scores_are_summed_and_measured_once_as_the_command_does(with_bm25, run_processes, tmp_path):
    """Pyserini writes all digits, this package those of a float32."""
    run = RunDir(tmp_path / "run")
    run.run_files.mkdir(parents=True)
    write_qrels(run.qrels("test"), read_collection(with_bm25).judgments("test"))
    run.ranking("bm25", "test").write_text(lines(SPARSE))
    for path in (run.ranking("a", "test"), run.final_run("test")):
        path.write_text(lines(DENSE))
    (row, again), other = run_processes(2, fuse_twice, with_bm25, run.folder)
    assert row == again == other[0] == other[1]
    assert row["row"] == "hybrid" and "train seconds" not in row
    # by hand, the rank of the right document: 1 (0.54 + 1), 1 (1 + 0), 2, 1 (1 + 0.5), and 3
    assert row["RR@3"] == pytest.approx((1 + 1 / 2 + 1 / 2 + 1 + 1 / 3) / 5)
    subprocess.run(shlex.split(fusion_command(run, ["test"], HITS)), check=True, capture_output=True)
    peer = read_run(run.folder / "run.hybrid.txt")
    expected = {query: pytest.approx(hits, rel=1e-7) for query, hits in peer.items()}
    assert read_run(run.ranking("hybrid", "test")) == expected
    measures = with_bm25.final_evaluation.measures_of("test")
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


def test_rows_that_the_recipe_does_not_want_are_not_ranked(with_bm25, run_processes, tmp_path):
    """BM25, which no source needs, is not even called."""
    for rows, expected in (((), ["a"]), (("untrained",), ["untrained", "a"])):
        run = RunDir(tmp_path / str(len(rows)))
        wanted = changed(with_bm25, f"final_evaluation.rows=[{', '.join(rows)}]")
        run_processes(1, train, wanted, run.folder, join=False)
        assert [row["row"] for row in table(run)] == expected
        written = {path.name for path in run.run_files.glob("*.trec")}
        assert written == {f"{row}.test.trec" for row in expected}


def test_a_run_with_bm25_ends_with_the_row(with_bm25, run_processes, tmp_path):
    """RM3, which has a row of its own, is not fused."""
    run, rows = RunDir(tmp_path / "run"), "bm25, bm25+rm3, untrained, hybrid"
    recipe = changed(with_bm25, f"final_evaluation.rows=[{rows}]")
    run_processes(1, train, recipe, run.folder, join=False)
    rows, written = table(run), run.ranking("hybrid", "test").stat().st_mtime_ns
    assert [row["row"] for row in rows] == ["bm25", "bm25+rm3", "untrained", "a", "hybrid"]
    assert last_stage(rows)["row"] == "a"
    assert json.loads(run.measures.read_text())["export"]["hybrid"] == fusion_command(run, ["test"], HITS)
    run_processes(1, train, recipe, run.folder, True, join=False)
    assert table(run)[-1] == rows[-1] and run.ranking("hybrid", "test").stat().st_mtime_ns == written
