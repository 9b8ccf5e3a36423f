"""Damaged files of every format: typical damage one by one, and random damage; `damage.py` tests any number
of copies.
"""

import gzip
import re
import time

import pytest
from data.formats import damage
from data.formats.damage import copies, judged
from data.formats.kinds import KINDS, Kind
from data.formats.samples import REAL, WRITTEN


def faults_of(result) -> list[str]:
    return [
        f"{copy.number} {copy.file} {copy.damages}: {copy.outcome}: {copy.fault}"
        for copy in result
        if copy.fault
    ]


@pytest.mark.parametrize("name", WRITTEN)
def test_damaged_copies_are_errors_or_read_like_the_reference(tmp_path, name):
    assert faults_of(copies(WRITTEN[name], tmp_path, name, 0, range(200))) == []


@pytest.mark.parametrize("name", REAL)
def test_damaged_copies_of_real_files(shared_data, tmp_path, name):
    assert faults_of(copies(REAL[name](shared_data), tmp_path, name, 0, range(20))) == []


@pytest.mark.long
@pytest.mark.parametrize("name", REAL)
def test_many_damaged_copies_of_real_files(shared_data, tmp_path, name):
    """8,000 copies of all samples together, 3 ms each."""
    assert faults_of(copies(REAL[name](shared_data), tmp_path, name, 0, range(20, 420))) == []


def texts(name: str) -> dict[str, bytes]:
    return {file: raw for file, raw in WRITTEN[name].files.items() if not file.endswith(".parquet")}


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.replace(b"\n", b"\r\n"),
        lambda raw: raw.replace(b"\n", b"\r\r\n"),
        lambda raw: b"\xef\xbb\xbf" + raw,
        lambda raw: b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n"),
        lambda raw: raw.removesuffix(b"\n"),
        lambda raw: raw + b"\n\r\n",
        gzip.compress,
        lambda raw: gzip.compress(raw[:40]) + gzip.compress(raw[40:]) + b"\0" * 9,
    ],
    ids=[
        "windows",
        "windows twice",
        "byte order mark",
        "mark and windows",
        "no last end",
        "empty lines",
        "gzip",
        "gzip in two parts",
    ],
)
def test_harmless_changes(folder, change):
    for name in WRITTEN:
        changed = {file: change(raw) for file, raw in texts(name).items()}
        assert KINDS[WRITTEN[name].kind].read(folder(name, changed)) == KINDS[WRITTEN[name].kind].read(
            folder(name)
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda raw: raw[:3] + b"\0" + raw[3:],
            r"line 1: (a NUL byte at column 4; expected UTF-8; .*iconv -f UTF-16|malformed JSON)",
        ),
        (
            lambda raw: raw.decode().encode("utf-16"),
            r"line 1: (a NUL byte at column 4; .*iconv -f UTF-16|byte 0xff is not UTF-8)",
        ),
        (
            lambda raw: b"\xef\xbb\xbf" * 2 + raw,
            r"line 1: (a byte order mark; expected at most one, at the start of the file|.* in a JSON list)",
        ),
        (
            lambda raw: gzip.compress(raw)[:-9],
            r"line \d+: damaged gzip file \(.*\); expected a whole \.gz file; copy or download it again",
        ),
        (lambda raw: gzip.compress(raw)[:30], r"line \d+: damaged gzip file"),
        (lambda raw: gzip.compress(raw) + b"more", r"line \d+: damaged gzip file"),
        (lambda raw: b"", r"line 1: (damaged gzip file \(it is empty\)|the end of the file in a JSON list)"),
    ],
    ids=["NUL", "utf-16", "two marks", "truncated gzip", "half a gzip", "more than gzip", "nothing in gzip"],
)
def test_bytes_that_are_not_text_are_errors(folder, change, message):
    for name in WRITTEN:
        for file, raw in texts(name).items():
            with pytest.raises(ValueError, match=rf"{file}(\.gz)?, {message}"):
                KINDS[WRITTEN[name].kind].read(folder(name, {file: change(raw)}))


LONG = b"longlong " * 560_000


def added(name: str, file: str, line: str) -> dict[str, bytes]:
    """The file with one more line, in which TEXT becomes a text of 5 MB, and ID an id of 5 MB."""
    long = line.encode().replace(b"TEXT", LONG).replace(b"ID", LONG.replace(b" ", b""))
    return {file: WRITTEN[name].files[file] + long}


@pytest.mark.parametrize(
    ("name", "file", "line"),
    [
        ("beir", "queries.jsonl", '{"_id": "long", "text": "TEXT"}'),
        ("msmarco_doc", "docs.tsv", "long\t\t\tTEXT"),
        ("pyserini_jsonl", "corpus.jsonl", '{"id": "long", "contents": "TEXT"}'),
        ("qrels", "qrels.txt", "ID 0 d1 1"),
    ],
)
def test_a_line_of_5_mb_is_read(folder, name, file, line):
    target = folder(name, added(name, file, line))
    assert judged(WRITTEN[name].kind, target, KINDS[WRITTEN[name].kind].read(folder(name))) in [
        ("read more", ""),
        ("read equal", ""),
    ]


@pytest.mark.parametrize(
    ("name", "file", "line", "message"),
    [
        (
            "dpr",
            "psgs.tsv",
            "4\tTEXT\ttitle",
            r"line 5: field larger than field limit \(131072\), in '4\\tlong.*\.\.\.; expected 3 columns",
        ),
        ("dpr", "qrels.txt", "0 0 ID 1", r"1 judgments of split 'test' .*qrels\.txt:4 0 longlong"),
        ("msmarco_passage", "collection.tsv", "7\t8\tTEXT", "line 4: 3 columns in .*; expected 2 columns"),
        ("beir", "corpus.jsonl", '{"_id": "long", "text": ["TEXT"]}', "line 4: text .*; expected a string"),
        ("run", "run.trec", "ID Q0 d1 1 ID tag", r"line 4: score 'long.*\.\.\.; expected a finite number"),
    ],
)
def test_a_line_of_5_mb_gives_a_short_error(folder, name, file, line, message):
    target = folder(name, added(name, file, line))
    with pytest.raises(ValueError, match=message) as error:
        KINDS[WRITTEN[name].kind].read(target)
    assert str(target / file) in str(error.value)
    assert len(str(error.value)) < 1000


def dropping(folder) -> dict:
    result = KINDS["beir"].read(folder)
    return {**result, "documents": result["documents"][:-1]}


def sleeping(folder) -> dict:
    time.sleep(60)
    return {}


def stumbling(folder) -> dict:
    raise KeyError("text")


def silent(folder) -> dict:
    raise ValueError("something is wrong")


@pytest.mark.parametrize(
    ("read", "outcome", "fault"),
    [
        (dropping, "read fewer", "read .*\n *not "),
        (sleeping, "hang", "no end after"),
        (stumbling, "another exception", "KeyError: 'text'"),
        (silent, "refused", "names no file, good bytes: ValueError: something is wrong"),
    ],
)
def test_faults_are_found(folder, monkeypatch, read, outcome, fault):
    whole = KINDS["beir"].read(folder("beir"))
    monkeypatch.setitem(damage.KINDS, "faulty", Kind(read, KINDS["beir"].slowly))
    monkeypatch.setattr(damage, "SECONDS", 0.1)
    result, said = judged("faulty", folder("beir"), whole)
    assert result == outcome
    assert re.match(fault, said)
