"""Real samples of the official formats, read by this package and by ir_datasets' own parsers.

ir_datasets comes with the extra `test` (`python -m pip install -e '.[test]'`). It reads local files and
downloads nothing.
"""

import csv
import gzip
from itertools import islice
from pathlib import Path

import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.collection import Collection
from pyserini_ance.data.formats.beir import Beir
from pyserini_ance.data.formats.dpr import Dpr
from pyserini_ance.data.formats.ir_datasets import IrDatasets
from pyserini_ance.data.formats.topics import MsmarcoDoc, MsmarcoPassage


@pytest.fixture
def ir_datasets(tmp_path, monkeypatch):
    reason = "ir_datasets is not installed: python -m pip install ir-datasets"
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    return pytest.importorskip("ir_datasets", reason=reason)


@pytest.fixture
def local(ir_datasets, tmp_path):
    """An unpacked file for the parsers of ir_datasets."""

    def make(path: Path):
        packed = path.with_name(f"{path.name}.gz")
        plain = path
        if packed.is_file():
            plain = tmp_path / path.name
            plain.write_bytes(gzip.decompress(packed.read_bytes()))
        return ir_datasets.util.LocalDownload(plain)

    return make


def judged(collection: Collection, name: str) -> list[tuple[str, str, int]]:
    grades = collection.judgments(name)
    return [(query, *each) for query, of_query in grades.items() for each in of_query.items()]


@pytest.fixture
def registered(ir_datasets, local):
    """Register tab-separated files under a name of ir_datasets."""

    def register(name: str, documents: Path, queries: Path, qrels: Path, **how) -> str:
        formats = ir_datasets.formats
        parts = formats.TsvDocs(local(documents), **how), formats.TsvQueries(local(queries))
        if name not in ir_datasets.registry:
            data_set = ir_datasets.Dataset(*parts, formats.TrecQrels(local(qrels), {}))
            ir_datasets.registry.register(name, data_set)
        return name

    return register


def test_passages(shared_data, registered):
    """The whole pool gives one collection by kind ir_datasets and by kind msmarco_passage."""
    folder = shared_data / "msmarco-passage-dl19-pool"
    files = (folder / name for name in ("collection.tsv", "queries.dl19.tsv", "qrels.dl19-passage.txt"))
    name = registered("local/dl19", *files)
    skipping = {"relevance_threshold": 2, "skip": ["unknown_ids"]}
    reference = IrDatasets(documents=name, splits={"test": name}, **skipping).read()
    split = {"topics": folder / "queries.dl19.tsv", "qrels": folder / "qrels.dl19-passage.txt"}
    own = MsmarcoPassage(corpus=folder / "collection.tsv", splits={"test": split}, **skipping).read()
    assert (len(own.documents), len(own.split("test").queries)) == (11843, 43)
    assert (own.digest, own.skipped) == (reference.digest, reference.skipped)


def test_documents(shared_data, registered):
    from ir_datasets.datasets.msmarco_document import MsMarcoDocument

    folder = shared_data / "msmarco-doc"
    names = {"topics": "msmarco-doctrain-queries.tsv", "qrels": "msmarco-doctrain-qrels.tsv"}
    split = {key: folder / name for key, name in names.items()}
    own = MsmarcoDoc(corpus=folder / "msmarco-docs.tsv", splits={"train": split}).read()
    name = registered("local/docs", folder / "msmarco-docs.tsv", *split.values(), doc_cls=MsMarcoDocument)
    assert IrDatasets(documents=name, splits={"train": name}).read().digest == own.digest


def test_beir(shared_data, local):
    from ir_datasets.datasets.beir import BeirDocs, BeirQrels, BeirQueries, BeirTitleDoc
    from ir_datasets.formats import GenericQuery

    folder = shared_data / "squad-beir"
    own = Beir(folder=folder, splits={name: f"qrels/{name}.tsv" for name in ("train", "dev")}).read()
    corpus = BeirDocs("x", local(folder / "corpus.jsonl"), BeirTitleDoc)._docs_iter()
    documents = [(one.doc_id, {"title": one.title, "text": one.text}) for one in corpus]
    assert documents == list(zip(own.documents.ids, own.documents.take(range(240)), strict=True))
    asked = BeirQueries("x", local(folder / "queries.jsonl"), GenericQuery).queries_iter()
    texts = {one.query_id: " ".join(one.text.split()) for one in asked}
    for name in own.splits:
        graded = BeirQrels(local(folder / "qrels" / f"{name}.tsv"), {}).qrels_iter()
        reference = [(one.query_id, one.doc_id, one.relevance) for one in graded]
        assert sorted(reference) == sorted(judged(own, name))
        queries = own.split(name).queries
        read = {id: queries.columns["text"][row] for id, row in queries.rows.items()}
        assert read == {id: texts[id] for id, _, _ in reference}


def test_passages_of_wikipedia(shared_data, tmp_path, local):
    """ir_datasets keeps the quotes of the CSV writer; DPR's code and this package remove them."""
    from ir_datasets.datasets.dpr_w100 import DprW100Doc
    from ir_datasets.formats import TsvDocs

    folder = shared_data / "dpr"
    (tmp_path / "qrels").write_text("0 0 1 1\n")
    split = {"questions": folder / "nq_1000_dev_dpr.csv", "qrels": tmp_path / "qrels"}
    own = Dpr(passages=folder / "psgs_w100.first100.tsv", splits={"dev": split}).read().documents
    path = local(folder / "psgs_w100.first100.tsv")
    reference = list(TsvDocs(path, doc_cls=DprW100Doc, skip_first_line=True).docs_iter())
    unquoted = [tuple(next(csv.reader(["\t".join(one)], delimiter="\t"))) for one in reference]
    columns = own.ids, own.columns["text"], own.columns["title"]
    assert list(zip(*columns, strict=True)) == unquoted
    assert sum(one.text.startswith('"') for one in reference) > 50


def test_questions_of_dpr(shared_data, tmp_path, local):
    """Grades 1 and 2 of ir_datasets are relevant; its 0 and -1 (hard, other negatives) are unjudged here."""
    from ir_datasets.datasets.dpr_w100 import DprW100Manager, DprW100Queries
    from ir_datasets.formats import TrecQrels

    path = shared_data / "dpr" / "nq-dev.sample.json"
    manager = DprW100Manager(local(path), tmp_path / "built")
    graded = TrecQrels(manager.file_ref("qrels"), {}).qrels_iter()
    qrels = [(one.query_id, one.doc_id) for one in graded if one.relevance > 0]
    ids = sorted({document for _, document in qrels})
    (tmp_path / "psgs.tsv").write_text("".join(f"{id}\ta text\ta title\n" for id in ids))
    own = Dpr(passages=tmp_path / "psgs.tsv", splits={"dev": {"questions": path}}).read()
    queries = own.split("dev").queries
    asked = islice(DprW100Queries(manager.file_ref("queries.tsv")).queries_iter(), 9)
    reference = [(one.query_id, one.text, list(one.answers)) for one in asked]
    texts = queries.columns["text"]
    assert reference == [(id, texts[row], read_answers(queries, row)) for row, id in enumerate(queries.ids)]
    assert len(reference) == 5 and len(qrels) > 5
    assert [(query, document, 1) for query, document in qrels] == judged(own, "dev")
