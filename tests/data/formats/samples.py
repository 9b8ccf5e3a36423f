"""Samples of every format: a few lines written here, and a few dozen cut from real files."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pyserini_ance.data.formats.lines import find_file

LINES = 24


class Sample(NamedTuple):
    kind: str
    files: dict[str, bytes]


CORPUS = r"""{"_id": "7", "title": "Seven", "text": "A \"number\": na\u00efve \ud83d\ude81."}
{"_id": "d2", "title": null, "text": "Two, {not} [one]."}
{"_id": 3, "title": "Only a title", "metadata": {"url": ["x"]}}
"""
QUERIES = """{"_id": "q1", "text": "which  number?", "answers": ["7", "seven é"]}\n{"_id": "q2", "text": "two"}
{"_id": "q3", "text": "unjudged"}\n"""
JUDGED = "query-id\tcorpus-id\tscore\nq2\td2\t2\nq1\t7\t1\nq1\t3\t0\n"
DOCS = 'D1\thttp://a.org/\tA title\t"Body of ""A"" "\nD2\thttp://b.org/\t\tÜber B.\nD3\thttp://c.org/\t.\t\n'
PASSAGES = 'id\ttext\ttitle\n1\t"Aaron ( or ; ""Ahärôn"") is\ta prophet."\tAaron\n2\tThe year 1984.\t"""1984"""\n3\tNo title.\t\n'
TEST = """which year\t['1984', "it's 1984"]\n"who is ""Ahärôn""?"\t"['Aaron', ""Moses' brother""]"
{"question": "who", "answer": ["Aa?ron"]}\n"""
TRAIN = """[{"question": "which year", "answers": ["1984"], "positive_ctxs": [{"passage_id": "2", "text": "The year"}, {"passage_id": "1"}],
 "negative_ctxs": [], "hard_negative_ctxs": [{"passage_id": "3", "score": 1.5}, {"passage_id": "1"}]},
{"question": "who", "answers": ["Aaron"], "positive_ctxs": [{"psg_id": 1}], "hard_negative_ctxs": [{"psg_id": "2"}, {"psg_id": "2"}]}]\n"""
TREC_QRELS = "1 0 7 2\n1\tQ0\t421\t0\n2 0 007 3\n2 0 421 -1\n"
RUN = "1 Q0 7 1 15.7806 bm25\n1 Q0 421 2 -1.5e-3 bm25\n2\tQ0\t007\t1\t.5\tbm25\n"


def _sample(kind: str, files: dict[str, str]) -> Sample:
    return Sample(kind, {name: text.encode() for name, text in files.items()})


WRITTEN = {
    "beir": _sample("beir", {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": JUDGED}),
    "msmarco_doc": _sample("msmarco_doc", {
        "docs.tsv": DOCS, "queries.tsv": "10\twhat is b\n2\t which a\n", "qrels.tsv": "10\t0\tD2\t1\n2 Q0 D1 3\n2 0 D3 0\n",
    }),
    "msmarco_passage": _sample("msmarco_passage", {
        "collection.tsv": '421\tThe  presence.\n007\tA "spy".\n7\tA number – 7.\n',
        "queries.tsv": "2\twhich spy\n1\tnumber\n", "qrels.tsv": TREC_QRELS,
    }),
    "pyserini_jsonl": _sample("pyserini_jsonl", {
        "corpus.jsonl": '{"id": "007", "contents": "A spy.\\nIn two lines."}\n{"docid": 7, "title": "Seven", "text": "A number."}\n',
        "topics.jsonl": '{"id": "01", "title": "which  spy", "answers": ["Bond"]}\n{"id": 1, "title": "number"}\n',
        "qrels.txt": "01 Q0 007 1\n1\t0\t7\t1\n",
    }),
    "dpr": _sample("dpr", {"psgs.tsv": PASSAGES, "train.json": TRAIN, "test.qa.csv": TEST, "qrels.txt": "1 0 1 1\n0 0 2 1\n2 0 1 1\n"}),
    "hard_negatives": _sample("hard_negatives", {"train.json": TRAIN}),
    "run": _sample("run", {"run.trec": RUN}),
    "qrels": _sample("qrels", {"qrels.txt": TREC_QRELS}),
}  # fmt: skip


def _lines_of(path: Path) -> list[bytes]:
    found = find_file(path, "sample")
    raw = found.read_bytes()
    return (gzip.decompress(raw) if found.suffix == ".gz" else raw).splitlines(keepends=True)


def _json_id(line: bytes) -> str:
    return str(json.loads(line)["_id"])


def _tsv_id(line: bytes) -> str:
    return line.split(b"\t")[0].decode()


def _cut(documents: list[bytes], queries: list[bytes], qrels: list[bytes], id_of: Callable[[bytes], str], document: int) -> list[bytes]:
    """A few judgments, evenly drawn, of documents that are there, and what they name; `document` is the column of its id."""
    ids, asked = {id_of(line) for line in documents}, {id_of(line) for line in queries}
    known = [line for line in qrels if line.split()[0].decode() in asked and line.split()[document].decode() in ids]
    drawn = known[:: -(-len(known) // LINES)]
    named = {line.split()[0].decode() for line in drawn}, {line.split()[document].decode() for line in drawn}
    return [b"".join(part) for part in ([d for d in documents if id_of(d) in named[1]], [q for q in queries if id_of(q) in named[0]], drawn)]


def _beir(folder: Path) -> Sample:
    header, *qrels = _lines_of(folder / "qrels" / ("test.tsv" if "nfcorpus" in folder.name else "dev.tsv"))
    parts = _cut(_lines_of(folder / "corpus.jsonl"), _lines_of(folder / "queries.jsonl"), qrels, _json_id, 1)
    return Sample("beir", {"corpus.jsonl": parts[0], "queries.jsonl": parts[1], "qrels/test.tsv": header + parts[2]})


def _msmarco_doc(folder: Path) -> Sample:
    names = ("docs", "doctrain-queries", "doctrain-qrels")
    parts = _cut(*(_lines_of(folder / f"msmarco-{name}.tsv") for name in names), _tsv_id, 2)
    return Sample("msmarco_doc", dict(zip(("docs.tsv", "queries.tsv", "qrels.tsv"), parts, strict=True)))


def _msmarco_passage(folder: Path) -> Sample:
    names = ("collection.tsv", "queries.dl19.tsv", "qrels.dl19-passage.txt")
    parts = _cut(*(_lines_of(folder / name) for name in names), _tsv_id, 2)
    return Sample("msmarco_passage", dict(zip(("collection.tsv", "queries.tsv", "qrels.tsv"), parts, strict=True)))


def _pyserini_jsonl(shared: Path) -> Sample:
    """Real passages and questions, brought together by their order."""
    corpus = _lines_of(shared / "dpr" / "psgs_w100_pyserini_100.jsonl")[:LINES]
    asked = [json.loads(line) for line in _lines_of(shared / "nq-oracle" / "nq-open-oracle.jsonl")[:LINES]]
    topics = [json.dumps({"id": place, "title": one["question"], "answers": one["answers"]}) + "\n" for place, one in enumerate(asked)]
    qrels = [f"{place} Q0 {json.loads(line)['id']} 1\n" for place, line in enumerate(corpus)]
    files = {"corpus.jsonl": b"".join(corpus), "topics.jsonl": "".join(topics).encode(), "qrels.txt": "".join(qrels).encode()}
    return Sample("pyserini_jsonl", files)


def _dpr(shared: Path, questions: str) -> Sample:
    records = json.loads(b"".join(_lines_of(shared / "dpr" / "nq-dev.sample.json")))
    for record in records:
        for key in ("positive_ctxs", "negative_ctxs", "hard_negative_ctxs"):
            record[key] = record[key][:3]
    contexts = {c["passage_id"]: c for record in records for key in ("positive_ctxs", "hard_negative_ctxs") for c in record[key]}
    table = io.StringIO()
    csv.writer(table, delimiter="\t", lineterminator="\n").writerows([id, c["text"], c["title"]] for id, c in contexts.items())
    passages = b"".join(_lines_of(shared / "dpr" / "psgs_w100.first100.tsv")[:9]) + table.getvalue().encode()
    asked = _lines_of(shared / questions)[:LINES]
    qrels = "".join(f"{place} 0 {1 + place % 8} 1\n" for place in range(len(asked)))
    train = json.dumps(records, indent=4).encode()
    return Sample("dpr", {"psgs.tsv": passages, "train.json": train, "test.qa.csv": b"".join(asked), "qrels.txt": qrels.encode()})


REAL: dict[str, Callable[[Path], Sample]] = {
    "nfcorpus": lambda shared: _beir(shared / "nfcorpus"),
    "squad": lambda shared: _beir(shared / "squad-beir"),
    "msmarco-doc": lambda shared: _msmarco_doc(shared / "msmarco-doc"),
    "dl19-pool": lambda shared: _msmarco_passage(shared / "msmarco-passage-dl19-pool"),
    "psgs-jsonl": _pyserini_jsonl,
    "nq": lambda shared: _dpr(shared, "openqa-topics/topics.dpr.nq.test.txt"),
    "trivia": lambda shared: _dpr(shared, "openqa-topics/topics.dpr.trivia.test.txt"),
    "curated": lambda shared: _dpr(shared, "openqa-topics/topics.dpr.curated.test.txt"),
    "nq-hard-negatives": lambda shared: Sample(
        "hard_negatives", {"train.json": _dpr(shared, "openqa-topics/topics.dpr.nq.test.txt").files["train.json"]}
    ),
    "dl19-bm25": lambda shared: Sample(
        "run", {"run.trec": b"".join(_lines_of(shared / "msmarco-passage-dl19-pool" / "runs" / "bm25.dl19.top100.trec")[:: 4300 // LINES])}
    ),
    "dl20-qrels": lambda shared: Sample("qrels", {"qrels.txt": b"".join(_lines_of(shared / "msmarco-topics-qrels" / "qrels.dl20-doc.txt")[::400])}),
}
