"""Cross-encoders that are trained on a run's positives and mined negatives."""

import io
import os
import signal
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.mined_run import ANN, STAGE, STAGES, make_mined_run, train
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification, CLIPConfig

from pyserini_ance.commands import train_teacher
from pyserini_ance.data.trec import read_run
from pyserini_ance.encoders.cross_encoder_model import CrossEncoderModel
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.evaluation.tables import last_stage
from pyserini_ance.negatives.teachers.cross_encoder import model_digest
from pyserini_ance.pipeline import teacher_training
from pyserini_ance.pipeline.data_checks import check_before_reading
from pyserini_ance.pipeline.mined_lists import MinedLists
from pyserini_ance.pipeline.ranking_inputs import collection_of
from pyserini_ance.pipeline.teacher_training import (
    ABOUT,
    TeacherSettings,
    _new_model,
    default_length,
    start_weights,
)
from pyserini_ance.pipeline.teacher_training import train_teacher as train_cross_encoder
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.load import load
from pyserini_ance.reports.teacher_evaluation import DevRanking, dev_split
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json, read_json_lines

FEW = ["--steps", "3", "--batch-queries", "2", "--num-negatives", "2", "--device", "cpu", "--first", "10"]


@pytest.fixture(scope="module")
def run(small_recipe, run_processes, tmp_path_factory) -> RunDir:
    return make_mined_run(small_recipe, run_processes, tmp_path_factory.mktemp("runs") / "run")


def test_a_recipe_without_a_dev_split_needs_one_named(small_recipe):
    terms = {"query": {"in_batch_negatives": True}}
    stage = {"steps": 1, "batch_queries": 2, "optimizer": {"learning_rate": 1e-3}, "terms": terms}
    with pytest.raises(ValueError, match="evaluates on no dev split; name one of its data: --split dev"):
        dev_split(small_recipe({"a": stage}))


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


def settings_of(loss: str, steps: int, size: int, learning_rate: float) -> TeacherSettings:
    """`size` queries in a step, each with `size` negatives."""
    return TeacherSettings(
        loss=loss,
        steps=steps,
        batch_queries=size,
        num_negatives=size,
        learning_rate=learning_rate,
        length_tokens=56,
    )


def train_by(folder: Path, output: Path, settings: TeacherSettings, source: str | None = None) -> float:
    """Train, and return the margin."""
    without_torchrun()
    run = RunDir(folder)
    lists = MinedLists.of(run, run.read_recipe(), collection_of(run))
    train_cross_encoder(lists, source or start_weights(run), settings, "cpu", output, {})
    return margin(run, lists, str(output))


@pytest.mark.parametrize("loss", ["bce", "lambda"])
def test_positives_rise_above_negatives(run, run_processes, tmp_path, loss):
    few = settings_of(loss, 1, 4, 1e-9)
    many = settings_of(loss, 240, 4, 1e-3)  # `lambda` rises slowly
    ((before,), (after,)) = (
        run_processes(1, train_by, run.folder, tmp_path / name, settings, join=False)
        for name, settings in (("few", few), ("many", many))
    )
    assert after > before + 0.5


def train_counted(folder: Path, output: Path, settings: TeacherSettings, dies_at: int) -> list[int]:
    """The steps that are trained; the process is killed at the end of step `dies_at`."""
    steps, make_bar = [], teacher_training._bar

    def counting_bar(total: int):
        class Counting(type(make_bar(total))):
            def on_step_end(self, arguments, state, control, **more):
                steps.append(state.global_step)
                if state.global_step == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                super().on_step_end(arguments, state, control, **more)

        return Counting()

    teacher_training._bar = counting_bar
    train_by(folder, output, settings)
    return steps


@pytest.mark.parametrize("loss", ["bce", "lambda"])
def test_a_killed_training_continues_to_the_same_weights(run, run_processes, tmp_path, loss):
    """Twenty steps, every second of them saved; one checkpoint was being written when the process died."""
    whole, killed, settings = tmp_path / "whole", tmp_path / "killed", settings_of(loss, 20, 4, 1e-3)
    assert run_processes(1, train_counted, run.folder, whole, settings, 0, join=False) == [list(range(1, 21))]
    for dies_at in (1, 9):
        (end,) = run_processes.ends(1, train_counted, run.folder, killed, settings, dies_at, join=False)
        assert end["code"] == -signal.SIGKILL and not killed.exists()
    (kept,) = {path.parent for path in (tmp_path / ".killed.training").glob("*/checkpoint-*")}
    assert [path.name for path in kept.iterdir()] == ["checkpoint-8"]
    (kept / "checkpoint-10").mkdir()
    (kept / "checkpoint-10" / "trainer_state.json").write_text("{")
    assert run_processes(1, train_counted, run.folder, killed, settings, 0, join=False) == [
        list(range(9, 21))
    ]
    assert model_digest(str(killed)) == model_digest(str(whole))
    assert not (tmp_path / ".killed.training").exists()


def test_a_training_of_other_settings_begins_anew(run, run_processes, tmp_path):
    output, first, second = tmp_path / "out", settings_of("bce", 4, 2, 1e-3), settings_of("bce", 4, 2, 1e-4)
    run_processes.ends(1, train_counted, run.folder, output, first, 3, join=False)
    assert run_processes(1, train_counted, run.folder, output, second, 0, join=False) == [[1, 2, 3, 4]]


def test_a_cross_encoder_is_trained_further(run, run_processes, tmp_path, tiny_cross_encoder):
    """A learning rate of nearly nothing leaves its weights, head included."""
    settings = settings_of("bce", 1, 2, 1e-12)
    run_processes(1, train_by, run.folder, tmp_path / "more", settings, str(tiny_cross_encoder), join=False)
    old, new = (load_file(folder / "model.safetensors") for folder in (tiny_cross_encoder, tmp_path / "more"))
    assert old.keys() == new.keys()
    for name, weight in old.items():
        torch.testing.assert_close(new[name], weight, atol=1e-8, rtol=0)


def test_what_goes_wrong_leaves_no_folder(run, run_processes, tmp_path):
    settings = settings_of("bce", 3, 2, 1e38)
    (end,) = run_processes.ends(1, train_by, run.folder, tmp_path / "out", settings, join=False)
    assert "the teacher's mean loss is nan; lower its learning rate (now 1e+38)" in end["error"]
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*"))


def test_weights_of_another_model_are_refused(run, run_processes, tmp_path, tiny_bert):
    """Transformers would draw a missing layer, with a warning."""
    for path in tiny_bert.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = {name: weight for name, weight in load_file(tiny_bert / "model.safetensors").items()
               if "layer.1." not in name}  # fmt: skip
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    settings = settings_of("bce", 1, 2, 1e-3)
    (end,) = run_processes.ends(
        1, train_by, run.folder, tmp_path / "out", settings, str(tmp_path), join=False
    )
    assert (
        "lacks 16 weights of a BertForSequenceClassification, such as bert.encoder.layer.1." in end["error"]
    )


def test_a_model_that_is_no_cross_encoder_is_refused_before_the_data_is_read(tmp_path, tiny_bert):
    """From its configuration alone: training gets there after a whole stage."""
    two = BertForSequenceClassification(BertConfig.from_pretrained(tiny_bert, num_labels=2))
    two.save_pretrained(tmp_path)
    start = f"teachers.ranker-1.init_from={{model: {tmp_path}}}"
    with pytest.raises(ValueError, match="gives 2 scores per pair, expected one"):
        check_before_reading(load("demo/ar2", start).recipe)
    CLIPConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is a clip, which cannot score pairs; start from another"):
        check_before_reading(load("demo/ar2", start).recipe)


def test_a_classifier_into_two_is_refused(tiny_bert, tmp_path):
    config = BertConfig.from_pretrained(tiny_bert, num_labels=2)
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match="gives 2 scores per pair, expected one; start from another cross-encoder"
    ):
        _new_model(str(tmp_path), TeacherSettings(length_tokens=56), "cpu", tmp_path / "start")


def test_torchrun_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(ValueError, match="start it without torchrun"):
        train_teacher.main([str(run.folder), "--output", str(tmp_path / "out")])


def test_a_missing_start_and_an_existing_folder_are_refused(run, tmp_path):
    with pytest.raises(FileNotFoundError, match="start from another cross-encoder or encoder: --model"):
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
