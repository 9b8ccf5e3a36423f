"""Lists of a run's positives and mined negatives, and the cross-encoders that are trained on them."""

import io
import os
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification

from pyserini_ance.commands import train_teacher
from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.trec import read_run
from pyserini_ance.downstream.teacher_evaluation import DevRanking, dev_split
from pyserini_ance.downstream.teacher_training import (
    ABOUT,
    MinedLists,
    TeacherSettings,
    _new_model,
    default_length,
    start_weights,
)
from pyserini_ance.downstream.teacher_training import train_teacher as train_cross_encoder
from pyserini_ance.encoders.cross_encoder_model import CrossEncoderModel
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.evaluation.tables import last_stage
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.negatives.teachers.cross_encoder import model_digest
from pyserini_ance.pipeline import experiment
from pyserini_ance.pipeline.ranking_inputs import collection_of
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json, read_json_lines

STAGE = {"batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "refresh": {"every_steps": 2}}
ANN = {"kind": "ann", "top_k": 8, "num_negatives": 3}
STAGES = {
    "ance": {**STAGE, "steps": 4, "terms": {"query": {"negatives": [ANN]}}, "evaluate": {"every_steps": 2}}
}
FEW = ["--steps", "3", "--batch-queries", "2", "--num-negatives", "2", "--device", "cpu", "--first", "10"]


def train(recipe: Recipe, folder: Path) -> None:
    experiment.train(recipe, folder)


@pytest.fixture(scope="module")
def run(small_recipe, run_processes, tmp_path_factory) -> RunDir:
    """A finished run over the small collection; its two generations are those before steps 0 and 2."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_processes(1, train, small_recipe(STAGES), folder, join=False)
    return RunDir(folder)


@pytest.fixture(scope="module")
def lists(run) -> MinedLists:
    return MinedLists.of(run, run.read_recipe(), collection_of(run))


def test_the_tables_are_those_last_in_use(run, lists):
    assert list(lists.generations) == ["ance-00000002"]
    (table,) = lists.tables
    np.testing.assert_array_equal(
        table.candidates, np.load(run.negatives / "ance-00000002/query.0/candidates.npy")
    )
    assert len(lists.queries) == 15


def test_a_list_has_a_positive_and_different_mined_negatives(lists):
    relevant = {query: set(lists.split.qrels.relevant(query).tolist()) for query in range(15)}
    drawn = list(lists.draw(45, 3, seed=7))
    for query, documents in drawn:
        positive, *negatives = documents.tolist()
        assert positive in relevant[query] and not relevant[query] & set(negatives)
        assert len(set(negatives)) == 3 and set(negatives) <= set(lists.candidates(query).tolist())
    orders = [[query for query, _ in drawn[start : start + 15]] for start in (0, 15, 30)]
    assert all(sorted(order) == list(range(15)) for order in orders) and orders[0] != orders[1]
    again = [(query, documents.tolist()) for query, documents in lists.draw(45, 3, seed=7)]
    assert again == [(query, documents.tolist()) for query, documents in drawn]
    assert again != [(query, documents.tolist()) for query, documents in lists.draw(45, 3, seed=8)]


def test_texts_are_those_that_the_teacher_reads(lists):
    ids = lists.collection.documents.rows
    query, documents = lists.texts(0, np.array([ids["red-apple"], ids["green-river"]]))
    assert query == "query of red apple" and [text.split()[:4] for text in documents] == [
        ["the", "apple", "is", "red"],
        ["the", "river", "is", "green"],
    ]


def test_candidates_of_several_tables_are_joined(lists):
    def table(anchors: list[int], candidates: list[list[int]]) -> NegativeTable:
        rows = np.array(candidates, np.int32)
        return NegativeTable(
            "query", "document", np.array(anchors, np.int32), rows, np.zeros(rows.shape, np.float32), "ann"
        )

    tables = (table([0, 2, 5], [[7, 9], [PADDING, PADDING], [4, PADDING]]), table([0, 3], [[9, 11], [8, 8]]))
    joined = MinedLists(lists.collection, lists.split, tables, {})
    assert joined.queries.tolist() == [0, 3, 5]
    assert {query: joined.candidates(query).tolist() for query in (0, 2, 3, 4, 5)} == {
        0: [7, 9, 11],
        2: [],
        3: [8],
        4: [],
        5: [4],
    }


def test_positives_of_all_kinds_are_no_negatives(lists):
    """A document that a filter promoted is one, though another table lists it; so is a judged one that
    training does not know (`positives: last`), and the answer of a query without judgments."""

    def table(candidates: list[list[int]], promoted: list[list[int]] | None = None) -> NegativeTable:
        anchors, rows = np.array([0, 1], np.int32), np.array(candidates, np.int32)
        pairs = None if promoted is None else np.array(promoted, np.int32)
        scores = np.zeros(rows.shape, np.float32)
        return NegativeTable("query", "document", anchors, rows, scores, "ann", promoted=pairs)

    texts = Texts(["a", "b"], {"text": ["?", "?"]})
    split = Split("train", texts, Qrels.of([0, 0], [3, 5], [1, 1], 2))
    tables = (table([[3, 7, 8], [7, 8, 9]]), table([[6, PADDING], [8, 4]], [[0, 5], [0, 8], [1, 9]]))
    found = MinedLists.of_tables(lists.collection, split, tables, {})
    assert [found.split.qrels.relevant(query).tolist() for query in (0, 1)] == [[3, 5, 8], [9]]
    assert [found.candidates(query).tolist() for query in (0, 1)] == [[6, 7], [4, 7, 8]]
    for query, (positive, *negatives) in found.draw(20, 3, seed=1):
        assert positive in found.split.qrels.relevant(query)
        assert set(negatives) == set(found.candidates(query).tolist())


def test_a_run_without_mined_negatives_is_refused(small_recipe, tmp_path):
    terms = {"query": {"in_batch_negatives": True}}
    stage = {"steps": 1, "batch_queries": 2, "optimizer": {"learning_rate": 1e-3}, "terms": terms}
    recipe = small_recipe({"a": stage})
    with pytest.raises(ValueError, match="has no mined negatives: .* Pass a run with a source such as `ann`"):
        MinedLists.of(RunDir(tmp_path), recipe, Collection.__new__(Collection))
    with pytest.raises(ValueError, match="evaluates on no dev split; name one of its data: --split dev"):
        dev_split(recipe)


def without_torchrun() -> None:
    """The fixture's processes have torchrun's environment, in which transformers' Trainer would use DDP."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)


def command(arguments: list[str]) -> str:
    """What the command prints."""
    without_torchrun()
    with redirect_stdout(io.StringIO()) as printed:
        train_teacher.main(arguments)
    return printed.getvalue()


def test_the_command_trains_and_measures(run, run_processes, tmp_path):
    teacher, again, other = (tmp_path / name for name in ("teacher", "again", "other"))
    printed, _, _ = (
        run_processes(1, command, [str(run.folder), "--output", str(folder), *FEW, *more], join=False)[0]
        for folder, more in ((teacher, []), (again, []), (other, ["--seed", "1"]))
    )
    assert model_digest(str(teacher)) == model_digest(str(again)) != model_digest(str(other))
    about = read_json(teacher / ABOUT)
    assert about["settings"]["steps"] == 3 and about["settings"]["length_tokens"] == 24 + 32
    assert list(about["generations"]) == ["ance-00000002"] and about["queries"] == 15

    # The retriever and the reranking, pair by pair.
    collection = collection_of(run)
    split, documents = collection.split("dev"), collection.documents
    texts = [documents[row]["text"] for row in range(30)]
    queries, encoder = split.queries.columns["text"], load_encoder(run.model, "cpu")
    scores = encoder.encode(queries[:], "query") @ encoder.encode(texts, "document").T
    model = CrossEncoderModel(str(teacher), "cpu")
    assert model.model.max_seq_length == 56
    retrieved, reranked, qrels = {}, {}, {}
    for row, id in enumerate(split.queries.ids):
        order = np.argsort(-scores[row], kind="stable")[:10].tolist()
        retrieved[id] = {documents.ids[document]: float(scores[row, document]) for document in order}
        logits = [float(model.logits([(queries[row], texts[document])])[0]) for document in order]
        new = [order[place] for place in np.argsort(-np.array(logits), kind="stable")]
        reranked[id] = {documents.ids[document]: -float(rank) for rank, document in enumerate(new)}
        qrels[id] = {documents.ids[document]: 1 for document in split.qrels.relevant(row).tolist()}
    measures = parse_measures(["RR@10", "nDCG@10"])
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines()[:4]]
    assert cells[0] == ["ranking", "RR@10", "nDCG@10"]
    for (label, *values), name, ranking in zip(
        cells[2:], ("retriever", "first 10 reranked"), (retrieved, reranked), strict=True
    ):
        expected = evaluate(qrels, ranking, measures)
        assert label == name and [float(value) for value in values] == pytest.approx(
            list(expected.values()), abs=6e-5
        )
    assert cells[2][1:] != cells[3][1:]
    assert "5 queries of dev; nDCG@10 " in printed and str(teacher) in printed


def margin(run: RunDir, lists: MinedLists, model: str) -> float:
    """The mean difference between the logits of positives and negatives."""
    scored = CrossEncoderModel(model, "cpu")
    differences = []
    for query, documents in lists.draw(15, 4, seed=3):
        text, (positive, *negatives) = lists.texts(query, documents)
        logits = scored.logits([(text, document) for document in (positive, *negatives)])
        differences.append(float(logits[0] - logits[1:].mean()))
    return float(np.mean(differences))


def train_by(folder: Path, output: Path, settings: TeacherSettings, source: str | None = None) -> float:
    """Train, and return the margin."""
    without_torchrun()
    run = RunDir(folder)
    lists = MinedLists.of(run, run.read_recipe(), collection_of(run))
    train_cross_encoder(lists, source or start_weights(run), settings, "cpu", output, {})
    return margin(run, lists, str(output))


@pytest.mark.parametrize("loss", ["bce", "lambda"])
def test_positives_rise_above_negatives(run, run_processes, tmp_path, loss):
    few = TeacherSettings(loss, 1, 4, 4, 1e-9, 56)
    many = TeacherSettings(loss, 60, 4, 4, 1e-3, 56)
    ((before,), (after,)) = (
        run_processes(1, train_by, run.folder, tmp_path / name, settings, join=False)
        for name, settings in (("few", few), ("many", many))
    )
    assert after > before + 0.5


def test_a_cross_encoder_is_trained_further(run, run_processes, tmp_path, tiny_cross_encoder):
    """A learning rate of nearly nothing leaves its weights, head included."""
    settings = TeacherSettings("bce", 1, 2, 2, 1e-12, 56)
    run_processes(1, train_by, run.folder, tmp_path / "more", settings, str(tiny_cross_encoder), join=False)
    old, new = (load_file(folder / "model.safetensors") for folder in (tiny_cross_encoder, tmp_path / "more"))
    assert old.keys() == new.keys()
    for name, weight in old.items():
        torch.testing.assert_close(new[name], weight, atol=1e-8, rtol=0)


def test_what_goes_wrong_leaves_no_folder(run, run_processes, tmp_path):
    settings = TeacherSettings("bce", 3, 2, 2, 1e38, 56)
    (end,) = run_processes.ends(1, train_by, run.folder, tmp_path / "out", settings, join=False)
    assert "the teacher's mean loss is nan; lower --learning-rate (now 1e+38)" in end["error"]
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*"))


def test_weights_of_another_model_are_refused(run, run_processes, tmp_path, tiny_bert):
    """Transformers would draw a missing layer, with a warning."""
    for path in tiny_bert.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = {name: weight for name, weight in load_file(tiny_bert / "model.safetensors").items()
               if "layer.1." not in name}  # fmt: skip
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    settings = TeacherSettings("bce", 1, 2, 2, 1e-3, 56)
    (end,) = run_processes.ends(
        1, train_by, run.folder, tmp_path / "out", settings, str(tmp_path), join=False
    )
    assert (
        "lacks 16 weights of a BertForSequenceClassification, such as bert.encoder.layer.1." in end["error"]
    )


def test_a_classifier_into_two_is_refused(tiny_bert, tmp_path):
    config = BertConfig.from_pretrained(tiny_bert, num_labels=2)
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="gives 2 scores per pair, expected one; pass another cross-encoder"):
        _new_model(str(tmp_path), TeacherSettings(), "cpu", tmp_path / "start")


def test_torchrun_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(ValueError, match="start it without torchrun"):
        train_teacher.main([str(run.folder), "--output", str(tmp_path / "out")])


def test_a_missing_start_and_an_existing_folder_are_refused(run, tmp_path):
    with pytest.raises(FileNotFoundError, match="pass the weights to start from: --model"):
        start_weights(RunDir(tmp_path))
    with pytest.raises(FileExistsError, match="exists; remove it, or pass another --output"):
        train_teacher.main([str(run.folder), "--output", str(tmp_path)])


def test_a_pair_is_as_long_as_the_retriever_reads_it(small_recipe):
    assert default_length(small_recipe(STAGES)) == 24 + 32


def test_the_retriever_is_trained_again_from_the_teacher(run, small_recipe, run_processes, tmp_path):
    term = {
        "negatives": [ANN],
        "teacher": {"kind": "cross_encoder", "model": str(tmp_path / "teacher")},
        "loss": {"kind": "kl"},
    }
    student = {**STAGE, "steps": 2, "terms": {"query": term}, "init_from": {"run": str(run.folder)}}
    recipe = small_recipe({"student": student})
    run_processes(1, command, [str(run.folder), "--output", str(tmp_path / "teacher"), *FEW], join=False)
    run_processes(1, train, recipe, tmp_path / "student", join=False)
    results = read_json(tmp_path / "student" / "measures.json")
    assert last_stage(results["rows"])["row"] == "student"
    report = read_json(tmp_path / "student" / "negatives" / "student-00000000" / "report.json")
    assert (
        report["teachers"]["query"]["kind"] == "cross_encoder" and report["teachers"]["query"]["pairs"] > 100
    )
    losses = [r for r in read_json_lines(tmp_path / "student" / "metrics.jsonl") if r["event"] == "step"]
    assert len(losses) == 2 and all(record["loss"] > 0 for record in losses)


def dev_rankings(folder: Path) -> tuple[dict, dict]:
    """The same queries searched in the index, and read from the final ranking."""
    run = RunDir(folder)
    recipe, collection = run.read_recipe(), collection_of(run)
    arguments = (recipe, collection, "test", 20, 3, 5, "cpu")
    found = DevRanking.of(run, *arguments)
    run.final_run("test").rename(folder / "aside")
    try:
        return found.run, DevRanking.of(run, *arguments).run
    finally:
        (folder / "aside").rename(run.final_run("test"))


def test_a_split_without_a_ranking_is_searched_as_at_the_end(run, run_processes):
    ((read, searched),) = run_processes(1, dev_rankings, run.folder, join=False)
    assert len(read) == 3 and set(read) == set(searched) < set(read_run(run.final_run("test")))
    for query, hits in read.items():
        assert searched[query] == pytest.approx(hits, abs=1e-5)
