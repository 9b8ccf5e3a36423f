"""Random damage to files of one reader: an error that names the file, or what a slow reader reads."""

import codecs
import gzip
import json
import logging
import re
import signal
from functools import lru_cache
from pathlib import Path
from random import Random

import pytest

from pyserini_ance.data.formats import format
from pyserini_ance.data.formats.beir import Beir
from pyserini_ance.data.formats.lines import column_roles

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
NUMBERS = [*"99999999999 -2147483649 1_0 0x1 \u0661 1e999 NaN 1.0 -1 0".encode().split(), b"9" * 5000]
VALUES = [*b'null true 1.5 {} [] [["a"]] {"a":{"b":[1]}} "" "\\ud800" "\\u0000" "\\ufeff"'.split(), b'" "']
CHARACTERS = [b"\0", MARK, b"\r", b"\n", b"\r\n", b"\t", b" ", b'"', b"'", b"\\", b"{", b",", b"\\ud83d"]
CHARACTERS += [b"\xed\xa0\x80", b"\xff", b"\xc3", b"\x1c"]
CHARACTERS += [character.encode() for character in "\u2028\x85\u00a0"]
NESTED = [b"[" * 100_000, b'{"a":' * 3000, b"[" * 300 + b"]" * 300, b"x" * 200_000]
REPLACED = {
    rb"\n": [b"", b" ", b"\t", b"\r", "\u2028".encode(), b"\r\n", b"\r\r\n"],
    rb"[ ,\t]": [b"\n", b"\r\n", b"\n\n", b"", b"\t", b"\t\t", b"  ", b","],
    rb"[\"']": [b"", b'""', b"'", b'"', b'\\"', b'"""', b"\xe2\x80\x9d"],
    rb"[][{}:,]": [b"", b"[", b"]", b"{", b"}", b":", b",", b",,"],
    rb'"\w+":': [b'"%s":' % key for key in b"_id text title x id answers Text body".split()],
    rb"\d+": NUMBERS,
    rb'"[^"]*"(?!:)|\[[^][]*\]': VALUES,
}
# Members of an object and strings, of which a copy is put after or in place of another one.
REPEATED = [rb'"\w+": *(?:"(?:[^"\\]|\\.)*"|\d+)', rb'"(?:[^"\\]|\\.)*"', rb"(?<![\w-])[\w-]++(?=\t)"]
ENCODINGS = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252", "mac-roman", "utf-8-sig"]
HEADERS = [b"query-id\tcorpus-id\tscore\n", b"corpus-id\tquery-id\tlabel\n", b"relevance\tQuery_ID\tdocid\n"]
HEADERS += [b"qid\tcorpus-id\trank\n", b"query-id\tcorpus-id\tfound\n"]
MANY = [pytest.param(seed, 12_500, marks=pytest.mark.long) for seed in range(8, 12)]
tried = set()  # many damages are the same change again


def damaged(random: Random, raw: bytes) -> bytes:
    """One change: of bits, bytes, lines, columns, keys, header, encoding, or of a match of REPLACED."""
    start = random.randrange(len(raw) + 1)
    stop = start + random.choice([0, 1, 1, 2, 5, 100, 3000])
    kind = random.randrange(12)
    if kind == 0:
        return raw[:start] + raw[stop:]
    if kind == 1:
        return raw[:stop] + raw[start:]  # twice
    if kind == 2:
        return raw[:start] + random.choice([random.randbytes(3), *CHARACTERS, *NESTED]) + raw[start:]
    if kind == 3:
        changed = bytearray(raw)
        changed[random.randrange(len(raw))] ^= 1 << random.randrange(8)
        return bytes(changed)
    if kind == 4:
        lines = raw.splitlines(keepends=True)
        one, other = random.randrange(len(lines)), random.randrange(len(lines))
        lines[one], lines[other] = random.choice([(b"", lines[other]), (lines[other], lines[one])])
        return b"".join(lines)
    if kind == 5:
        return raw.decode(errors="replace").encode(random.choice(ENCODINGS), errors="replace")
    if kind == 6:
        return raw.replace(b"\n", random.choice([b"\r", b"\r\n", b"\r\r\n", b"\n\n", b"\n\r", b"\x85"]))
    if kind == 7:
        lines = raw.splitlines(keepends=True)
        first = random.choice([0, 0, random.randrange(len(lines))])
        return b"".join([*lines[:first], random.choice(HEADERS), *lines[first + random.randrange(2) :]])
    if kind == 8:
        order = random.sample(range(3), 3)
        rows = [line.split(b"\t") for line in raw.splitlines()]
        moved = [[row[place] for place in order] if len(row) == 3 else row for row in rows]
        moved[0] = random.choice([moved[0], rows[0]])
        return b"".join(b"\t".join(row) + b"\n" for row in moved)
    if kind == 9:
        parts = list(re.finditer(random.choice(REPEATED), raw))
        if not parts:
            return raw
        one, other = random.choice(parts), random.choice(parts)
        start, between = random.choice([(one.start(), b""), (one.end(), b", "), (one.end(), b"")])
        return raw[:start] + between + other[0] + raw[one.end() :]
    pattern = random.choice(list(REPLACED))
    matches = list(re.finditer(pattern, raw))
    if not matches:
        return b""
    match = random.choice(matches)
    return raw[: match.start()] + random.choice(REPLACED[pattern]) + raw[match.end() :]


def need(condition) -> None:
    if not condition:
        raise ValueError("to be refused")


def once(pairs: list[tuple]) -> dict:
    need(len(dict(pairs)) == len(pairs))
    return dict(pairs)


def lines(raw: bytes) -> list[str]:
    need(b"\0" not in raw)
    rows = [line.rstrip(b"\r") for line in raw.removeprefix(MARK).split(b"\n")]
    need(not any(row.startswith(MARK) for row in rows))
    return [row.decode() for row in rows if row]


@lru_cache(maxsize=9)
def records(raw: bytes, *fields: str) -> dict[str, list[tuple]]:
    """By id: the texts, on one line in queries, and the answers of each record."""
    found = {}
    for line in lines(raw):
        record = json.loads(line, object_pairs_hook=once)
        need(isinstance(record, dict) and type(record.get("_id")) in (str, int))
        need("text" in record)
        values = [record.get(field) or "" for field in fields]
        need(all(record.get(field) is None or isinstance(record[field], str) for field in fields))
        answers = record.get("answers") if fields == ("text",) else None
        need(answers is None or (isinstance(answers, list) and {str} >= set(map(type, answers))))
        if fields == ("text",):
            values = [" ".join(value.split()) for value in values]
        found.setdefault(str(record["_id"]), []).append((values, answers or []))
    return found


@lru_cache(maxsize=9)
def judgments(raw: bytes) -> list[tuple[str, str, int]]:
    rows, columns = [], ["query", "document", "grade"]
    for index, line in enumerate(lines(raw)):
        cells = line.split("\t")
        need(len(cells) == 3 and all(map(str.strip, cells)))
        roles = column_roles(cells)
        if index == 0 and {*roles} == {*columns}:
            columns = roles
            continue
        query, document, grade = (cells[columns.index(role)] for role in ("query", "document", "grade"))
        need(match := re.fullmatch(r"([+-]?[0-9]{1,9})(\.0*)?", grade.strip()))
        rows.append((query, document, int(match[1])))
    return rows


def slowly(folder: Path) -> dict:
    raw = {}
    for name in FILES:
        plain, packed = folder / name, folder / f"{name}.gz"
        raw[name] = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
        need(raw[name] or plain.exists())
        if raw[name][:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raw[name] = MARK + raw[name].decode("utf-16").encode()

    def check(entries: dict) -> dict:
        for id, given in entries.items():
            need(len(given) == 1 and id.split() == [id])
            values, answers = given[0]
            need(any(value.strip() for value in values))
            for text in (id, *values, *answers):
                need("\0" not in text)
                text.encode()
        return {id: given for id, [given] in entries.items()}

    documents = check(records(raw["corpus.jsonl"], "title", "text"))
    rows = judgments(raw["train.tsv"])
    judged = {row[0] for row in rows}
    asked = records(raw["queries.jsonl"], "text")
    queries = check({id: given for id, given in asked.items() if id in judged})
    grades: dict = {}
    for query, document, grade in rows:
        need(query in queries and document in documents)
        need(grades.setdefault(query, {}).setdefault(document, grade) == grade)
    used = {id: grades[id] for id in queries if any(grade > 0 for grade in grades[id].values())}
    need(documents and used)
    texts = {id: values for id, (values, _) in documents.items()}
    return {"documents": texts, "queries": {id: (*queries[id], used[id]) for id in used}}


def read(folder: Path) -> dict:
    collection = Beir(folder=folder, splits={"train": "train.tsv"}).read(trained_on={"train"})
    documents, queries = collection.documents, collection.split("train").queries
    answers, judged = queries.columns.get("answers"), collection.judgments("train")
    texts = {id: list(documents[row].values()) for row, id in enumerate(documents.ids)}
    listed = list(map(json.loads, answers)) if answers else [[]] * len(queries)
    rows = zip(queries.ids, queries.columns["text"], listed, strict=True)
    return {"documents": texts, "queries": {id: ([text], given, judged[id]) for id, text, given in rows}}


@pytest.mark.parametrize(("seed", "copies"), [*((seed, 200) for seed in range(8)), *MANY])
def test_damaged_copies_fail_or_equal_the_reference(tmp_path, request, caplog, monkeypatch, seed, copies):
    """Copies with one to three damages each, a quarter of them packed, before or after the damage."""
    monkeypatch.setattr(format, "JUDGMENTS_PER_BLOCK", 2)  # several, and no room for many: half the time
    caplog.set_level(logging.ERROR)  # 25,000 captured warnings take minutes
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    assert read(tmp_path) == slowly(tmp_path)
    signal.alarm(max(120, copies // 10))
    request.addfinalizer(lambda: signal.alarm(0))  # also after a failure
    for number in range(copies):
        random = Random(f"{seed} {number}")
        name = random.choice(list(FILES))
        packed, raw = random.random() < 0.25, FILES[name].encode()
        first = packed and random.random() < 0.7
        raw = gzip.compress(raw, 1, mtime=0) if first else raw
        for _ in range(1 if first else random.choice([1, 1, 1, 2, 3])):
            raw = damaged(random, raw or b"\n")
        raw = gzip.compress(raw, 1, mtime=0) if packed and not first else raw
        path = tmp_path / f"{name}{'.gz' * packed}"
        if (path.name, hash(raw)) in tried:
            continue
        tried.add((path.name, hash(raw)))
        (tmp_path / name).unlink()
        path.write_bytes(raw)
        try:
            expected = slowly(tmp_path)
        except Exception:
            expected = None
        try:
            assert read(tmp_path) == expected, (number, name)
        except (ValueError, OSError) as error:
            assert expected is None and not isinstance(error, UnicodeError), (number, name, error)
            assert str(tmp_path) in str(error) and len(str(error)) < 3000
        path.unlink()
        (tmp_path / name).write_text(FILES[name])
