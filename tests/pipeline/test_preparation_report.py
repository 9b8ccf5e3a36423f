"""`prepare_data`: the data is counted, compared with published counts, and used by training from the
cache.
"""

import os
import time
from itertools import product
from statistics import median

import pytest
from helpers.small_set import ONE_STEP

from pyserini_ance.data.collection_cache import collection_folder
from pyserini_ance.data.formats.files import Official, input_files
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives import rankings
from pyserini_ance.pipeline import preparation as prepare
from pyserini_ance.pipeline.preparation import stored_collection
from pyserini_ance.pipeline.preparation_report import prepare_data
from pyserini_ance.pyserini_bridge import bm25
from pyserini_ance.recipe.models import Bm25, Recipe

PUBLISHED = {
    "documents": 30,
    "splits": {"train": {"queries": 15, "used": 15, "judgments": 16}, "dl20": {"used": 54}},
}


@pytest.fixture
def recipe(small_recipe, tmp_path):
    made = small_recipe({"a": ONE_STEP}, cache=str(tmp_path / "cache"))
    for path in input_files(made.data):
        os.utime(path, (time.time() - 60,) * 2)
    return made


def with_official(recipe, **official):
    return recipe.model_copy(
        update={"data": recipe.data.model_copy(update={"official": Official.model_validate(official)})}
    )


def cells(report: str, part: str) -> list[str]:
    return [
        cell.strip()
        for line in report.splitlines()
        if line.startswith(f"| {part} ")
        for cell in line.split("|")[1:-1]
    ]


def test_the_table_shows_what_was_read_and_where_it_is_stored(recipe):
    report = prepare_data(with_official(recipe, **PUBLISHED))
    assert (
        cells(report, "documents")[:3] == ["documents", "30", "30"]
        and cells(report, "documents")[-1] == "30 documents"
    )
    published = "15 queries, 15 queries with a relevant document, 16 judgments"
    assert cells(report, "train") == ["train", "15", "15", "16", "165", "13", "0.0 % at 24", "-", published]
    folder = collection_folder(recipe.cache, stored_collection(recipe).digest)
    assert cells(report, "reading and checking")[-1] == str(folder) and cells(report, "tokens")[-1] == str(
        recipe.cache / "tokens"
    )
    assert "warning" not in report
    legend = [line.partition(":")[0] for line in report.splitlines() if line.startswith("- ")]
    assert legend == ["- tokens", "- used", "- cut", "- published", "- MiB, where"]


def test_counts_that_differ_from_the_published_ones_are_warned_of(recipe):
    other = with_official(recipe, documents=31, splits={"train": {"queries": 14, "judgments": 16}})
    warnings = [line for line in prepare_data(other).splitlines() if line.startswith("warning")]
    assert warnings == [
        "warning: documents: 30 documents were read, 31 are published; was a download, or its "
        "unpacking, interrupted?",
        "warning: train: 15 queries were read, 14 are published; is it another edition, or are two "
        "files concatenated?",
    ]


def test_skipped_data_counts_as_read_and_is_reported_again(recipe, tmp_path, caplog, monkeypatch):
    topics, qrels, corpus = (tmp_path / name for name in ("train.tsv", "train.qrels", "corpus.jsonl"))
    corpus.write_text(recipe.data.corpus.read_text() + '{"id": "empty", "contents": " "}\n')
    topics.write_text(recipe.data.splits["train"].topics.read_text() + "extra\tnothing is relevant to it\n")
    qrels.write_text(
        recipe.data.splits["train"].qrels.read_text() + "train-0 0 nowhere 1\nextra 0 red-apple 0\n"
    )
    splits = {
        **recipe.data.splits,
        "train": recipe.data.splits["train"].model_copy(update={"topics": topics, "qrels": qrels}),
    }
    update = {"splits": splits, "unknown_ids": "skip", "corpus": corpus, "empty_documents": "skip"}
    data = recipe.data.model_copy(update={**update, "official": Official(documents=31)})
    for path in (topics, qrels, corpus):
        os.utime(path, (time.time() - 60,) * 2)
    changed = recipe.model_copy(update={"data": data})
    report = prepare_data(changed)
    left = "1 judgments of unknown ids, 1 queries without positives, 1 judgments of queries without positives"
    assert cells(report, "train")[:4] == ["train", "16", "15", "18"] and cells(report, "train")[7] == left
    assert cells(report, "documents")[:3] == ["documents", "31", "30"] and "warning" not in report
    assert cells(report, "documents")[-2:] == ["1 documents without text", "31 documents"]
    caplog.clear()
    monkeypatch.setattr(prepare, "read_collection", lambda *_: pytest.fail("the data was read again"))
    stored_collection(changed)
    assert sorted(caplog.messages) == sorted(
        ["skipped: 1 documents without text"]
        + [f"skipped: 1 train {what.removeprefix('1 ')}" for what in left.split(", ")]
    )


def test_documents_that_the_template_leaves_blank_are_warned_of(recipe, tmp_path, caplog):
    """Once by `prepare`, and once by `train`, which finds the tokens in the cache."""
    corpus, added = tmp_path / "corpus.jsonl", '{"id": "x", "title": "the tiger", "text": ""}\n'
    template = "document: {text}"
    corpus.write_text(recipe.data.corpus.read_text() + added)
    tokenization = recipe.encoder.tokenization
    document = tokenization.document.model_copy(update={"template": template})
    encoder = recipe.encoder.model_copy(
        update={"tokenization": tokenization.model_copy(update={"document": document})}
    )
    data = recipe.data.model_copy(update={"corpus": corpus})
    changed = recipe.model_copy(update={"data": data, "encoder": encoder})
    expected = (
        f"1 of 31 documents are encoded as empty texts by the template {template!r}, such as 'x' (title has "
        "text, but is not in the template)"
    )
    assert prepare_data(changed).count(expected) == 1
    prepare.prepare(changed, World())
    assert [expected in message for message in caplog.messages] == [True]


def test_the_share_of_texts_that_are_cut_is_shown(recipe):
    """Of 30 documents: "the" is a token, else each letter is one."""
    raw = recipe.model_dump(mode="json")
    raw["encoder"]["tokenization"]["document"]["length_tokens"] = 20
    report = prepare_data(Recipe.model_validate(raw))
    things = ("apple", "stone", "river", "cloud", "horse", "tiger")
    pairs = product(("red", "green", "blue", "gray", "pink"), things)
    counts = [5 + len(thing) + len(colour) + 4 * (n % 7) for n, (colour, thing) in enumerate(pairs)]
    share = 100 * sum(count > 20 for count in counts) / 30
    assert cells(report, "documents")[5:7] == [str(int(median(counts))), f"{share:.1f} % at 20"]


def test_all_missing_files_are_reported_at_once_with_their_origins(recipe, tmp_path):
    files = {"gone.tsv": "https://example.org/gone.tsv.gz (training queries)"}
    splits = {
        **recipe.data.splits,
        "train": recipe.data.splits["train"].model_copy(update={"topics": tmp_path / "gone.tsv"}),
    }
    data = with_official(recipe, files=files).data.model_copy(
        update={"splits": splits, "corpus": tmp_path / "nowhere"}
    )
    with pytest.raises(FileNotFoundError) as error:
        prepare_data(recipe.model_copy(update={"data": data}))
    lines = str(error.value).splitlines()
    assert lines[0].startswith("2 of 5 files of the recipe do not exist")
    assert lines[1] == f"  data.corpus: {tmp_path}/nowhere"
    assert lines[2:4] == [
        f"  data.splits.train.topics: {tmp_path}/gone.tsv",
        "    https://example.org/gone.tsv.gz (training queries)",
    ]
    assert not recipe.cache.exists()


def test_bm25_ranks_too(recipe, monkeypatch):
    asked = []

    def retrieve(documents, rankings, settings, folder, total):
        folder.mkdir(parents=True)
        (folder / "index").write_bytes(bytes(1 << 20))
        asked.append(
            (len(list(documents)), [(len(ranking.queries), ranking.hits) for ranking in rankings], total)
        )
        for ranking in rankings:
            ranking.output.parent.mkdir(exist_ok=True)
            ranking.output.write_bytes(bytes(1 << 20))

    monkeypatch.setattr(bm25, "retrieve", retrieve)
    monkeypatch.setattr(prepare, "check_tools", lambda recipe: None)
    report = prepare_data(recipe.model_copy(update={"bm25": Bm25()}))
    assert asked == [(30, [(5, 20)], 30)] and cells(report, "BM25")[2:] == ["2", str(recipe.cache / "bm25")]


@pytest.fixture
def with_negatives(small_recipe, tmp_path):
    """A recipe whose second stage mixes two ranking files."""
    files = [tmp_path / "qidpidtriples.tsv", tmp_path / "run.trec"]
    mix = {
        "kind": "mix",
        "sources": [{"kind": "ranking", "file": str(file)} for file in files],
        "on_shortage": "fill_random",
    }
    later = {**ONE_STEP, "terms": {"query": {"negatives": [mix]}}}
    return small_recipe({"a": ONE_STEP, "b": later}, cache=str(tmp_path / "cache")), files


def written(files: list, triples: str = "", run: str = "") -> None:
    for file, text, more in zip(
        files,
        ("train-0\tred-apple\tred-stone\n", "train-1 Q0 red-cloud 1 1.0 t\n"),
        (triples, run),
        strict=True,
    ):
        file.write_text(text + more)
        os.utime(file, (time.time() - 60,) * 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"triples": "train-0\tred-apple\n"}, r"qidpidtriples\.tsv, line 2: 2 columns"),
        ({"run": "train-1 Q0 red-apple 2 high t\n"}, r"run\.trec, line 2: score 'high'"),
    ],
)
def test_ranking_files_are_read_before_training(with_negatives, change, message):
    recipe, files = with_negatives
    written(files, **change)
    for begin in (prepare_data, lambda recipe: prepare.prepare(recipe, World())):
        with pytest.raises(ValueError, match=message):
            begin(recipe)


def test_unchanged_ranking_files_are_not_read_twice(with_negatives, monkeypatch):
    recipe, files = with_negatives
    written(files)
    assert cells(prepare_data(recipe), "rankings of negatives")
    read, original = [], rankings.read_ranking
    monkeypatch.setattr(
        rankings, "read_ranking", lambda path, *rest: read.append(path.name) or original(path, *rest)
    )
    prepare.prepare(recipe, World())
    assert read == []
    os.utime(files[1], (time.time() - 30,) * 2)
    prepare.prepare(recipe, World())
    assert read == ["run.trec"]
