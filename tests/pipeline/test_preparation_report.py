import json

import pytest
from helpers.small_set import ONE_STEP
from helpers.stages import changed

from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline import preparation as prepare
from pyserini_ance.pipeline.preparation import stored_collection
from pyserini_ance.pipeline.preparation_report import prepare_data
from pyserini_ance.pyserini_bridge import bm25

PUBLISHED = {"documents": 30, "train queries": 15, "train used": 15, "train judgments": 16, "dl20 used": 54}


@pytest.fixture
def recipe(small_recipe, tmp_path):
    return small_recipe({"a": ONE_STEP}, cache=str(tmp_path / "cache"))


def official(counts: dict) -> str:
    return f"data.official={json.dumps(counts)}"


def cells(report: str, part: str) -> list[str]:
    lines = [line for line in report.splitlines() if line.startswith(f"| {part} ")]
    return [cell.strip() for line in lines for cell in line.split("|")[1:-1]]


def test_the_table_shows_what_was_read(recipe):
    report = prepare_data(changed(recipe, official(PUBLISHED)))
    assert cells(report, "documents")[:3] == ["documents", "30", "30"]
    assert cells(report, "documents")[-1] == "30 documents"
    published = "15 queries, 15 queries with a relevant document, 16 judgments"
    assert cells(report, "train") == ["train", "15", "15", "16", "165", "13", "0.0 % at 24", "-", published]
    assert "seconds: reading and checking " in report and "warning" not in report
    assert f"; runs take the data from {recipe.cache}" in report


def test_texts_that_characters_cut_are_counted(recipe):
    report = prepare_data(changed(recipe, "encoder.tokenization.max_characters=35"))
    assert cells(report, "train")[6] == "0.0 % at 24"
    assert cells(report, "documents")[6] == "0.0 % at 32, 40.0 % at 35 characters (max_characters)"


def test_counts_that_differ_from_the_published_ones_are_warned_of(recipe):
    other = official({"documents": 31, "train queries": 14, "train judgments": 16})
    report = prepare_data(changed(recipe, other))
    warnings = [line for line in report.splitlines() if line.startswith("warning")]
    assert warnings == [
        f"warning: {what} are published; was a download interrupted, or is it another edition?"
        for what in ("documents: 30 documents were read, 31", "train: 15 queries were read, 14")
    ]


def test_skipped_data_counts_as_read_and_is_reported_again(recipe, tmp_path, caplog):
    topics, qrels, corpus = (tmp_path / name for name in ("train.tsv", "train.qrels", "corpus.jsonl"))
    corpus.write_text(recipe.data.corpus.read_text() + '{"id": "empty", "contents": " "}\n')
    topics.write_text(recipe.data.splits["train"].topics.read_text() + "extra\tnothing is relevant to it\n")
    judged = recipe.data.splits["train"].qrels.read_text()
    qrels.write_text(f"{judged}train-0 0 nowhere 1\nextra 0 red-apple 0\n")
    files = [f"data.corpus={corpus}", f"data.splits.train={{topics: {topics}, qrels: {qrels}}}"]
    skip = "data.skip=[unknown_ids, empty_documents]"
    skipping = changed(recipe, official({"documents": 31}), skip, *files)
    report = prepare_data(skipping)
    left = "1 judgments of unknown ids, 1 queries without positives, 1 judgments of queries without positives"
    assert cells(report, "train")[:4] == ["train", "16", "15", "18"] and cells(report, "train")[7] == left
    assert cells(report, "documents")[:3] == ["documents", "31", "30"] and "warning" not in report
    assert cells(report, "documents")[-2:] == ["1 documents without text", "31 documents"]
    caplog.clear()
    stored_collection(skipping)
    of_train = [f"skipped: 1 train {what.removeprefix('1 ')}" for what in left.split(", ")]
    assert sorted(caplog.messages) == sorted(["skipped: 1 documents without text", *of_train])


def test_documents_that_the_template_leaves_blank_are_warned_of(recipe, tmp_path):
    corpus, added = tmp_path / "corpus.jsonl", '{"id": "x", "title": "the tiger", "text": ""}\n'
    corpus.write_text(recipe.data.corpus.read_text() + added)
    template = "encoder.tokenization.document.template='document: {text}'"
    expected = "1 of 31 documents are encoded as empty texts by the template 'document: {text}', such as 'x' "
    expected += "(title has text, but is not in the template)"
    assert prepare_data(changed(recipe, f"data.corpus={corpus}", template)).count(expected) == 1


def test_all_missing_files_are_reported_at_once_with_their_origins(recipe, tmp_path):
    files = {"gone.tsv": "https://example.org/gone.tsv.gz (training queries)"}
    missing = [f"data.corpus={tmp_path}/nowhere", f"data.splits.train.topics={tmp_path}/gone.tsv"]
    with pytest.raises(FileNotFoundError) as error:
        prepare_data(changed(recipe, official(files), *missing))
    lines = str(error.value).splitlines()
    assert lines[0].startswith("2 of 5 files of the recipe do not exist")
    assert lines[1] == f"  data.corpus: {tmp_path}/nowhere"
    assert lines[2] == f"  data.splits.train.topics: {tmp_path}/gone.tsv"
    assert lines[3] == "    https://example.org/gone.tsv.gz (training queries)"
    assert not recipe.cache.exists()


def test_bm25_ranks_too(recipe, monkeypatch):
    asked = []

    def retrieve(documents, rankings, settings, folder, total):
        asked.extend((len(ranking.queries), ranking.hits) for ranking in rankings)
        for ranking in rankings:
            ranking.output.parent.mkdir(parents=True, exist_ok=True)
            ranking.output.write_text("")

    monkeypatch.setattr(bm25, "retrieve", retrieve)
    monkeypatch.setattr(prepare, "check_tools", lambda recipe: None)
    report = prepare_data(changed(recipe, "bm25={}"))
    assert asked == [(5, 100)] and ", BM25 " in report


def test_ranking_files_are_read_before_training(small_recipe, tmp_path):
    file = tmp_path / "run.trec"
    file.write_text("train-0 Q0 red-cloud 1 1.0 t\ntrain-1 Q0 red-apple 2 high t\n")
    later = {**ONE_STEP, "terms": {"query": {"negatives": [{"kind": "ranking", "file": str(file)}]}}}
    recipe = small_recipe({"a": ONE_STEP, "b": later}, cache=str(tmp_path / "cache"))
    for begin in (prepare_data, lambda recipe: prepare.prepare(recipe, World())):
        with pytest.raises(ValueError, match=r"run\.trec, line 2: score 'high'"):
            begin(recipe)
