"""Real samples of the official formats as the package reads them, and as ir_datasets' own parsers do.

ir_datasets is an extra (`python -m pip install -e '.[ir-datasets]'`); it reads the files beside the repository, and downloads nothing.
"""

import csv
import gzip
from itertools import islice
from pathlib import Path

import pytest

from pyserini_ance.data.answers import read_answers
from pyserini_ance.data.collection import Collection
from pyserini_ance.data.formats.beir import Beir
from pyserini_ance.data.formats.dpr import Dpr
from pyserini_ance.data.formats.ir_datasets import IrDatasets
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.formats.msmarco_doc import MsmarcoDoc
from pyserini_ance.data.formats.msmarco_passage import MsmarcoPassage
from pyserini_ance.data.formats.tables import trec_judgments, tsv_entries
from pyserini_ance.data.trec import read_qrels


@pytest.fixture
def ir_datasets(tmp_path, monkeypatch):
    reason = "ir_datasets is not installed: python -m pip install ir-datasets"
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    return pytest.importorskip("ir_datasets", reason=reason)


@pytest.fixture
def local(ir_datasets, tmp_path):
    """A file for its parsers, unpacked."""

    def make(path: Path):
        packed = path.with_name(f"{path.name}.gz")
        plain = path
        if packed.is_file():
            plain = tmp_path / path.name
            plain.write_bytes(gzip.decompress(packed.read_bytes()))
        return ir_datasets.util.LocalDownload(plain)

    return make


def judged(collection: Collection, name: str) -> list[tuple[str, str, int]]:
    split = collection.split(name)
    rows = [(id, *split.qrels.judged(row)) for row, id in enumerate(split.queries.ids)]
    return [(id, collection.documents.ids[d], int(g)) for id, documents, grades in rows for d, g in zip(documents, grades, strict=True)]


def test_passages(shared_data, ir_datasets, local):
    """All of the pool, by kind ir_datasets and by kind msmarco_passage: one collection."""
    folder = shared_data / "msmarco-passage-dl19-pool"
    formats = ir_datasets.formats
    made = ir_datasets.Dataset(
        formats.TsvDocs(local(folder / "collection.tsv")),
        formats.TsvQueries(local(folder / "queries.dl19.tsv")),
        formats.TrecQrels(local(folder / "qrels.dl19-passage.txt"), {}),
    )
    if "local/dl19" not in ir_datasets.registry:
        ir_datasets.registry.register("local/dl19", made)
    skipping = {"relevance_threshold": 2, "unknown_ids": "skip"}
    theirs = IrDatasets(documents="local/dl19", splits={"test": "local/dl19"}, **skipping).read()
    split = {"queries": folder / "queries.dl19.tsv", "qrels": folder / "qrels.dl19-passage.txt"}
    ours = MsmarcoPassage(collection=folder / "collection.tsv", splits={"test": split}, **skipping).read()
    assert (len(ours.documents), len(ours.split("test").queries)) == (11843, 43)
    assert (ours.digest, ours.skipped) == (theirs.digest, theirs.skipped)


def test_documents(shared_data, ir_datasets, local):
    from ir_datasets.datasets.msmarco_document import MsMarcoDocument

    folder = shared_data / "msmarco-doc"
    names = {"queries": "msmarco-doctrain-queries.tsv", "qrels": "msmarco-doctrain-qrels.tsv"}
    split = {key: folder / name for key, name in names.items()}
    ours = MsmarcoDoc(documents=folder / "msmarco-docs.tsv", splits={"train": split}).read()
    made = ir_datasets.Dataset(
        ir_datasets.formats.TsvDocs(local(folder / "msmarco-docs.tsv"), doc_cls=MsMarcoDocument),
        ir_datasets.formats.TsvQueries(local(split["queries"])),
        ir_datasets.formats.TrecQrels(local(split["qrels"]), {}),
    )
    if "local/docs" not in ir_datasets.registry:
        ir_datasets.registry.register("local/docs", made)
    assert IrDatasets(documents="local/docs", splits={"train": "local/docs"}).read().digest == ours.digest


def files(shared_data, kind: str) -> list[Path]:
    return [path.with_name(path.name.removesuffix(".gz")) for path in sorted((shared_data / "msmarco-topics-qrels").glob(f"{kind}.*"))]


def test_topics(shared_data, ir_datasets, local):
    found = files(shared_data, "topics")
    for path in found:
        ours = [(entry.id, entry.fields["text"]) for entry in tsv_entries(find_file(path, "topics"))]
        assert ours == [(one.query_id, one.text) for one in ir_datasets.formats.TsvQueries(local(path)).queries_iter()]
    assert len(found) == 5


def test_qrels(shared_data, ir_datasets, local):
    found = files(shared_data, "qrels")
    for path in found:
        theirs = [(one.query_id, one.doc_id, one.relevance) for one in ir_datasets.formats.TrecQrels(local(path), {}).qrels_iter()]
        assert [(one.query, one.document, one.grade) for one in trec_judgments(find_file(path, "qrels"))] == theirs
        assert {(query, *one) for query, graded in read_qrels(find_file(path, "qrels")).items() for one in graded.items()} == set(theirs)
    assert len(found) == 6


def test_beir(shared_data, local):
    from ir_datasets.datasets.beir import BeirDocs, BeirQrels, BeirQueries, BeirTitleDoc
    from ir_datasets.formats import GenericQuery

    folder = shared_data / "squad-beir"
    ours = Beir(folder=folder, splits={name: f"qrels/{name}.tsv" for name in ("train", "dev")}).read()
    corpus = BeirDocs("x", local(folder / "corpus.jsonl"), BeirTitleDoc)._docs_iter()
    documents = [(one.doc_id, {"title": one.title, "text": one.text}) for one in corpus]
    assert documents == list(zip(ours.documents.ids, ours.documents.take(range(240)), strict=True))
    texts = {one.query_id: " ".join(one.text.split()) for one in BeirQueries("x", local(folder / "queries.jsonl"), GenericQuery).queries_iter()}
    for name in ours.splits:
        theirs = [(one.query_id, one.doc_id, one.relevance) for one in BeirQrels(local(folder / "qrels" / f"{name}.tsv"), {}).qrels_iter()]
        assert sorted(theirs) == sorted(judged(ours, name))
        queries = ours.split(name).queries
        assert {id: queries.columns["text"][row] for id, row in queries.rows.items()} == {id: texts[id] for id, _, _ in theirs}


def test_passages_of_wikipedia(shared_data, tmp_path, local):
    """ir_datasets splits at tabs and leaves the quotes of the CSV writer; DPR's own code, as ours, takes them away."""
    from ir_datasets.datasets.dpr_w100 import DprW100Doc
    from ir_datasets.formats import TsvDocs

    folder = shared_data / "dpr"
    (tmp_path / "qrels").write_text("0 0 1 1\n")
    split = {"questions": folder / "nq_1000_dev_dpr.csv", "qrels": tmp_path / "qrels"}
    ours = Dpr(passages=folder / "psgs_w100.first100.tsv", splits={"dev": split}).read().documents
    theirs = list(TsvDocs(local(folder / "psgs_w100.first100.tsv"), doc_cls=DprW100Doc, skip_first_line=True).docs_iter())
    unquoted = [next(csv.reader(["\t".join(one)], delimiter="\t")) for one in theirs]
    assert [(id, fields["text"], fields["title"]) for id, fields in zip(ours.ids, ours.take(range(100)), strict=True)] == list(map(tuple, unquoted))
    assert sum(one.text.startswith('"') for one in theirs) > 50


def test_questions_of_dpr(shared_data, tmp_path, local):
    """What ir_datasets grades 1 and 2 is relevant; what it grades 0 and -1, hard and other negatives, is not judged by us."""
    pytest.importorskip("ijson", reason="ir_datasets reads DPR's files with ijson: python -m pip install ijson")
    from ir_datasets.datasets.dpr_w100 import DprW100Manager, DprW100Queries
    from ir_datasets.formats import TrecQrels

    path = shared_data / "dpr" / "nq-dev.sample.json"
    manager = DprW100Manager(local(path), tmp_path / "built")
    qrels = [(one.query_id, one.doc_id) for one in TrecQrels(manager.file_ref("qrels"), {}).qrels_iter() if one.relevance > 0]
    ids = sorted({document for _, document in qrels})
    (tmp_path / "psgs.tsv").write_text("".join(f"{id}\ta text\ta title\n" for id in ids))
    ours = Dpr(passages=tmp_path / "psgs.tsv", splits={"dev": {"questions": path}}).read()
    queries = ours.split("dev").queries
    theirs = [(one.query_id, one.text, list(one.answers)) for one in islice(DprW100Queries(manager.file_ref("queries.tsv")).queries_iter(), 9)]
    assert theirs == [(id, queries.columns["text"][row], read_answers(queries, row)) for row, id in enumerate(queries.ids)]
    assert len(theirs) == 5 and len(qrels) > 5
    assert [(query, document, 1) for query, document in qrels] == judged(ours, "dev")
