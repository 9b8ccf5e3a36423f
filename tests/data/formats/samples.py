"""Samples of every format: a few lines written here, and a few dozen cut from real files."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet

from pyserini_ance.data.formats.text_files import find_file

LINES = 24


class Sample(NamedTuple):
    """The files of a sample; those in `kept` are never damaged."""

    kind: str
    files: dict[str, bytes]
    undamaged: dict[str, bytes] = {}


CORPUS = r"""{"_id": "7", "title": "Seven", "text": "A \"number\": na\u00efve \ud83d\ude81."}
{"_id": "d2", "title": null, "text": "Two, {not} [one]."}
{"_id": 3, "title": "Only a title", "metadata": {"url": ["x"]}}
"""
QUERIES = """{"_id": "q1", "text": "which  number?", "answers": ["7", "seven é"]}
{"_id": "q2", "text": "two"}
{"_id": "q3", "text": "unjudged"}
"""
JUDGED = "query-id\tcorpus-id\tscore\nq2\td2\t2\nq1\t7\t1\nq1\t3\t0\n"
DOCS = 'D1\thttp://a.org/\tA title\t"Body of ""A"" "\nD2\thttp://b.org/\t\tÜber B.\nD3\thttp://c.org/\t.\t\n'
PASSAGES = (
    'id\ttext\ttitle\n1\t"Aaron ( or ; ""Ahärôn"") is\ta prophet."\tAaron\n2\tThe year 1984.\t"""1984"""\n'
    "3\tNo title.\t\n"
)
TEST = """which year\t['1984', "it's 1984"]\n"who is ""Ahärôn""?"\t"['Aaron', ""Moses' brother""]"
{"question": "who", "answer": ["Aa?ron"]}\n"""
TRAIN = """[{"question": "which year", "answers": ["1984"], "positive_ctxs": [{"passage_id": "2", "text": "The year"}, {"passage_id": "1"}],
 "negative_ctxs": [], "hard_negative_ctxs": [{"passage_id": "3", "score": 1.5}, {"passage_id": "1"}]},
{"question": "who", "answers": ["Aaron"], "positive_ctxs": [{"psg_id": 1}], "hard_negative_ctxs": [{"psg_id": "2"}, {"psg_id": "2"}]}]\n"""  # noqa: E501  the layout of the file
TREC_QRELS = "1 0 7 2\n1\tQ0\t421\t0\n2 0 007 3\n2 0 421 -1\n"
RUN = "1 Q0 7 1 15.7806 bm25\n1 Q0 421 2 -1.5e-3 bm25\n2\tQ0\t007\t1\t.5\tbm25\n"
LISTED = """{"query_id": "q7", "query": "which  year", "answers": ["1984"], "positive_passages": [{"docid": "d2", "title": "T", "text": "é"},
 {"docid": 1, "text": "one"}], "negative_passages": [{"docid": "d3", "text": "three"}, {"docid": "d2", "title": "T", "text": "é"}]}
{"query_id": 8, "query": "who", "positive_passages": [{"docid": "1", "title": null, "text": "one"}], "negative_passages": []}\n""".replace(  # noqa: E501  the layout of the file
    ",\n", ","
)
DEV = (
    '[{"query_id": "9", "query": "where", '
    '"positive_passages": [{"docid": "d4", "title": "", "text": "four"}]}]\n'
)
FLAG = """{"query": "which\\tyear", "pos": ["It was 1984.", "1984"], "neg": ["1985", "1984"], "neg_scores": [1, 2]}
{"query": "none", "pos": ["1985"], "neg": ["A \\"quoted\\" \\ud83d\\ude81."]}\n"""  # noqa: E501  the layout of the file
POOL = '{"text": "other"}\n{"text": "1985"}\n{"text": "1984"}\n{"text": "other"}\n{"text": "It was 1984."}\n'
CSV = '_id,text,more\nq1,"which, ""number"" ?",\n007,"two\nlines",x\n7,NA,2020-01-01\n'
TOP = (
    "1\t9\twhich year\tin 1985\n2\t8\twho\tAaron did.\n3\t7\tother\tIt was  1984.\n"
    "1\t7\twhich year\tIt was  1984.\n"
)
TRIPLES = "1\t8\t9\n2\t7\t8\n1\t8\t7\n1\t7\t9\n3\t7\t1\n"
TEXTS = (
    "which  year\tAaron did.\tin 1985\nwho\tx\tAaron did.\nother\tx\tunknown\nwhich year\tx\tIt was 1984.\n"
)
RANKS = "2\t8\t1\n1\t7\t2\n1 9 1\n3\t7\t001\n"
KNOWN = {
    "queries": [("1", "which year"), ("2", "who")],
    "documents": [("7", "It was  1984."), ("8", "Aaron did."), ("9", "in 1985"), ("10", "in 1985")],
}
PLACES = [
    ("0", "which year"),
    ("1", "who"),
    ("q7", "which year"),
    ("8", "who"),
]  # questions without ids go by their place


def _sample(kind: str, files: dict[str, str]) -> Sample:
    return Sample(kind, {name: text.encode() for name, text in files.items()})


def _negatives(name: str, text: str, **known: list) -> Sample:
    return Sample("negatives", {name: text.encode()}, {"known.json": json.dumps(KNOWN | known).encode()})


def _parquet(rows: list[dict]) -> bytes:
    table = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), table, compression="none")
    return table.getvalue()


GRADES = [("q1", "7", 2.0), ("007", "d2", 1.0), ("q1", "3", 0.0), ("7", "3", 1.0)]


WRITTEN = {
    "beir": _sample("beir", {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": JUDGED}),
    "msmarco_doc": _sample(
        "msmarco_doc",
        {
            "docs.tsv": DOCS,
            "queries.tsv": "10\twhat is b\n2\t which a\n",
            "qrels.tsv": "10\t0\tD2\t1\n2 Q0 D1 3\n2 0 D3 0\n",
        },
    ),
    "msmarco_docs_lookup": Sample(
        "msmarco_docs_lookup",
        {"lookup.tsv": b"D3\t9\t69\nD1\t0\t0\nD2\t7\t42\n"},
        {
            "docs.tsv": DOCS.encode(),
            "queries.tsv": b"10\twhat is b\n2\twhich a\n",
            "qrels.tsv": b"10\t0\tD2\t1\n2 Q0 D1 3\n",
        },
    ),
    "msmarco_passage": _sample(
        "msmarco_passage",
        {
            "collection.tsv": '421\tThe  presence.\n007\tA "spy".\n7\tA number \u2013 7.\n',
            "queries.tsv": "2\twhich spy\n1\tnumber\n",
            "qrels.tsv": TREC_QRELS,
        },
    ),
    "pyserini_jsonl": _sample(
        "pyserini_jsonl",
        {
            "corpus.jsonl": '{"id": "007", "contents": "A spy.\\nIn two lines."}\n'
            '{"docid": 7, "title": "Seven", "text": "A number."}\n',
            "topics.jsonl": '{"id": "01", "title": "which  spy", "answers": ["Bond"]}\n'
            '{"id": 1, "title": "number"}\n',
            "qrels.txt": "01 Q0 007 1\n1\t0\t7\t1\n",
        },
    ),
    "dpr": _sample(
        "dpr",
        {
            "psgs.tsv": PASSAGES,
            "train.json": TRAIN,
            "test.qa.csv": TEST,
            "qrels.txt": "1 0 1 1\n0 0 2 1\n2 0 1 1\n",
        },
    ),
    "tevatron": _sample("tevatron", {"train.jsonl": LISTED, "dev.jsonl": DEV}),
    "flagembedding": _sample("flagembedding", {"train.jsonl": FLAG, "pool.jsonl": POOL}),
    "datasets": Sample(
        "datasets",
        {
            "docs.jsonl": CORPUS.encode(),
            "queries.csv": CSV.encode(),
            "qrels.parquet": _parquet(
                [dict(zip(("query-id", "corpus-id", "score"), row, strict=True)) for row in GRADES]
            ),
        },
    ),
    "hard_negatives": _negatives("train.json", TRAIN, queries=PLACES),
    "negative_passages": _negatives("train.jsonl", LISTED, queries=PLACES),
    "neg": _negatives("train.jsonl", FLAG, queries=PLACES),
    "top1000": _negatives("top1000.dev", TOP),
    "qidpidtriples": _negatives("qidpidtriples.train.full.2.tsv", TRIPLES),
    "triples": _negatives("triples.train.small.tsv", TEXTS),
    "ranks": _negatives("run.tsv", RANKS),
    "run": _sample("run", {"run.trec": RUN}),
    "qrels": _sample("qrels", {"qrels.txt": TREC_QRELS}),
}


def _lines_of(path: Path) -> list[bytes]:
    result = find_file(path, "sample")
    raw = result.read_bytes()
    return (gzip.decompress(raw) if result.suffix == ".gz" else raw).splitlines(keepends=True)


def _json_id(line: bytes) -> str:
    return str(json.loads(line)["_id"])


def _tsv_id(line: bytes) -> str:
    return line.split(b"\t")[0].decode()


def _cut(
    documents: list[bytes],
    queries: list[bytes],
    qrels: list[bytes],
    id_of: Callable[[bytes], str],
    document: int,
) -> list[bytes]:
    """A few evenly drawn judgments of existing documents, with their queries and documents.

    `document` is the column of the document id.
    """
    ids, selected = {id_of(line) for line in documents}, {id_of(line) for line in queries}
    known = [
        line
        for line in qrels
        if line.split()[0].decode() in selected and line.split()[document].decode() in ids
    ]
    drawn = known[:: -(-len(known) // LINES)]
    named = {line.split()[0].decode() for line in drawn}, {line.split()[document].decode() for line in drawn}
    return [
        b"".join(part)
        for part in (
            [d for d in documents if id_of(d) in named[1]],
            [q for q in queries if id_of(q) in named[0]],
            drawn,
        )
    ]


def _beir(folder: Path) -> Sample:
    header, *qrels = _lines_of(folder / "qrels" / ("test.tsv" if "nfcorpus" in folder.name else "dev.tsv"))
    parts = _cut(_lines_of(folder / "corpus.jsonl"), _lines_of(folder / "queries.jsonl"), qrels, _json_id, 1)
    return Sample(
        "beir", {"corpus.jsonl": parts[0], "queries.jsonl": parts[1], "qrels/test.tsv": header + parts[2]}
    )


def _msmarco_doc(folder: Path) -> Sample:
    names = ("docs", "doctrain-queries", "doctrain-qrels")
    parts = _cut(*(_lines_of(folder / f"msmarco-{name}.tsv") for name in names), _tsv_id, 2)
    return Sample("msmarco_doc", dict(zip(("docs.tsv", "queries.tsv", "qrels.tsv"), parts, strict=True)))


def _msmarco_docs_lookup(folder: Path) -> Sample:
    """The first documents, which start at the same bytes as in the whole file."""
    names = ("docs", "docs-lookup", "doctrain-queries", "doctrain-qrels")
    docs, lookup, queries, qrels = (_lines_of(folder / f"msmarco-{name}.tsv") for name in names)
    known = {_tsv_id(line) for line in docs[: 4 * LINES]}
    judged = b"".join(line for line in qrels if line.split()[2].decode() in known)
    undamaged = {
        "docs.tsv": b"".join(docs[: 4 * LINES]),
        "queries.tsv": b"".join(queries),
        "qrels.tsv": judged,
    }
    return Sample("msmarco_docs_lookup", {"lookup.tsv": b"".join(lookup[: 4 * LINES])}, undamaged)


def _msmarco_passage(folder: Path) -> Sample:
    names = ("collection.tsv", "queries.dl19.tsv", "qrels.dl19-passage.txt")
    parts = _cut(*(_lines_of(folder / name) for name in names), _tsv_id, 2)
    return Sample(
        "msmarco_passage", dict(zip(("collection.tsv", "queries.tsv", "qrels.tsv"), parts, strict=True))
    )


def _pyserini_jsonl(shared: Path) -> Sample:
    """Real passages and questions, brought together by their order."""
    corpus = _lines_of(shared / "dpr" / "psgs_w100_pyserini_100.jsonl")[:LINES]
    selected = [json.loads(line) for line in _lines_of(shared / "nq-oracle" / "nq-open-oracle.jsonl")[:LINES]]
    topics = [
        json.dumps({"id": index, "title": one["question"], "answers": one["answers"]}) + "\n"
        for index, one in enumerate(selected)
    ]
    qrels = [f"{index} Q0 {json.loads(line)['id']} 1\n" for index, line in enumerate(corpus)]
    files = {
        "corpus.jsonl": b"".join(corpus),
        "topics.jsonl": "".join(topics).encode(),
        "qrels.txt": "".join(qrels).encode(),
    }
    return Sample("pyserini_jsonl", files)


def _dpr(shared: Path, questions: str) -> Sample:
    records = json.loads(b"".join(_lines_of(shared / "dpr" / "nq-dev.sample.json")))
    for record in records:
        for key in ("positive_ctxs", "negative_ctxs", "hard_negative_ctxs"):
            record[key] = record[key][:3]
    contexts = {
        c["passage_id"]: c
        for record in records
        for key in ("positive_ctxs", "hard_negative_ctxs")
        for c in record[key]
    }
    table = io.StringIO()
    csv.writer(table, delimiter="\t", lineterminator="\n").writerows(
        [id, c["text"], c["title"]] for id, c in contexts.items()
    )
    passages = b"".join(_lines_of(shared / "dpr" / "psgs_w100.first100.tsv")[:9]) + table.getvalue().encode()
    selected = _lines_of(shared / questions)[:LINES]
    qrels = "".join(f"{index} 0 {1 + index % 8} 1\n" for index in range(len(selected)))
    train = json.dumps(records, indent=4).encode()
    return Sample(
        "dpr",
        {
            "psgs.tsv": passages,
            "train.json": train,
            "test.qa.csv": b"".join(selected),
            "qrels.txt": qrels.encode(),
        },
    )


def _records(path: Path, most: int, keys: tuple[str, ...]) -> list[dict]:
    """The first records of DPR's or FlagEmbedding's file, each list under `keys` cut to three."""
    raw = b"".join(_lines_of(path))
    result = json.loads(raw) if raw.startswith(b"[") else [json.loads(line) for line in raw.splitlines()]
    return [record | {key: record[key][:3] for key in keys} for record in result[:most]]


def _as_lines(records: list[dict]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _tevatron(shared: Path) -> Sample:
    """DPR's real questions, in the layout of Tevatron's sets of them."""
    converted = []
    for index, record in enumerate(
        _records(shared / "dpr" / "nq-dev.sample.json", 5, ("positive_ctxs", "hard_negative_ctxs"))
    ):
        lists = {
            key: [{"docid": c["passage_id"], "title": c["title"], "text": c["text"]} for c in record[old]]
            for key, old in (
                ("positive_passages", "positive_ctxs"),
                ("negative_passages", "hard_negative_ctxs"),
            )
        }
        converted.append(
            {"query_id": str(index), "query": record["question"], "answers": record["answers"], **lists}
        )
    return Sample(
        "tevatron", {"train.jsonl": _as_lines(converted[:4]), "dev.jsonl": _as_lines(converted[4:])}
    )


def _flagembedding(shared: Path) -> Sample:
    records = _records(shared / "dpr" / "flagembedding-nq.jsonl", 10, ("pos", "neg"))
    pool = [{"text": text} for record in records for text in record["pos"] + record["neg"]]
    return Sample("flagembedding", {"train.jsonl": _as_lines(records), "pool.jsonl": _as_lines(pool)})


def _tables(shared: Path) -> Sample:
    parts = _beir(shared / "squad-beir").files
    queries = [json.loads(line) for line in parts["queries.jsonl"].splitlines()]
    table = io.StringIO()
    csv.writer(table).writerows([("_id", "text"), *((query["_id"], query["text"]) for query in queries)])
    _, *judged = (line.split("\t") for line in parts["qrels/test.tsv"].decode().splitlines())
    qrels = _parquet(
        [{"query-id": query, "corpus-id": document, "score": int(grade)} for query, document, grade in judged]
    )
    return Sample(
        "datasets",
        {
            "docs.jsonl": parts["corpus.jsonl"],
            "queries.csv": table.getvalue().encode(),
            "qrels.parquet": qrels,
        },
    )


def _numbered(most: int) -> list[tuple[str, str]]:
    return [(str(index), "a question") for index in range(most)]


def _text_triples(shared: Path) -> Sample:
    lines = _lines_of(shared / "dpr" / "nq.triples_text_head_100.tsv")[:LINES]
    rows = [line.decode().rstrip("\n").split("\t") for line in lines]
    selected, texts = list(dict.fromkeys(row[0] for row in rows)), dict.fromkeys(row[2] for row in rows)
    known = {
        "queries": [(f"q{n}", text) for n, text in enumerate(selected[::2])],
        "documents": [(f"d{n}", text) for n, text in enumerate(texts)],
    }
    return _negatives("triples.train.small.tsv", b"".join(lines).decode(), **known)


def _top1000(shared: Path) -> Sample:
    """MS MARCO's layout, of a real ranking of real passages."""
    folder = shared / "msmarco-passage-dl19-pool"
    texts = {
        _tsv_id(line): line.decode().rstrip("\n").split("\t")[1]
        for line in _lines_of(folder / "collection.tsv")
    }
    selected = dict(line.decode().rstrip("\n").split("\t") for line in _lines_of(folder / "queries.dl19.tsv"))
    hits = [
        line.decode().split()[:3]
        for line in _lines_of(folder / "runs" / "bm25.dl19.top100.trec")[:: 4300 // LINES]
    ]
    lines = [f"{query}\t{document}\t{selected[query]}\t{texts[document]}\n" for query, _, document in hits]
    return _negatives("top1000.dev", "".join(lines), queries=list(selected.items())[::2])


def _ranks(shared: Path) -> Sample:
    lines = [line.decode() for line in _lines_of(shared / "msmarco-ans-small" / "run.dev.small.tsv")]
    first = [line for line in lines if line.split()[2] in ("1", "17", "900")][:LINES]
    return _negatives(
        "run.tsv", "".join(first), queries=[(line.split()[0], "a query") for line in first[::6]]
    )


NQ = "openqa-topics/topics.dpr.nq.test.txt"
REAL: dict[str, Callable[[Path], Sample]] = {
    "nfcorpus": lambda shared: _beir(shared / "nfcorpus"),
    "squad": lambda shared: _beir(shared / "squad-beir"),
    "msmarco-doc": lambda shared: _msmarco_doc(shared / "msmarco-doc"),
    "msmarco-docs-lookup": lambda shared: _msmarco_docs_lookup(shared / "msmarco-doc"),
    "dl19-pool": lambda shared: _msmarco_passage(shared / "msmarco-passage-dl19-pool"),
    "psgs-jsonl": _pyserini_jsonl,
    "nq": lambda shared: _dpr(shared, NQ),
    "trivia": lambda shared: _dpr(shared, "openqa-topics/topics.dpr.trivia.test.txt"),
    "curated": lambda shared: _dpr(shared, "openqa-topics/topics.dpr.curated.test.txt"),
    "nq-tevatron": _tevatron,
    "nq-flagembedding": _flagembedding,
    "squad-tables": _tables,
    "nq-hard-negatives": lambda shared: _negatives(
        "train.json", _dpr(shared, NQ).files["train.json"].decode(), queries=_numbered(LINES)
    ),
    "nq-negative-passages": lambda shared: _negatives(
        "train.jsonl", _tevatron(shared).files["train.jsonl"].decode(), queries=_numbered(LINES)
    ),
    "nq-neg": lambda shared: _negatives(
        "train.jsonl", _flagembedding(shared).files["train.jsonl"].decode(), queries=_numbered(LINES)
    ),
    "nq-triples": _text_triples,
    "dl19-top1000": _top1000,
    "ans-ranks": _ranks,
    "dl19-bm25": lambda shared: Sample(
        "run",
        {
            "run.trec": b"".join(
                _lines_of(shared / "msmarco-passage-dl19-pool" / "runs" / "bm25.dl19.top100.trec")[
                    :: 4300 // LINES
                ]
            )
        },
    ),
    "dl20-qrels": lambda shared: Sample(
        "qrels",
        {"qrels.txt": b"".join(_lines_of(shared / "msmarco-topics-qrels" / "qrels.dl20-doc.txt")[::400])},
    ),
}
