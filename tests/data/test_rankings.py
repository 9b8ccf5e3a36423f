import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import ranking_files as ranked

from pyserini_ance.data import rankings
from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.formats.training_files import text_id
from pyserini_ance.data.known_positives import PADDING
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.data.rankings import read_ranking

QUERIES = Texts(["1", "2"], {"text": ["which year", "who"]})
DOCUMENTS = Texts(["7", "8", "9", "again"], {"text": ["It was  1984.", "Aaron did.", "in 1985", "in 1985"]})
COLLECTION = Collection(DOCUMENTS, {}, left_out=frozenset({"void"}))
TREC = "2 Q0 8 1 3.5 t\n1 Q0 9 1 2 t\n1 Q0 7 2 1 t\n3 Q0 7 1 1 t\n"
TOP = "1\t9\twhich year\tin 1985\n2\t8\twho\tAaron did.\n3\t7\tother\tx\n1\t7\twhich year\tIt was  1984.\n"
TRIPLES = "1\t8\t9\n2\t7\t8\n1\t8\t7\n1\t7\t9\n3\t7\t1\n"
TEXTS = "which  year\tx\tin 1985\nwho\tx\tAaron did.\nother\tx\tunknown\nwhich year\tx\tIt was 1984.\n"
RANKS = "2\t8\t1\n1\t7\t2\n1\t9\t1\n"
THREE = "1 Q0 9 1 3 t\n1 Q0 7 2 2 t\n1 Q0 8 3 1 t\n"
LISTED_POSITIVES = [("run", THREE, [2.0, np.nan]), ("top1000", TOP, [-2.0, -1.0])]


def read(path: Path, text: str) -> dict[str, list[str]]:
    path.write_text(text)
    return {query: list(hits) for query, hits in ranked.read(path, QUERIES, DOCUMENTS).items()}


def listed(**negatives: list) -> str:
    """Lines of JSON, one record for each of QUERIES."""
    key, values = negatives.popitem()
    shapes = {
        "hard_negative_ctxs": ("positive_ctxs", lambda id: {"passage_id": id}, "question"),
        "negative_passages": ("positive_passages", lambda id: {"docid": id}, "query"),
        "neg": ("pos", lambda id: f"text {id}", "query"),
    }
    positives, passage, question = shapes[key]
    rest = {"answers": ["a"], positives: []}
    lists = [[passage(id) for id in ids] for ids in values]
    records = ({"query_id": n, question: "q", key: listed, **rest} for n, listed in enumerate(lists, 1))
    return "\n".join(map(json.dumps, records))


ORDERED = {"run.trec": TREC, "run.tsv": RANKS, "run.txt": RANKS.replace("\t", " "), "top1000.dev": TOP}
ORDERED |= {"qidpidtriples.tsv": TRIPLES, "triples.train.small.tsv": TEXTS}
ORDERED |= {"train.jsonl": listed(negative_passages=[["9", "7", "9"], ["8"]])}


@pytest.mark.parametrize("kind", ["neg", "hard_negative_ctxs"])
def test_questions_without_ids_are_those_of_the_same_text(tmp_path, kind, monkeypatch):
    """Whatever their place in the file; in the split's own file each record is its own query."""
    texts = ["text 7", "text 8"] if kind == "neg" else ["7", "8"]
    ids = [text_id(text) for text in texts] if kind == "neg" else texts
    monkeypatch.setitem(globals(), "DOCUMENTS", Texts(ids, {"text": texts}))
    records = [json.loads(line) for line in listed(**{kind: [["7"], ["8"], ["7"]]}).split("\n")]
    key = "query" if kind == "neg" else "question"
    for record, text in zip(records, ["nobody asks", "who ?", "which  year"], strict=True):
        record[key] = text
    assert read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, records))) == {"1": [ids[0]], "2": [ids[1]]}
    monkeypatch.setitem(globals(), "QUERIES", Texts(["0", "1", "2"], {"text": ["who?", "who?", "who?"]}))
    same = "\n".join(json.dumps({**record, key: "who??"}) for record in records)
    assert read(tmp_path / "a.jsonl", same) == {"0": [ids[0]], "1": [ids[1]], "2": [ids[0]]}


@pytest.mark.parametrize("name, text", ORDERED.items())
def test_every_form_gives_the_same_order(tmp_path, name, text):
    assert read(tmp_path / name, text) == {"1": ["9", "7"], "2": ["8"]}


def test_questions_without_ids_are_numbered(tmp_path):
    queries = Texts(["0", "1"], {"text": ["q", "q"]})
    (tmp_path / "train.json").write_text(listed(hard_negative_ctxs=[["9", "7"], []]))
    assert ranked.read(tmp_path / "train.json", queries) == {"0": {"9": -1.0, "7": -2.0}, "1": {}}
    (tmp_path / "train.jsonl").write_text(listed(neg=[["9", "7"], []]))
    found = ranked.read(tmp_path / "train.jsonl", queries)["0"]
    assert found == {text_id("text 9"): -1.0, text_id("text 7"): -2.0}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "1\t7\n", r"line 1: 2 columns in '1\\t7'; expected 6 columns .* or 4 .*"),
        ("a.tsv", "1\t7\t1\t31.25\n", r"line 1: 4 columns in '1\\t7\\t1\\t31.25'; expected 6 columns .* or"),
        ("a.tsv", RANKS + "1\t8\tx\n", "line 4: rank 'x'; expected ranks counted from 1"),
        ("a.tsv", RANKS + "1\t8\t1\n", "line 4: rank 1 again for query '1'; .* must have 'triples'"),
        ("a.tsv", "1\t8\t9\n1\t7\t8\n", "line 1: a file without any rank 1; .* must have 'triples'"),
        ("triples.tsv", TEXTS + "who\tx\tnowhere\n", "line 5: negative 'nowhere'"),
        ("a.jsonl", listed(neg=[[], []]).replace('"neg": []', '"neg": 8'), "line 1: neg 8; expected a list"),
    ],
)
def test_malformed_input_is_an_error(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=rf"{name}.*{message}"):
        read(tmp_path / name, text)


def test_texts_of_triples_need_a_field_of_texts(tmp_path):
    (tmp_path / "triples.tsv").write_text(TEXTS)
    with pytest.raises(ValueError, match="has texts, but documents have no field 'text'; pass a file with"):
        ranked.read(tmp_path / "triples.tsv", QUERIES, Texts(["7"], {"body": ["x"]}))


@pytest.mark.parametrize("name, text, positives", LISTED_POSITIVES)
def test_scores_of_positives_are_known_beyond_the_top_k(tmp_path, name, text, positives):
    """Document 7 is relevant to query 1, and document 8 to query 2."""
    (tmp_path / name).write_text(text)
    split = Split("train", QUERIES, Qrels.of([0, 1], [0, 1], [1, 1], 2))
    ranking = read_ranking(tmp_path / name, split, COLLECTION, top_k=1)
    assert ranking.rows[0].tolist() == [2] and ranking.rows.shape == (2, 1)
    np.testing.assert_array_equal(ranking.positives, positives)


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("run.trec", 5, TREC + "1 Q0 void 9 9 t\n"),
        ("top1000.dev", 5, TOP + "1\tvoid\twhich\t.\n"),
        ("train.jsonl", 1, listed(negative_passages=[["void", "9", "7", "9"], ["8"]])),
    ],
)
def test_documents_without_text_that_were_left_out_are_dropped(tmp_path, caplog, name, number, text):
    """They take no place among the top k; other unknown documents are named with their line."""
    split, path = Split("train", QUERIES, Qrels.of([0, 1], [0, 1], [1, 1], 2)), tmp_path / name
    path.write_text(text)
    assert read_ranking(path, split, COLLECTION, 3).rows.tolist() == [[2, 0, PADDING], [1, PADDING, PADDING]]
    assert caplog.messages == [f"skipped: 1 hits of documents without text in {path}"]
    ids = Texts([COLLECTION.documents.ids[2], QUERIES.ids[1]], QUERIES.columns)
    itself = replace(COLLECTION, splits={"train": replace(split, queries=ids)}, ignore_identical_ids=True)
    assert itself.own_documents(itself.split("train")).tolist() == [2, PADDING]
    path.write_text(text.replace("void", "nowhere"))
    with pytest.raises(ValueError, match=f"{name}, line {number}: document 'nowhere' for query '1', which"):
        read_ranking(path, split, COLLECTION, 3)


def all_forms(rng: np.random.Generator) -> dict[str, str]:
    """Files of every form by name, which rank some of the documents d0 to d19 for some of the queries.

    Queries are q0 to q8, and `else`, which is of no split; their lines are grouped or not.
    """
    asked = [*(f"q{i}" for i in rng.permutation(9)[:7]), "else"]
    pairs = [(query, document) for query in asked for document in rng.permutation(20)]
    chosen = rng.permutation(len(pairs))[:90]
    pairs = [pairs[i] for i in (np.sort(chosen) if rng.random() < 0.5 else chosen)]
    ranks = [sum(q == query for q, _ in pairs[: n + 1]) for n, (query, _) in enumerate(pairs)]
    rest = {"query": "q", "positive_passages": []}
    records = [{"query_id": q, "negative_passages": [{"docid": f"d{d}"}], **rest} for q, d in pairs]
    ranked = list(zip(pairs, ranks, strict=True))
    return {
        "run.trec": "".join(f"{q} Q0 d{d} {rank} {rng.integers(3)} t\n" for (q, d), rank in ranked),
        "run.tsv": "".join(f"{q}\td{d}\t{rank}\n" for (q, d), rank in ranked),
        "top1000.dev": "".join(f"{q}\td{d}\tquestion\ttext\n" for q, d in pairs),
        "qidpidtriples.tsv": "".join(f"{q}\td0\td{d}\n" for q, d in pairs),
        "triples.tsv": "".join(f"question {q}\tx\ttext d{d}\n" for q, d in pairs),
        "train.jsonl": "".join(f"{json.dumps(one)}\n" for one in records),
    }


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize("seed", range(4))
def test_a_share_of_the_queries_is_read_as_all_are(tmp_path, monkeypatch, seed, block):
    """q8 has no judgment: it is in no share. Blocks of hits are looked up together."""
    rng = np.random.default_rng(seed)
    queries = Texts([f"q{i}" for i in range(9)], {"text": [f"question q{i}" for i in range(9)]})
    documents = Texts([f"d{i}" for i in range(20)], {"text": [f"text d{i}" for i in range(20)]})
    split = Split("train", queries, Qrels.of(range(8), rng.integers(0, 20, 8), [1] * 8, 9))
    for name, text in all_forms(rng).items():
        path = tmp_path / name
        path.write_text(text)
        whole = read_ranking(path, split, Collection(documents, {}), 3)
        monkeypatch.setattr(rankings, "HITS_PER_BLOCK", block)
        for index, count in [(0, 1), (0, 2), (1, 2), *((index, 8) for index in range(8))]:
            anchors = replace(AnchorSet(split, "query", 20), share=(index, count)).anchors
            found = read_ranking(path, split, Collection(documents, {}), 3, anchors)
            for array in ("rows", "scores", "positives"):
                expected = getattr(whole, array)[anchors]
                np.testing.assert_array_equal(getattr(found, array), expected, err_msg=name)
        monkeypatch.undo()


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
@pytest.mark.parametrize("levels", [3, 10_000])
def test_blocks_agree_with_sorting_all_hits_at_once(tmp_path, monkeypatch, block, levels):
    monkeypatch.setattr(rankings, "HITS_PER_BLOCK", block)
    rng = random.Random(levels)
    pairs = [(query, document) for query in "acd" for document in range(40)]
    hits = [(*pair, rng.randrange(levels)) for pair in rng.sample(pairs, len(pairs))]
    (tmp_path / "run").write_text("".join(f"{q} Q0 {d} 1 {score} t\n" for q, d, score in hits))
    found = ranked.read(tmp_path / "run", Texts([*"abcd"], {"text": [*"abcd"]}), depth=3)
    for query in "abcd":  # a stable sort: equal scores are in the order of the file
        best = sorted((hit for hit in hits if hit[0] == query), key=lambda hit: -hit[2])[:3]
        assert list(found[query].items()) == [(str(document), score) for _, document, score in best]


@pytest.mark.parametrize("block", [1, 1000])
def test_the_earliest_repeat_is_reported(tmp_path, monkeypatch, block):
    monkeypatch.setattr(rankings, "HITS_PER_BLOCK", block)
    hits = ["1 Q0 7 1 1 t", "2 Q0 7 1 1 t", "1 Q0 8 1 2 t", "2 Q0 9 1 3 t", "1 Q0 7 1 9 t", "2 Q0 7 1 4 t"]
    (tmp_path / "run").write_text("\n".join(hits))
    with pytest.raises(ValueError, match="run, line 5: document '7' again for query '1'"):
        ranked.read(tmp_path / "run", QUERIES, DOCUMENTS)
