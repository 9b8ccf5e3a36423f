"""Answer coverage equals what Pyserini's `evaluate_dpr_retrieval` prints of the same rankings, in a process
of its own.
"""

import gzip
import json
import random
import subprocess
import sys

import pytest

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.formats.dpr import read_questions
from pyserini_ance.evaluation.answer_measures import coverage

CUTOFFS = (1, 5, 20)
PYSERINI = """
import sys
from pyserini.eval.evaluate_dpr_retrieval import evaluate_retrieval
for file in sys.argv[1:]:
    evaluate_retrieval(file, [1, 5, 20], regex="curated" in file)
"""


def ranking(questions: Texts, documents: Texts, gold: dict[str, str]) -> dict[str, dict[str, float]]:
    """20 documents a question, best first, with the gold one among them where it has one; no ties."""
    chosen = random.Random(7)
    run = {}
    for question in questions.ids:
        found = chosen.sample(list(documents.ids), 20)
        if question in gold and gold[question] not in found:
            found[chosen.randrange(20)] = gold[question]
        run[question] = {document: -float(rank) for rank, document in enumerate(found)}
    return run


def squad(folder) -> tuple[Texts, Texts, dict[str, str]]:
    records = [json.loads(line) for line in gzip.open(folder / "squad-beir" / "corpus.jsonl.gz", "rt")]
    asked = {
        r["_id"]: r for r in map(json.loads, gzip.open(folder / "squad-beir" / "queries.jsonl.gz", "rt"))
    }
    gold = dict(
        line.split()[:2]
        for line in open(folder / "squad-beir" / "qrels" / "dev.tsv")
        if not line.startswith("query-id")
    )
    queries = [asked[query] for query in list(gold)[:100]]
    return texts([r["_id"] for r in records], records), answered([r["_id"] for r in queries], queries), gold


def natural_questions(folder) -> tuple[Texts, Texts, dict[str, str]]:
    records = [
        json.loads(line)
        for _, line in zip(
            range(100), gzip.open(folder / "nq-oracle" / "nq-open-oracle.jsonl.gz", "rt"), strict=False
        )
    ]
    ids = [str(i) for i in range(100)]
    return (
        texts(ids, [r["ctxs"][0] for r in records]),
        answered(ids, records),
        dict(zip(ids, ids, strict=True)),
    )


def curated(folder) -> tuple[Texts, Texts, dict[str, str]]:
    """All of CuratedTREC's patterns, three of them malformed, on passages of other questions."""
    return (
        natural_questions(folder)[0],
        read_questions(folder / "openqa-topics" / "topics.dpr.curated.test.txt.gz"),
        {},
    )


def texts(ids, records) -> Texts:
    return Texts(
        ids, {name: [" ".join(record[name].split("\n")) for record in records] for name in ("title", "text")}
    )


def answered(ids, records) -> Texts:
    return Texts(
        ids, {"text": ["?"] * len(ids), "answers": [json.dumps(record["answers"]) for record in records]}
    )


def write_for_pyserini(path, run, questions: Texts, documents: Texts) -> None:
    """As `convert_trec_run_to_dpr_retrieval_run --store-raw` leaves it, without its own judgments."""
    contents = {id: "\n".join(documents[row].values()) for id, row in documents.rows.items()}
    asked = {id: json.loads(questions.columns["answers"][row]) for id, row in questions.rows.items()}
    found = {
        id: {"answers": asked[id], "contexts": [{"text": contents[hit]} for hit in hits]}
        for id, hits in run.items()
    }
    path.write_text(json.dumps(found))


@pytest.fixture(scope="module")
def found(shared_data, tmp_path_factory) -> dict[str, tuple[dict[str, float], list[str]]]:
    """By set our coverage, and Pyserini's lines; one process for all sets."""
    folder, ours = tmp_path_factory.mktemp("retrieval"), {}
    for make in (squad, natural_questions, curated):
        documents, questions, gold = make(shared_data)
        run = ranking(questions, documents, gold)
        write_for_pyserini(folder / f"{make.__name__}.json", run, questions, documents)
        ours[make.__name__] = coverage(run, questions, documents, CUTOFFS, make is curated)
    files = [folder / f"{name}.json" for name in ours]
    done = subprocess.run(
        [sys.executable, "-c", PYSERINI, *files], capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("Top")]
    return {name: (values, lines[3 * i : 3 * i + 3]) for i, (name, values) in enumerate(ours.items())}


@pytest.mark.parametrize("name", ["squad", "natural_questions", "curated"])
def test_coverage_is_what_pyserini_prints(found, name):
    values, lines = found[name]
    assert [f"Top{cutoff}\taccuracy: {values[f'Success@{cutoff}']:.4f}" for cutoff in CUTOFFS] == lines
    assert 0 < values["Success@1"] < values["Success@5"] < values["Success@20"]


def test_line_ends_and_newer_letters_are_judged_as_by_pyserini(tmp_path):
    """Of four questions, the second has its answer after a line end, the fourth half of a word."""
    ids = [str(i) for i in range(4)]
    passages = ["Linda Davis\nof 1993", "Linda\nDavis", "a \u0558 b", "a\u0558b"]
    documents = Texts(ids, {"title": ["t"] * 4, "text": passages})
    answers = [{"answers": [answer]} for answer in ("Davis", "Davis", "\u0558", "\u0558")]
    questions, run = answered(ids, answers), {id: {id: 1.0} for id in ids}
    write_for_pyserini(tmp_path / "made-up.json", run, questions, documents)
    command = [sys.executable, "-c", PYSERINI, tmp_path / "made-up.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert coverage(run, questions, documents, [1]) == {"Success@1": 0.5}
    assert "Top1\taccuracy: 0.5000" in done.stdout
