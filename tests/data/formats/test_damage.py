"""Damaged files of every format: what an issue would name, one by one, and random damage; the thousands are `damage.py`'s."""

import gzip
import re
import time

import pytest
from data.formats import damage
from data.formats.damage import copies, judged
from data.formats.kinds import KINDS, Kind
from data.formats.samples import REAL, WRITTEN

FILES = [(name, file) for name, sample in WRITTEN.items() for file in sample.files]


def faults_of(found) -> list[str]:
    return [f"{copy.number} {copy.file} {copy.damages}: {copy.outcome}: {copy.fault}" for copy in found if copy.fault]


@pytest.mark.parametrize("name", WRITTEN)
def test_damaged_copies_are_refused_by_name_or_read_as_a_slow_reading_does(tmp_path, name):
    assert faults_of(copies(WRITTEN[name], tmp_path, name, 0, range(200))) == []


@pytest.mark.parametrize("name", REAL)
def test_damaged_copies_of_real_files(shared_data, tmp_path, name):
    assert faults_of(copies(REAL[name](shared_data), tmp_path, name, 0, range(20))) == []


@pytest.fixture
def folder(tmp_path):
    """Writes the files of a sample, with some changed, and returns the folder; bytes that may be gzip's have .gz after the name."""

    def write(name: str, changed: dict[str, bytes] | None = None):
        for file, raw in {**WRITTEN[name].files, **(changed or {})}.items():
            path = tmp_path / (file if raw and not raw.startswith(b"\x1f\x8b") else f"{file}.gz")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(raw)
        return tmp_path

    return write


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
    ids=["windows", "windows twice", "byte order mark", "mark and windows", "no last end", "empty lines", "gzip", "gzip in two parts"],
)
@pytest.mark.parametrize("name", WRITTEN)
def test_what_changes_nothing(folder, name, change):
    place = folder(name)
    whole = KINDS[name].read(place)
    changed = {file: change(raw) for file, raw in WRITTEN[name].files.items()}
    for file in changed:
        (place / file).unlink()
    assert KINDS[name].read(folder(name, changed)) == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[:3] + b"\0" + raw[3:], r"line 1: (a NUL byte at column 4; expected UTF-8; .*iconv -f UTF-16|malformed JSON)"),
        (lambda raw: raw.decode().encode("utf-16"), r"line 1: (a NUL byte at column 4; .*iconv -f UTF-16|byte 0xff is not UTF-8)"),
        (lambda raw: b"\xef\xbb\xbf" * 2 + raw, r"line 1: (a byte order mark; expected one at most, where the file begins|.* in a JSON list)"),
        (lambda raw: gzip.compress(raw)[:-9], r"line \d+: damaged gzip file \(.*\); expected a whole \.gz file; copy or download it again"),
        (lambda raw: gzip.compress(raw)[:30], r"line \d+: damaged gzip file"),
        (lambda raw: gzip.compress(raw) + b"more", r"line \d+: damaged gzip file"),
        (lambda raw: b"", r"line 1: (damaged gzip file \(it is empty\)|the end of the file in a JSON list)"),
    ],
    ids=["NUL", "utf-16", "two marks", "truncated gzip", "half a gzip", "more than gzip", "nothing in gzip"],
)
@pytest.mark.parametrize(("name", "file"), FILES)
def test_bytes_that_are_no_text_are_named(folder, name, file, change, message):
    place = folder(name, {file: change(WRITTEN[name].files[file])})
    with pytest.raises(ValueError, match=rf"{file}(\.gz)?, {message}"):
        KINDS[name].read(place)


LONG = "long " * 1_000_000


@pytest.mark.parametrize(
    ("name", "file", "line"),
    [
        ("beir", "corpus.jsonl", f'{{"_id": "long", "text": "{LONG}"}}'),
        ("beir", "queries.jsonl", f'{{"_id": "long", "text": "{LONG}"}}'),
        ("msmarco_doc", "docs.tsv", f"long\t\t\t{LONG}"),
        ("msmarco_passage", "collection.tsv", f"long\t{LONG}"),
        ("pyserini_jsonl", "corpus.jsonl", f'{{"id": "long", "contents": "{LONG}"}}'),
        ("qrels", "qrels.txt", f"{LONG.replace(' ', '')} 0 d1 1"),
    ],
)
def test_a_line_of_5_mb_is_read(folder, name, file, line):
    place = folder(name, {file: WRITTEN[name].files[file] + line.encode()})
    assert judged(name, place, {}) == ("read more", "")


@pytest.mark.parametrize(
    ("name", "file", "line", "message"),
    [
        ("dpr", "psgs.tsv", f"4\t{LONG}\ttitle", r"line 5: field larger than field limit \(131072\), in '4\\tlong .*\.\.\.; expected 3 columns"),
        ("dpr", "qrels.txt", f"0 0 {LONG.replace(' ', '')} 1", r"1 judgments of split 'test' .*qrels\.txt:4 0 longlong"),
        ("msmarco_doc", "docs.tsv", LONG, "line 4: 1 columns in 'long .*; expected 4 columns"),
        ("msmarco_passage", "collection.tsv", f"7\t8\t{LONG}", "line 4: 3 columns in .*; expected 2 columns"),
        ("beir", "corpus.jsonl", f'{{"_id": "long", "text": ["{LONG}"]}}', "line 4: text .*; expected a string"),
        ("run", "run.trec", f"{LONG.replace(' ', '')} Q0 d1 1 x tag", "line 4: score 'x'; expected a finite number"),
        ("qrels", "qrels.txt", f"1 0 7 {'9' * 5_000_000}", "line 5: grade '999.*; expected a whole number of at most nine digits"),
    ],
)
def test_a_line_of_5_mb_is_refused_in_few_words(folder, name, file, line, message):
    place = folder(name, {file: WRITTEN[name].files[file] + line.encode()})
    with pytest.raises(ValueError, match=message) as error:
        KINDS[name].read(place)
    assert str(place / file) in str(error.value)
    assert len(str(error.value)) < 1000


def dropping(folder) -> dict:
    found = KINDS["beir"].read(folder)
    return {**found, "documents": found["documents"][:-1]}


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
    found, said = judged("faulty", folder("beir"), whole)
    assert found == outcome
    assert re.match(fault, said)
