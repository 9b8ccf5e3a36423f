"""Random damage to files of one reader: an error that names the file, or what a slow reader reads."""

import gzip
import json
import signal
from pathlib import Path
from random import Random

import pytest
from data.formats.damages import damaged

from pyserini_ance.data.formats.beir import Beir

MARK = b"\xef\xbb\xbf"
FILES = {
    "corpus.jsonl": """{"_id": "007", "title": "", "text": "It was  1984."}
{"_id": 7, "title": "A", "text": "é"}
{"_id": "d-3", "text": "no title \\u00e9 \\"quoted\\" {[", "metadata": {"a": [1, 2]}}
""",
    "queries.jsonl": """{"_id": "q1", "text": "which year"}
{"_id": "q2", "text": "who", "answers": ["Aaron", "A"]}
""",
    "train.tsv": "query-id\tcorpus-id\tscore\nq1\t007\t1\nq2\t7\t2\nq2\td-3\t0\n",
}


def need(condition) -> None:
    if not condition:
        raise ValueError("to be refused")


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    raw = path.read_bytes() if path.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    need(raw or path.exists())
    need(b"\0" not in raw)
    rows = [line.rstrip(b"\r") for line in raw.removeprefix(MARK).split(b"\n")]
    need(not any(row.startswith(MARK) for row in rows))
    return [row.decode() for row in rows if row]


def slowly(folder: Path) -> dict:
    def records(name: str, *fields: str) -> dict:
        found = {}
        for line in lines(folder, name):
            record = json.loads(line)
            need(isinstance(record, dict) and type(record.get("_id")) in (str, int))
            values = [record.get(field) or "" for field in fields]
            need(all(record.get(field) is None or isinstance(record[field], str) for field in fields))
            answers = record.get("answers") if name == "queries.jsonl" else None
            need(answers is None or (isinstance(answers, list) and {str} >= set(map(type, answers))))
            if name == "queries.jsonl":
                values = [" ".join(value.split()) for value in values]
            id = str(record["_id"])
            found.setdefault(id, []).append((values, answers))
        return found

    def check(entries: dict) -> dict:
        for id, given in entries.items():
            need(len(given) == 1 and id.split() == [id])
            (values, answers) = given[0]
            need(any(value.strip() for value in values))
            for text in (id, *values, *(answers or [])):
                need("\0" not in text)
                text.encode()
        return {id: (values, answers) for id, [(values, answers)] in entries.items()}

    documents = check(records("corpus.jsonl", "title", "text"))
    rows = []
    for index, line in enumerate(lines(folder, "train.tsv")):
        cells = line.split("\t")
        need(len(cells) == 3 and all(map(str.strip, cells)))
        if index or cells[2] != "score":
            digits = cells[2].strip().lstrip("+-")
            need(
                digits.isascii()
                and digits.isdigit()
                and len(digits) < 10
                and len(cells[2].strip()) - len(digits) < 2
            )
            rows.append((cells[0], cells[1], int(cells[2])))
    judged = {row[0] for row in rows}
    queries = check({id: given for id, given in records("queries.jsonl", "text").items() if id in judged})
    grades: dict = {}
    for query, document, grade in rows:
        need(query in queries and document in documents)
        need(grades.setdefault(query, {}).setdefault(document, grade) == grade)
    used = {id: grades[id] for id in queries if any(grade > 0 for grade in grades[id].values())}
    need(documents and used)
    return {"documents": documents, "queries": {id: (queries[id], used[id]) for id in used}}


def read(folder: Path) -> dict:
    collection = Beir(folder=folder, splits={"train": "train.tsv"}).read()
    documents, split = collection.documents, collection.split("train")
    texts = [(list(documents[row].values()), None) for row in range(len(documents))]
    answers = split.queries.columns.get("answers")
    judged = collection.judgments("train")
    queries = {
        id: (([split.queries.columns["text"][row]], json.loads(answers[row]) if answers else []), judged[id])
        for row, id in enumerate(split.queries.ids)
    }
    return {"documents": dict(zip(documents.ids, texts, strict=True)), "queries": queries}


def without_none(result: dict) -> dict:
    queries = {
        id: ((texts, answers or []), grades) for id, ((texts, answers), grades) in result["queries"].items()
    }
    return {"documents": result["documents"], "queries": queries}


@pytest.mark.parametrize("seed", range(8))
def test_damaged_copies_are_errors_or_read_like_the_reference(tmp_path, seed):
    """200 copies with one to three damages each; no copy takes 20 seconds."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    assert read(tmp_path) == without_none(slowly(tmp_path))
    signal.alarm(120)
    for number in range(200):
        random = Random(f"{seed} {number}")
        name = random.choice(list(FILES))
        damages, packed, raw = damaged(random, FILES[name].encode())
        path = tmp_path / f"{name}{'.gz' * packed}"
        (tmp_path / name).unlink()
        path.write_bytes(raw)
        try:
            expected = without_none(slowly(tmp_path))
        except Exception:
            expected = None
        try:
            found = read(tmp_path)
        except (ValueError, OSError) as error:
            assert expected is None, (number, name, damages, error)
            assert str(tmp_path) in str(error) and not isinstance(error, UnicodeError), (
                number,
                damages,
                error,
            )
            assert len(str(error)) < 3000
        else:
            assert found == expected, (number, name, damages)
        path.unlink()
        (tmp_path / name).write_text(FILES[name])
    signal.alarm(0)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.replace(b"\n", b"\r\r\n"),
        lambda raw: MARK + raw.replace(b"\n", b"\r\n"),
        lambda raw: raw.removesuffix(b"\n"),
        lambda raw: raw + b"\n\r\n",
        lambda raw: gzip.compress(raw[:40]) + gzip.compress(raw[40:]) + b"\0" * 9,
    ],
    ids=["windows twice", "mark and windows", "no last end", "empty lines", "gzip in two parts"],
)
def test_harmless_changes(tmp_path, change):
    for folder in ("plain", "changed"):
        (tmp_path / folder).mkdir()
    for name, text in FILES.items():
        (tmp_path / "plain" / name).write_text(text)
        raw = change(text.encode())
        (tmp_path / "changed" / f"{name}{'.gz' * raw.startswith(b'\x1f\x8b')}").write_bytes(raw)
    assert read(tmp_path / "changed") == read(tmp_path / "plain")
