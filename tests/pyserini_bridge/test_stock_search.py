"""Pyserini's own encoders and search, unmodified, against ours: the same vectors, the same ranking."""

import json
import shlex
import subprocess

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from pyserini_ance.data.passages import Passages
from pyserini_ance.encoders.dpr import to_dpr
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.pyserini_bridge.encoder_classes import QueryEncoder
from pyserini_ance.pyserini_bridge.export import write_topics
from pyserini_ance.vectors.search import search

LONG = "The Retriever Reads LONG Texts, such as This One; "
QUERIES = [("007", "Which Retriever?"), ("7", "the the THE"), ("q3", LONG * 5), ("q4", "A tab\tinside")]
TEXTS = [f"{LONG * (i % 7)}{'The ' * (i % 3)}Text of Number {i * i * 7919}." for i in range(30)]
DOCUMENTS = [(f"d{i}", f"Title {chr(65 + i)}", text) for i, text in enumerate(TEXTS)]
HITS = 10
CHOICES = [("per_passage", False), ("per_document", True)]  # special tokens, empty passages

IN_ONE_PROCESS = """
import json, sys
from pathlib import Path
import numpy as np
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.pipeline.corpus_encoding import VectorFormat, encode_corpus
from pyserini_ance.pipeline.model_export import Proof
from pyserini_ance.pyserini_bridge.export import search_command, write_topics
from pyserini_ance.pyserini_bridge.vector_files import write_index
from pyserini_ance.pyserini_bridge.launcher import run_module
from pyserini_ance.pyserini_bridge.encoder_classes import register

stock, lowered, auto, pair, dpr = map(Path, sys.argv[1:6])
queries, documents, in_passages = json.loads(sys.stdin.read())
in_passages = list(map(Path, in_passages))
ids, titles, texts = zip(*documents)

# our export, torch and faiss at work before Java starts
flags = []
for folder in (stock, lowered, auto, pair, dpr):
    records = [{"title": title, "text": text} for title, text in zip(titles, texts)]
    write_index(load_encoder(folder / "model").encode(records, "document"), ids, folder / "index", {})
    topics = write_topics([tuple(query) for query in queries], folder)
    given = {"query": [{"text": text.strip()} for _, text in queries], "document": records}
    flags.append(Proof(folder / "model", given).of_export(folder / "model")["queries"])
    command = search_command(topics, folder / "index", folder / "run.pyserini.txt", flags[-1], 100)
    (folder / "command").write_text(command)
how = VectorFormat(), "fp32", 4096
encode_corpus(lowered / "corpus.jsonl", dpr / "model", dpr / "again", *how, dpr / "scratch", World())
for folder in in_passages:
    corpus, scratch = lowered / "corpus.jsonl", folder / "scratch"
    encode_corpus(corpus, folder / "model", folder / "index", *how, scratch, World())
    write_topics([tuple(query) for query in queries], folder)

register()
from pyserini.encode import AnceDocumentEncoder, AnceQueryEncoder
encoder = AnceQueryEncoder(str(stock / "model"))
np.save(stock / "queries.npy", [encoder.encode(text) for _, text in queries])
encoder = AnceDocumentEncoder(str(stock / "model"), device="cpu")
np.save(stock / "documents.npy", encoder.encode(texts, titles, max_length=256))
from pyserini.encode import DprDocumentEncoder, DprQueryEncoder
encoder = DprQueryEncoder(str(dpr / "model/queries"))
np.save(dpr / "queries.npy", [encoder.encode(text) for _, text in queries])
encoder = DprDocumentEncoder(str(dpr / "model/documents"), device="cpu")
np.save(dpr / "documents.npy", encoder.encode(texts, titles, max_length=256))

def search(folder, *flags, model="model"):
    files = ["--topics", str(folder / "topics.test.json"), "--output", str(folder / "run.pyserini.txt")]
    encoder = ["--encoder", str(folder / model), "--index", str(folder / "index")]
    run_module("pyserini.search.faiss", [*encoder, *files, "--hits", "10", *flags])

search(lowered, "--batch-size", "3")  # our class is added, since it is our folder
search(auto, "--encoder-class", "auto", *flags[2][4:])
search(pair, "--encoder-class", "auto", *flags[3][4:], model="model/queries")
search(dpr, "--encoder-class", "dpr", *flags[4][4:], model="model/queries")
for folder in in_passages:
    search(folder, "--hits", "30", "--max-passage", "--max-passage-hits", "10")

ours = ["--encoder", str(lowered / "model"), "--encoder-class", "pyserini_ance"]
fields = ["--fields", "title", "text"]
run_module("pyserini.encode", ["input", "--corpus", str(lowered / "corpus.jsonl"), *fields,
    "output", "--embeddings", str(lowered / "again"), "--to-faiss",
    "encoder", *ours, *fields, "--batch-size", "7", "--device", "cpu"])
import faiss
def indexed(folder):
    index = faiss.read_index(str(folder / "index"))
    return index.reconstruct_n(0, index.ntotal)
np.save(lowered / "encoded.npy", [indexed(lowered / name) for name in ("index", "again")])
np.save(dpr / "encoded.npy", indexed(dpr / "again"))
for folder in in_passages:
    np.save(folder / "encoded.npy", indexed(folder / "index"))

from pyserini.query_iterator import DefaultQueryIterator
topics = [list(DefaultQueryIterator.from_topics(path)) for path in sys.argv[6:]]
(stock / "read.json").write_text(json.dumps(topics))
"""
TOPICS = [
    [("1", "two  blanks, Ünïcode 東京 😀"), ("12", " outer blanks ")],
    [("007", "x"), ("7", "y\u00a0\u2028z"), ("a", "a tab\tand\nlines"), ("²", "x"), ("٣", "y")],
]


@pytest.fixture(scope="module")
def topics_files(tmp_path_factory):
    return [write_topics(queries, tmp_path_factory.mktemp("topics")) for queries in TOPICS]


@pytest.fixture(scope="module")
def in_passages(checkpoint, tmp_path_factory):
    """Folders of encoders that read documents in up to three passages of 40 tokens, by their choices."""
    folders = {}
    for around, empty in CHOICES:
        document = {"length_tokens": 40, "passages": 3, "special_tokens": around, "pad_passages": empty}
        folders[around, empty] = tmp_path_factory.mktemp("passages")
        made = checkpoint(projection=768, layer_norm=True, tokenization={"document": document})
        made.rename(folders[around, empty] / "model")
    return folders


@pytest.fixture(scope="module")
def runs(checkpoint, bert, child, topics_files, in_passages, tmp_path_factory):
    """Run folders, exported, and searched by Pyserini: `ance` and `auto` reproduce the first and the next,
    nothing the second.

    The last two have two towers, of RoBERTa, and of BERT as for OpenQA, which `dpr` reproduces.
    """
    folders = [tmp_path_factory.mktemp(name) for name in ("stock", "lowered", "auto", "pair", "openqa")]
    documents = {"length_tokens": 256, "template": "{title} [SEP] {text}"}
    openqa = {"query": {"length_tokens": 256}, "document": documents}
    mean = {"pooling": "mean", "normalize": True}
    models = [
        checkpoint(projection=768, layer_norm=True),
        checkpoint(projection=768, layer_norm=True, tokenization={"lowercase": True}),
        checkpoint(**mean, tokenization={"query": {"length_tokens": 256}}),
        checkpoint(tied=False, tokenization={"query": {"length_tokens": 48}}),
        checkpoint(model=str(bert), tied=False, tokenization=openqa),
    ]
    for pair in models[3:]:
        weights = pair / "documents" / "model.safetensors"
        smaller = {name: value * 0.9 for name, value in load_file(weights).items()}
        save_file(smaller, weights, {"format": "pt"})
        to_dpr(pair)
    for folder, model in zip(folders, models, strict=True):
        model.rename(folder / "model")
        records = [{"id": id, "title": title, "text": text} for id, title, text in DOCUMENTS]
        (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    given = json.dumps([QUERIES, DOCUMENTS, list(map(str, in_passages.values()))])
    child(IN_ONE_PROCESS, *folders, *topics_files, input=given)
    return folders


@pytest.fixture(scope="module")
def vectors(runs):
    """For each run folder our vectors: queries (4, D) and documents (30, D)."""
    queries = [{"text": text.strip()} for _, text in QUERIES]  # as topics are read
    documents = [{"title": title, "text": text} for _, title, text in DOCUMENTS]
    encoders = [load_encoder(folder / "model") for folder in runs]
    return [(e.encode(queries, "query"), e.encode(documents, "document")) for e in encoders]


def test_stock_ance_encoders_give_our_vectors(runs, vectors):
    queries, documents = vectors[0]
    np.testing.assert_allclose(np.load(runs[0] / "queries.npy"), queries, atol=1e-5)
    np.testing.assert_allclose(np.load(runs[0] / "documents.npy"), documents, atol=1e-5)


def test_the_printed_command_ranks_as_we_do(runs, vectors, forked_python):
    _, *arguments = shlex.split((runs[0] / "command").read_text())
    subprocess.run([*forked_python, *arguments], check=True, capture_output=True, timeout=600)
    assert_same_ranking(runs[0] / "run.pyserini.txt", *vectors[0])


def test_stock_search_ranks_as_we_do_with_the_registered_class_or_auto(runs, vectors):
    assert "pyserini_ance search faiss" in (runs[1] / "command").read_text()
    for number in (1, 2):
        assert_same_ranking(runs[number] / "run.pyserini.txt", *vectors[number])


def test_stock_auto_searches_with_the_query_tower_over_the_document_towers_index(runs, vectors):
    command = (runs[3] / "command").read_text()
    assert "--encoder-class auto" in command and f"--encoder {runs[3]}/model/queries" in command
    assert_same_ranking(runs[3] / "run.pyserini.txt", *vectors[3])
    other = load_encoder(runs[3] / "model/documents").encode([{"text": QUERIES[0][1]}], "query")
    assert not np.allclose(vectors[3][0][0], other[0], atol=1e-2)


def test_stock_dpr_and_our_encode_load_the_pair_give_our_vectors_and_rank_as_we_do(runs, vectors):
    """The longest texts, of 272 tokens, are cut; titles have 6."""
    command = (runs[4] / "command").read_text()
    assert "--encoder-class dpr" in command and f"--encoder {runs[4]}/model/queries" in command
    queries, documents = vectors[4]
    np.testing.assert_allclose(np.load(runs[4] / "queries.npy"), queries, atol=1e-5)
    for name in ("documents", "encoded"):
        np.testing.assert_allclose(np.load(runs[4] / f"{name}.npy"), documents, atol=1e-5)
    assert_same_ranking(runs[4] / "run.pyserini.txt", queries, documents)


@pytest.mark.parametrize("choice", CHOICES)
def test_stock_search_takes_the_maximum_over_passages_as_we_do(runs, in_passages, vectors, choice):
    """Whatever is indexed of a document. Queries are encoded one by one, as the search does: in a batch their
    rounding differs (`vectors`), by more than the steps that are allowed here.
    """
    folder = in_passages[choice]
    encoder = QueryEncoder(str(folder / "model"))
    queries = np.stack([encoder.encode(text) for _, text in QUERIES])
    np.testing.assert_allclose(queries, vectors[0][0], atol=1e-5)  # the first run has the same weights
    ids, indexed = (folder / "index" / "docid").read_text().split(), np.load(folder / "encoded.npy")
    counts = [sum(id.startswith(f"{document}#") for id in ids) for document, _, _ in DOCUMENTS]
    assert set(counts) == ({3} if choice[1] else {1, 2, 3}) and len(ids) == len(indexed) == sum(counts)
    passages = Passages.of_counts(counts)
    scores, rows = passages.search(lambda asked, k: search(asked, indexed, k), queries, HITS)
    hits = [line.split() for line in (folder / "run.pyserini.txt").read_text().splitlines()]
    for place, (qid, _) in enumerate(QUERIES):
        theirs = [(hit[2], float(hit[4])) for hit in hits if hit[0] == qid]
        assert_same_scores([score for _, score in theirs], scores[place])
        each = [indexed[slice(*passages.offsets[row : row + 2])] @ queries[place] for row in range(30)]
        best = {DOCUMENTS[row][0]: float(each[row].max()) for row in range(30)}
        assert len(dict(theirs)) == HITS  # empty passages are all alike, so that documents may tie
        assert_same_scores([best[document] for document, _ in theirs], scores[place])
        assert_same_scores([best[DOCUMENTS[row][0]] for row in rows[place]], scores[place])


def test_stock_encode_writes_our_vectors_with_the_registered_class(runs, vectors):
    exported, encoded = np.load(runs[1] / "encoded.npy")
    np.testing.assert_allclose(exported, vectors[1][1], atol=1e-6)
    np.testing.assert_allclose(encoded, vectors[1][1], atol=1e-5)


def test_pyserini_reads_the_topics_that_were_written(runs, topics_files):
    read = json.loads((runs[0] / "read.json").read_text())
    for queries, topics in zip(TOPICS, read, strict=True):
        written = sorted((id, text.strip()) for id, text in queries)
        assert sorted((str(id), text) for id, text in topics) == written


def assert_same_ranking(path, queries, documents):
    scores = queries @ documents.T
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :HITS]
    hits = [line.split() for line in path.read_text().splitlines()]
    for (qid, _), own, best in zip(QUERIES, scores, rows, strict=True):
        theirs = [(hit[2], float(hit[4])) for hit in hits if hit[0] == qid]
        assert [docid for docid, _ in theirs[:HITS]] == [DOCUMENTS[row][0] for row in best]
        assert_same_scores([score for _, score in theirs[:HITS]], own[best])


def assert_same_scores(found, expected) -> None:
    """To 1e-4, or to 8 steps of float32 where these are larger: ANCE's scores are near 700, with steps of
    6e-5, and Faiss adds up the products in another order."""
    found, expected = np.asarray(found, float), np.asarray(expected, np.float32)
    assert (np.abs(found - expected) <= np.maximum(1e-4, 8 * np.spacing(np.abs(expected)))).all()
