"""Real topics and corpora as Pyserini's readers have them, and RR@10 as its trec_eval counts it; in a process
of its own.
"""

import ast
import gzip
import json
import re

import ir_measures
import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.formats.builder import tsv_entries
from pyserini_ance.data.formats.dpr import read_questions
from pyserini_ance.data.formats.pyserini_jsonl import PyseriniJsonl
from pyserini_ance.data.trec import read_qrels, read_run, write_ranks, write_run
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.recipe.evaluation_settings import parse_measures

READERS = {
    "msmarco-topics-qrels/topics.msmarco-passage.dev-subset.txt": "TsvIntTopicReader",
    "msmarco-topics-qrels/topics.msmarco-doc.dev.txt": "TsvIntTopicReader",
    "msmarco-topics-qrels/topics.dl20.txt": "TsvIntTopicReader",
    "openqa-topics/topics.dpr.nq.test.txt": "DprNqTopicReader",
    "openqa-topics/topics.dpr.trivia.test.txt": "DprNqTopicReader",
    "openqa-topics/topics.dpr.curated.test.txt": "DprJsonlTopicReader",
}
CORPORA = {"dpr/psgs_w100_pyserini_100.jsonl": ["text"], "squad-beir/corpus.jsonl": ["title", "text"]}
PYSERINI = """
import json, sys
from pathlib import Path
from pyserini_ance.pyserini_bridge.java import import_pyserini
folder, files = Path(sys.argv[1]), json.loads(sys.argv[2])
search = import_pyserini("pyserini.search")
for name, reader in files.items():
    reader = f"io.anserini.search.topicreader.{reader}"
    found = search.get_topics_with_reader(reader, str(folder / Path(name).name))
    (folder / f"{Path(name).name}.json").write_text(json.dumps(found))
for name, fields in json.loads(sys.argv[3]).items():
    found = import_pyserini("pyserini.encode").JsonlCollectionIterator(str(folder / name), fields).all_info
    (folder / f"{name}.json").write_text(json.dumps(found))
trec_eval = import_pyserini("pyserini.eval.trec_eval").trec_eval
for run in ("run.tsv", "run.trec"):
    qrels = str(folder / "qrels.dev.small.tsv")
    trec_eval(["trec_eval", "-c", "-M", "10", "-m", "recip_rank", qrels, str(folder / run)])
"""


@pytest.fixture(scope="module")
def theirs(in_java, shared_data, tmp_path_factory):
    """The folder with what Pyserini read, and the lines that trec_eval printed."""
    folder = tmp_path_factory.mktemp("pyserini")
    small = [f"msmarco-ans-small/{name}" for name in ("run.dev.small.tsv", "qrels.dev.small.tsv")]
    for name in [*READERS, *small, *CORPORA]:
        with gzip.open(shared_data / f"{name}.gz") as file:
            lines = file.readlines()
        if name in READERS:  # each topic costs Pyserini some ten calls of Java
            lines = lines[:100] + [line for line in lines[100:] if b'"' in line][:200]
        (folder / name.split("/")[1]).write_bytes(b"".join(lines))
    run = read_run(folder / "run.dev.small.tsv")
    first = [
        (query, document, score)
        for query, found in run.items()
        for document, score in found.items()
        if score >= -20
    ]
    write_run(folder / "run.trec", first, "t")  # so few, because pandas reads it for trec_eval
    write_ranks(folder / "run.tsv", first)
    printed = in_java(
        PYSERINI,
        folder,
        json.dumps(READERS),
        json.dumps({name.split("/")[1]: fields for name, fields in CORPORA.items()}),
    )
    return folder, re.findall(r"recip_rank\s+all\s+(\S+)", printed)


def read_by_pyserini(theirs, name: str) -> dict[str, dict]:
    return json.loads((theirs[0] / f"{name.split('/')[1]}.json").read_text())


@pytest.mark.parametrize("name", [name for name in READERS if "msmarco" in name])
def test_topics_of_msmarco_and_trec(theirs, name):
    ours = {entry.id: entry.fields["text"].strip() for entry in tsv_entries(theirs[0] / name.split("/")[1])}
    assert ours == {id: topic["title"] for id, topic in read_by_pyserini(theirs, name).items()}


@pytest.mark.parametrize("name", [name for name in READERS if "openqa" in name])
def test_questions_and_answers(theirs, name):
    """Answers are a Python list there, which `convert_trec_run_to_dpr_retrieval_run` evaluates."""
    ours = read_questions(theirs[0] / name.split("/")[1])
    found = read_by_pyserini(theirs, name)
    assert list(ours.ids) == sorted(found, key=int)
    for row, id in enumerate(ours.ids):
        assert ours.columns["text"][row] == " ".join(found[id]["title"].split())
        assert read_answers(ours, row) == ast.literal_eval(found[id]["answers"])


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus(theirs, name):
    """As `python -m pyserini.encode` reads it, which strips texts."""
    file = theirs[0] / name.split("/")[1]
    documents, found = (
        PyseriniJsonl(corpus=file).read().documents,
        json.loads(file.with_name(f"{file.name}.json").read_text()),
    )
    assert list(documents.ids) == found.pop("id")
    for field, values in found.items():
        assert [text.strip() for text in documents.columns[field]] == [value or "" for value in values]


def test_rr_at_10_of_a_real_run(theirs):
    """105 queries, 114 judgments, BM25's first 1,000: ours, ir-measures', trec_eval's on both forms of the
    run, and MS MARCO's own rule.
    """
    folder = theirs[0]
    qrels, run = read_qrels(folder / "qrels.dev.small.tsv"), read_run(folder / "run.dev.small.tsv")
    [ours] = evaluate(qrels, run, parse_measures(["RR@10"])).values()
    ranks = {
        (query, document): int(rank)
        for query, document, rank in map(str.split, (folder / "run.dev.small.tsv").open())
    }
    judged = [line.split() for line in (folder / "qrels.dev.small.tsv").open()]
    best = {
        query: min(ranks.get((query, document), 9999) for q, _, document, _ in judged if q == query)
        for query, *_ in judged
    }
    assert len(best) == 105 and len(judged) == 114
    assert ours == pytest.approx(sum(1 / rank for rank in best.values() if rank <= 10) / 105, abs=1e-12)
    assert ours == pytest.approx(
        ir_measures.calc_aggregate([ir_measures.RR @ 10], qrels, run)[ir_measures.RR @ 10], abs=1e-12
    )
    assert theirs[1] == [f"{ours:.4f}"] * 2
    assert 0.1 < ours < 0.4
