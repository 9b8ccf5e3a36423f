"""Answer coverage equals what Pyserini's `evaluate_dpr_retrieval` prints of the same rankings."""

import gzip
import json
import random
import subprocess
import sys
from itertools import islice

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


def ranking(questions: Texts, documents: Texts, gold: set[str]) -> dict[str, dict[str, float]]:
    """20 documents a question, best first, with that of its own number among them if it is gold; no ties."""
    chosen, run = random.Random(7), {}
    for question in questions.ids:
        found = chosen.sample(list(documents.ids), 20)
        if question in gold and question not in found:
            found[chosen.randrange(20)] = question
        run[question] = {document: -float(rank) for rank, document in enumerate(found)}
    return run


def natural_questions(folder) -> tuple[Texts, Texts]:
    """100 passages, each with the answer to its question."""
    with gzip.open(folder / "nq-oracle" / "nq-open-oracle.jsonl.gz", "rt") as file:
        records = [json.loads(line) for line in islice(file, 100)]
    ids, passages = [str(i) for i in range(100)], [record["ctxs"][0] for record in records]
    columns = {name: [" ".join(each[name].split("\n")) for each in passages] for name in ("title", "text")}
    return Texts(ids, columns), answered(ids, [record["answers"] for record in records])


def answered(ids, answers) -> Texts:
    return Texts(ids, {"text": ["?"] * len(ids), "answers": list(map(json.dumps, answers))})


def write_for_pyserini(path, run, questions: Texts, documents: Texts) -> None:
    """As `convert_trec_run_to_dpr_retrieval_run --store-raw` leaves it, without its own judgments."""
    contents = {id: "\n".join(documents[row].values()) for id, row in documents.rows.items()}
    asked = {id: json.loads(questions.columns["answers"][row]) for id, row in questions.rows.items()}
    texts = {id: [{"text": contents[hit]} for hit in hits] for id, hits in run.items()}
    path.write_text(json.dumps({id: {"answers": asked[id], "contexts": texts[id]} for id in run}))


def test_coverage_is_what_pyserini_prints(shared_data, tmp_path):
    """Also of all of CuratedTREC's patterns, three of them malformed, on passages of other questions; and of
    four questions, of which the second has its answer in the title, the fourth half of a word."""
    documents, asked = natural_questions(shared_data)
    patterns = read_questions(shared_data / "openqa-topics" / "topics.dpr.curated.test.txt.gz")
    expected = []
    for name, questions, gold in (("asked", asked, set(asked.ids)), ("curated", patterns, set())):
        run = ranking(questions, documents, gold)
        write_for_pyserini(tmp_path / f"{name}.json", run, questions, documents)
        values = coverage(run, questions, documents, CUTOFFS, name == "curated")
        assert 0 < values["Success@1"] < values["Success@5"] < values["Success@20"]
        expected += [f"Top{cutoff}\taccuracy: {values[f'Success@{cutoff}']:.4f}" for cutoff in CUTOFFS]
    ids = [str(i) for i in range(4)]
    passages = ["Linda Davis of 1993", "Linda", "a \u0558 b", "a\u0558b"]
    documents = Texts(ids, {"title": ["Davis"] * 4, "text": passages})
    questions = answered(ids, [["Davis"], ["Davis"], ["\u0558"], ["\u0558"]])
    run = {id: {id: 1.0} for id in ids}
    write_for_pyserini(tmp_path / "made-up.json", run, questions, documents)
    assert coverage(run, questions, documents, [1]) == {"Success@1": 0.5}
    expected += [f"Top{cutoff}\taccuracy: 0.5000" for cutoff in CUTOFFS]
    files = [tmp_path / f"{name}.json" for name in ("asked", "curated", "made-up")]
    command = [sys.executable, "-c", PYSERINI, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.splitlines() if line.startswith("Top")] == expected
