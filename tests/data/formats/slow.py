"""Reference readers: slow and independent of the package, with all bytes at once, lists and dictionaries.

A result is {"documents": [(id, fields)], "splits": {name: [(id, text, answers, [(document id, grade)])]},
"skipped": counts}. Any exception means that the files are invalid.
"""

import ast
import gzip
import hashlib
import io
import json
import re
import tokenize
import warnings
from pathlib import Path

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
CSV_CHARACTERS = 131072


def need(condition) -> None:
    if not condition:
        raise ValueError("to be refused")


def content(path: Path) -> bytes:
    """The bytes of the file, or of the file with .gz after its name."""
    if path.is_file():
        return path.read_bytes()
    packed = path.with_name(path.name + ".gz").read_bytes()
    need(packed)
    return gzip.decompress(packed)


def lines(path: Path) -> list[tuple[int, str]]:
    """Numbers, from 1, and texts of the lines that are not empty."""
    raw = content(path)
    need(b"\0" not in raw)
    result = [line.rstrip(b"\r") for line in raw.removeprefix(BYTE_ORDER_MARK).split(b"\n")]
    need(not any(line.startswith(BYTE_ORDER_MARK) for line in result))
    return [(number, line.decode()) for number, line in enumerate(result, start=1) if line]


def rows(path: Path, width: int) -> list[list[str]]:
    result = [line.split("\t") for _, line in lines(path)]
    need(all(len(row) == width for row in result))
    return result


def filled_rows(path: Path, width: int) -> list[list[str]]:
    result = rows(path, width)
    need(all(cell.strip() for row in result for cell in row))
    return result


def csv_row(text: str) -> list[str]:
    """Cells separated by tabs; a cell that starts with a double quote ends at the next one that is not
    doubled.
    """
    cells, rest = [], text + "\t"
    while rest:
        if rest.startswith('"'):
            quoted = re.match(r'"((?:[^"]|"")*)"\t', rest)
            cells.append(quoted[1].replace('""', '"'))
            rest = rest[quoted.end() :]
        else:
            cell, _, rest = rest.partition("\t")
            need("\r" not in cell)
            cells.append(cell)
    need(all(len(cell) <= CSV_CHARACTERS for cell in cells))
    return cells


def json_object(text: str) -> dict:
    record = json.loads(text)
    need(isinstance(record, dict))
    return record


def json_objects(path: Path) -> list[dict]:
    return [json_object(line) for _, line in lines(path)]


def json_list(path: Path) -> list[dict]:
    records = json.loads(content(path).removeprefix(BYTE_ORDER_MARK).decode())
    need(isinstance(records, list) and all(isinstance(record, dict) for record in records))
    return records


def records(path: Path) -> list[dict]:
    """The records of one JSON list, or of one record per line."""
    text = content(path).removeprefix(BYTE_ORDER_MARK)
    return json_list(path) if text.lstrip(b" \t\r\n").startswith(b"[") else json_objects(path)


def id_of(record: dict, *keys: str) -> str:
    value = next(record[key] for key in keys if key in record)
    need(type(value) in (str, int))
    return str(value)


def text_of(record: dict, key: str) -> str:
    value = record.get(key)
    need(value is None or isinstance(value, str))
    return value or ""


def answers_of(record: dict, *keys: str) -> list[str] | None:
    value = next((record[key] for key in keys if record.get(key) is not None), None)
    need(value is None or (isinstance(value, list) and all(isinstance(answer, str) for answer in value)))
    return value


def id_of_text(text: str) -> str:
    need("\0" not in text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def dpr_question(index: int, record: dict) -> tuple[str, str, list[str]]:
    answers = answers_of(record, "answers", "answer")
    need(answers is not None)
    return str(index), text_of(record, "question"), answers


def tevatron_question(record: dict) -> tuple[str, str, list[str] | None]:
    return id_of(record, "query_id"), text_of(record, "query"), answers_of(record, "answers")


def contexts(record: dict, key: str, *ids: str) -> list[str]:
    """The ids of the passages that a record lists."""
    need(isinstance(record[key], list) and all(isinstance(one, dict) for one in record[key]))
    for one in record[key]:
        for name in ("title", "text"):
            text_of(one, name)
    return [id_of(one, *ids) for one in record[key]]


def python_list(text: str) -> list[str]:
    """A list of plain strings with commas between them; Python concatenates strings without commas."""
    tokens = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text.strip(" \t")).readline)
        if token.string.strip()
    ]
    need(tokens[0] == "[" and tokens[-1] == "]")
    need(all(re.match("""[uU]?(?!\"\"\"|''')['"]""", string) for string in tokens[1:-1:2]))
    need(all(token == "," for token in tokens[2:-1:2]))
    with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
        return ast.literal_eval(text)


def grade(text: str) -> int:
    need(re.fullmatch("[+-]?[0-9]{1,9}", text.strip()))
    return int(text)


def score(text: str) -> float:
    need(re.fullmatch(NUMBER, text) and abs(float(text)) < float("inf"))
    return float(text)


def beir_qrels(path: Path) -> list[tuple[str, str, int]]:
    result = filled_rows(path, 3)
    headed = result and result[0][2] == "score"
    return [(query, document, grade(value)) for query, document, value in result[1 if headed else 0 :]]


def trec_rows(path: Path, width: int) -> list[list[str]]:
    result = [line.split() for _, line in lines(path)]
    need(all(len(row) == width for row in result))
    return result


def trec_qrels(path: Path) -> list[tuple[str, str, int]]:
    return [(query, document, grade(value)) for query, _, document, value in trec_rows(path, 4)]


def by_query(triples, may_repeat: bool = False) -> dict:
    """Check a run or qrels: each document occurs once per query, and the file is not empty.

    `may_repeat`: it may occur again with the same value.
    """
    result = {}
    for query, document, value in triples:
        known = result.setdefault(query, {})
        need(document not in known or (may_repeat and known[document] == value))
        result[query][document] = value
    need(result)
    return result


def trec_run(path: Path) -> dict:
    return by_query((query, document, score(value)) for query, _, document, _, value, _ in trec_rows(path, 6))


def tsv_texts(path: Path) -> list[tuple[str, str]]:
    return [(id, text) for id, text in filled_rows(path, 2)]


def lookup(path: Path) -> list[tuple[int, str]]:
    """The bytes at which documents start and their ids, in order, as msmarco-docs-lookup.tsv lists them."""
    result = filled_rows(path, 3)
    need(all(re.fullmatch("[0-9]{1,18}", start) for _, _, start in result))
    return sorted((int(start), id) for id, _, start in result)


def line_starts(path: Path) -> list[tuple[int, str]]:
    """The byte at which each line starts, and its first cell."""
    result, start = [], 0
    for line in content(path).removesuffix(b"\n").split(b"\n"):
        result.append((start, line.split(b"\t")[0].decode()))
        start += len(line) + 1
    return result


def passages(path: Path) -> list[tuple[str, dict]]:
    """DPR's passages: a complete header is allowed in the first line only, and nothing similar further
    down.
    """
    result = []
    for number, (_, line) in enumerate(lines(path), start=1):
        id, text, title = csv_row(line)
        if (number, id, text, title) != (1, "id", "text", "title"):
            need(id != "id" and (text, title) != ("text", "title"))
            result.append((id, {"title": title, "text": text}))
    return result


def check_ids(ids: list[str]) -> None:
    check([(id, ["a text"], []) for id in dict.fromkeys(ids)])


def check(entries: list[tuple[str, list[str], list[str]]]) -> None:
    """The ids, texts and answers of questions."""
    ids = [id for id, _, _ in entries]
    need(len(set(ids)) == len(ids))
    for id, texts, answers in entries:
        need(id and not re.search(r"\s", id))
        need(any(text.strip() for text in texts))
        need("\0" not in "".join([id, *texts, *answers]))
        "".join([id, *texts, *answers]).encode()


def collection(documents, splits, unknown_ids: str = "refuse", relevance_threshold: int = 1) -> dict:
    """The result for `splits`: by name, queries (id, text, answers or None) and judgments (query id, document
    id, grade).
    """
    check([(id, list(fields.values()), []) for id, fields in documents])
    need(documents)
    ids, splits_read, skipped = {id for id, _ in documents}, {}, {}
    for name, (queries, judgments) in splits.items():
        queries = [(id, " ".join(text.split()), answers or []) for id, text, answers in queries]
        check([(id, [text], answers) for id, text, answers in queries])
        judged = {id: {} for id, _, _ in queries}
        unknown = [
            (query, document)
            for query, document, _ in judgments
            if query not in judged or document not in ids
        ]
        need(not unknown or unknown_ids == "skip")
        for query, document, value in judgments:
            if query in judged and document in ids:
                need(judged[query].setdefault(document, value) == value)
        with_positives = [
            (*query, list(judged[query[0]].items()))
            for query in queries
            if max(judged[query[0]].values(), default=-1) >= relevance_threshold
        ]
        need(with_positives)
        splits_read[name] = with_positives
        skipped[f"{name} queries without positives"] = len(queries) - len(with_positives)
        skipped[f"{name} judgments of queries without positives"] = sum(
            len(grades) for grades in judged.values()
        ) - sum(len(one[-1]) for one in with_positives)
        skipped[f"{name} judgments of unknown ids"] = len(unknown)
    return {
        "documents": documents,
        "splits": splits_read,
        "skipped": {what: count for what, count in skipped.items() if count},
    }
