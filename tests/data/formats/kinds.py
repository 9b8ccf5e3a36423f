"""Every format, read by the package and by the reference reader."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from data.formats import listings, negatives, slow

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.formats.beir import Beir
from pyserini_ance.data.formats.dpr import Dpr
from pyserini_ance.data.formats.msmarco_doc import MsmarcoDoc
from pyserini_ance.data.formats.msmarco_passage import MsmarcoPassage
from pyserini_ance.data.formats.pyserini_jsonl import PyseriniJsonl
from pyserini_ance.data.formats.text_files import find_file
from pyserini_ance.data.trec import read_qrels, read_run


class Kind(NamedTuple):
    """The two readers of a folder: the package's and the reference."""

    read: Callable[[Path], dict]
    slowly: Callable[[Path], dict]


def as_dict(collection: Collection) -> dict:
    """A collection in the form of the reference reader (`slow`)."""
    assert collection.digest
    documents = [(id, collection.documents[row]) for row, id in enumerate(collection.documents.ids)]
    splits = {name: _split(collection, split) for name, split in collection.splits.items()}
    return {"documents": documents, "splits": splits, "skipped": collection.skipped}


def _split(collection: Collection, split: Split) -> list[tuple]:
    result = []
    for row, id in enumerate(split.queries.ids):
        answers = read_answers(split.queries, row) if "answers" in split.queries.columns else []
        documents, grades = split.qrels.judged(row)
        judged = zip(
            [collection.documents.ids[document] for document in documents], grades.tolist(), strict=True
        )
        result.append((id, split.queries[row]["text"], answers, list(judged)))
    return result


def beir(folder: Path) -> dict:
    return as_dict(Beir(folder=folder, splits={"test": "qrels/test.tsv"}).read())


def beir_slowly(folder: Path) -> dict:
    corpus = slow.json_objects(folder / "corpus.jsonl")
    documents = [
        (slow.id_of(one, "_id"), {key: slow.text_of(one, key) for key in ("title", "text")}) for one in corpus
    ]
    records = slow.json_objects(folder / "queries.jsonl")
    queries = [
        (slow.id_of(one, "_id"), slow.text_of(one, "text"), slow.answers_of(one, "answers"))
        for one in records
    ]
    judgments = slow.beir_qrels(folder / "qrels" / "test.tsv")
    judged = {query for query, _, _ in judgments}
    return slow.collection(
        documents, {"test": ([query for query in queries if query[0] in judged], judgments)}
    )


def msmarco_doc(folder: Path, lookup: Path | None = None) -> dict:
    splits = {"train": {"queries": folder / "queries.tsv", "qrels": folder / "qrels.tsv"}}
    return as_dict(MsmarcoDoc(documents=folder / "docs.tsv", lookup=lookup, splits=splits).read())


def msmarco_doc_slowly(folder: Path) -> dict:
    documents = [
        (id, {"url": url, "title": title, "text": text})
        for id, url, title, text in slow.rows(folder / "docs.tsv", 4)
    ]
    return slow.collection(documents, {"train": _tsv_split(folder)})


def msmarco_docs_lookup(folder: Path) -> dict:
    return msmarco_doc(folder, folder / "lookup.tsv")


def msmarco_docs_lookup_slowly(folder: Path) -> dict:
    slow.need(slow.lookup(folder / "lookup.tsv") == slow.line_starts(folder / "docs.tsv"))
    return msmarco_doc_slowly(folder)


def _tsv_split(folder: Path) -> tuple[list, list]:
    return [(id, text, None) for id, text in slow.tsv_texts(folder / "queries.tsv")], slow.trec_qrels(
        folder / "qrels.tsv"
    )


SKIPPING = {"unknown_ids": "skip", "relevance_threshold": 2}


def msmarco_passage(folder: Path) -> dict:
    splits = {"test": {"queries": folder / "queries.tsv", "qrels": folder / "qrels.tsv"}}
    return as_dict(MsmarcoPassage(collection=folder / "collection.tsv", splits=splits, **SKIPPING).read())


def msmarco_passage_slowly(folder: Path) -> dict:
    documents = [(id, {"text": text}) for id, text in slow.tsv_texts(folder / "collection.tsv")]
    return slow.collection(documents, {"test": _tsv_split(folder)}, **SKIPPING)


def pyserini_jsonl(folder: Path) -> dict:
    splits = {"test": {"topics": folder / "topics.jsonl", "qrels": folder / "qrels.txt"}}
    return as_dict(PyseriniJsonl(corpus=folder / "corpus.jsonl", splits=splits).read())


def pyserini_jsonl_slowly(folder: Path) -> dict:
    documents = []
    for record in slow.json_objects(folder / "corpus.jsonl"):
        separate = "text" in record
        fields = {
            "title": slow.text_of(record, "title") if separate else "",
            "text": slow.text_of(record, "text" if separate else "contents"),
        }
        documents.append((slow.id_of(record, "id", "_id", "docid"), fields))
    records = slow.json_objects(folder / "topics.jsonl")
    topics = [
        (slow.id_of(one, "id"), slow.text_of(one, "title"), slow.answers_of(one, "answers", "answer"))
        for one in records
    ]
    return slow.collection(documents, {"test": (topics, slow.trec_qrels(folder / "qrels.txt"))})


def dpr(folder: Path) -> dict:
    splits = {
        "train": {"questions": folder / "train.json"},
        "test": {"questions": folder / "test.qa.csv", "qrels": folder / "qrels.txt"},
    }
    return as_dict(Dpr(passages=folder / "psgs.tsv", splits=splits).read())


def dpr_slowly(folder: Path) -> dict:
    train, positives = [], []
    for index, record in enumerate(slow.records(folder / "train.json")):
        train.append(slow.dpr_question(index, record))
        positives += [
            (str(index), id, 1) for id in slow.contexts(record, "positive_ctxs", "passage_id", "psg_id")
        ]
    test = []
    for index, (_, line) in enumerate(slow.lines(folder / "test.qa.csv")):
        if line.startswith("{"):
            test.append(slow.dpr_question(index, slow.json_object(line)))
        else:
            question, answers = slow.csv_row(line)
            test.append((str(index), question, slow.python_list(answers)))
    splits = {"train": (train, positives), "test": (test, slow.trec_qrels(folder / "qrels.txt"))}
    return slow.collection(slow.passages(folder / "psgs.tsv"), splits)


KINDS = {
    "beir": Kind(beir, beir_slowly),
    "msmarco_doc": Kind(msmarco_doc, msmarco_doc_slowly),
    "msmarco_docs_lookup": Kind(msmarco_docs_lookup, msmarco_docs_lookup_slowly),
    "msmarco_passage": Kind(msmarco_passage, msmarco_passage_slowly),
    "pyserini_jsonl": Kind(pyserini_jsonl, pyserini_jsonl_slowly),
    "dpr": Kind(dpr, dpr_slowly),
    "tevatron": Kind(lambda folder: as_dict(listings.tevatron(folder)), listings.tevatron_slowly),
    "flagembedding": Kind(
        lambda folder: as_dict(listings.flagembedding(folder)), listings.flagembedding_slowly
    ),
    "datasets": Kind(lambda folder: as_dict(listings.tables(folder)), listings.tables_slowly),
    "negatives": Kind(negatives.negatives, negatives.negatives_slowly),
    "run": Kind(
        lambda folder: read_run(find_file(folder / "run.trec", "run")),
        lambda folder: slow.trec_run(folder / "run.trec"),
    ),
    "qrels": Kind(
        lambda folder: read_qrels(find_file(folder / "qrels.txt", "qrels")),
        lambda folder: slow.by_query(slow.trec_qrels(folder / "qrels.txt"), may_repeat=True),
    ),
}
