"""A reading that was killed continues after its last finished part, and stores the same bytes."""

import gzip
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from data.formats.kinds import KINDS
from data.formats.samples import WRITTEN
from data.formats.test_format import NO_COLLECTIONS

from pyserini_ance.data.collection_cache import open_collection, store_collection
from pyserini_ance.data.formats import builder
from pyserini_ance.data.formats import reading as readings
from pyserini_ance.data.formats.format import Format
from pyserini_ance.data.formats.pyserini_jsonl import PyseriniJsonl
from pyserini_ance.data.formats.reading import PART_FILE, reading
from pyserini_ance.data.formats.tevatron import Tevatron
from pyserini_ance.storage.locks import locked
from pyserini_ance.storage.publish import MANIFEST

PER_PART = 3
# Three files of 4, 4 and 3 documents; some lines are empty, and the last one has no end.
LINES = [
    b'\xef\xbb\xbf{"id": "d0", "contents": "zero"}\r\n\n{"id": "d1", "contents": "na\xc3\xafve"}\n'
    b'{"id": "d2", "contents": "two"}\n{"id": "d3", "contents": "three"}\n',
    b'\n{"id": "d4", "contents": "four \xf0\x9f\x98\x80"}\r\n{"id": "d5", "contents": "five\\nlines"}\n\n'
    b'{"id": "d6", "contents": "six"}\n{"id": "d7", "title": "a", "text": "seven"}\n',
    b'{"id": "d8", "contents": "eight"}\n{"id": "d9", "contents": "nine"}\n{"id": "d10", "contents": "ten"}',
]
READER = """
import sys
from pathlib import Path
from data.formats import test_reading

test_reading.stop_at(int(sys.argv[2]), lambda: (print("killed here", flush=True), sys.stdin.read()))
test_reading.read(test_reading.corpus_in(Path(sys.argv[1])), Path(sys.argv[1]))
"""


class Killed(BaseException):
    """The end of a process that is simulated within this one."""


def killed() -> None:
    raise Killed


def write_corpus(folder: Path, extension: str = "") -> PyseriniJsonl:
    (folder / "corpus").mkdir(parents=True)
    for name, raw in zip("abc", LINES, strict=True):
        path = folder / "corpus" / f"{name}.jsonl{extension}"
        path.write_bytes(gzip.compress(raw) if extension else raw)
    (folder / "topics.tsv").write_text("q\ta number\n")
    (folder / "qrels").write_text("q 0 d5 1\n")
    age(folder, 60)
    return corpus_in(folder)


def corpus_in(folder: Path) -> PyseriniJsonl:
    splits = {"test": {"topics": folder / "topics.tsv", "qrels": folder / "qrels"}}
    return PyseriniJsonl(corpus=folder / "corpus", splits=splits)


def age(folder: Path, seconds: int) -> None:
    """Set the time of all files: files that were written just now may change without changing their time."""
    for path in filter(Path.is_file, folder.rglob("*")):
        os.utime(path, (time.time() - seconds,) * 2)


def read(data: Format, cache: Path, per_part: int = PER_PART) -> Path:
    """Read the data and store it, as `prepare` does; return the folder of the stored collection."""
    with reading(cache, data.model_dump(mode="json")) as place:
        collection = data.read(place.documents, None, per_part, place.part_file)
        folder = store_collection(collection, cache)
    assert open_collection(cache, collection.digest).documents.digest == collection.documents.digest
    return folder


def stop_at(number: int, stop, module=builder) -> None:
    """Call `stop` when entry `number` (from 1) of a process comes."""
    check, seen = module._check, []

    def checked(entry, *how) -> None:
        seen.append(entry.id)
        if len(seen) == number:
            stop()
        check(entry, *how)

    module._check = checked


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, caplog):
    """Also restores what `stop_at` changes, and shows what is logged."""
    monkeypatch.setattr(readings, "STRINGS_PER_BLOCK", 2)
    monkeypatch.setattr(builder, "_check", builder._check)
    caplog.set_level(logging.INFO)


def interrupt(data: Format, cache: Path, number: int, per_part: int = PER_PART) -> None:
    """Read until entry `number` comes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "_check", builder._check)
        stop_at(number, killed)
        with pytest.raises(Killed):
            read(data, cache, per_part)


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of all files but the manifest, which has the time of the commit."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def place_in(cache: Path) -> Path:
    [place] = (cache / "collections").glob(".reading-*.parts")
    return place


def messages(caplog) -> list[str]:
    return [message for message in caplog.messages if "reading" in message]


@pytest.mark.parametrize("extension", ["", ".gz"])
def test_a_killed_reading_continues_with_the_same_bytes(tmp_path, caplog, extension):
    data = write_corpus(tmp_path, extension)
    whole = contents(read(data, tmp_path / "whole"))
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, "tests"])}
    with subprocess.Popen(
        [sys.executable, "-c", READER, tmp_path, "9"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=paths,
    ) as reader:
        assert reader.stdout.readline() == "killed here\n"
        os.kill(reader.pid, signal.SIGKILL)
    part = json.loads((place_in(tmp_path) / PART_FILE).read_text())
    assert part["texts"]["rows"] == 6 and part["position"][:2] == [1, 3]
    assert list((tmp_path / "collections").glob(".reading-*.writing"))
    assert messages(caplog) == []
    folder = read(data, tmp_path)
    where = tmp_path / "corpus" / f"b.jsonl{extension}"
    assert messages(caplog) == [f"reading continues after 6 documents: {where}, line 3"]
    assert contents(folder) == whole and os.listdir(tmp_path / "collections") == [folder.name]


@pytest.mark.parametrize(("per_part", "extension"), [(1, ""), (3, ".gz"), (11, "")])
def test_it_continues_wherever_it_was_interrupted(tmp_path, caplog, per_part, extension):
    data = write_corpus(tmp_path / "data", extension)
    whole = contents(read(data, tmp_path / "whole"))
    for number in range(1, 13):  # the twelfth entry is the query
        cache = tmp_path / f"{number}"
        interrupt(data, cache, number, per_part)
        caplog.clear()
        assert contents(read(data, cache, per_part)) == whole
        done = (number - 1) // per_part * per_part
        assert [message.split(":")[0] for message in messages(caplog)] == (
            [f"reading continues after {done} documents"] if done else []
        )


def test_it_is_interrupted_again_and_again(tmp_path, caplog):
    data = write_corpus(tmp_path / "data")
    whole = contents(read(data, tmp_path / "whole"))
    for _ in range(3):
        interrupt(data, tmp_path, 5)  # so that 3, 7 - 1 = 6 and 9 documents are in finished parts
    assert contents(read(data, tmp_path)) == whole
    assert [message.split(":")[0] for message in messages(caplog)] == [
        f"reading continues after {done} documents" for done in (3, 6, 9)
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_bytes(file.read_bytes().replace(b"d0", b"dX")),
        lambda file: file.write_bytes(file.read_bytes() + b'{"id": "more", "contents": "more"}\n'),
        lambda file: None,
    ],
    ids=["content", "size", "time"],
)
def test_it_begins_anew_when_a_file_has_changed(tmp_path, caplog, change):
    data = write_corpus(tmp_path / "data")
    interrupt(data, tmp_path, 9)
    changed = tmp_path / "data" / "corpus" / "a.jsonl"
    change(changed)
    os.utime(changed, (time.time() - 30,) * 2)
    folder = read(data, tmp_path)
    assert messages(caplog) == [f"the interrupted reading begins anew: the files have changed: {changed}"]
    assert contents(folder) == contents(read(data, tmp_path / "whole"))


def test_it_begins_anew_when_there_is_another_file(tmp_path, caplog):
    data = write_corpus(tmp_path / "data")
    interrupt(data, tmp_path, 9)
    (tmp_path / "data" / "corpus" / "aa.jsonl").write_text('{"id": "more", "contents": "more"}\n')
    age(tmp_path / "data", 60)
    os.utime(tmp_path / "data" / "corpus" / "aa.jsonl", (time.time() - 60,) * 2)
    folder = read(data, tmp_path)
    assert messages(caplog)[0].startswith("the interrupted reading begins anew: the files have changed")
    assert contents(folder) == contents(read(data, tmp_path / "whole"))


def test_files_that_were_written_just_now_are_read_anew(tmp_path, caplog):
    """Such a file may change without changing its time."""
    data = write_corpus(tmp_path / "data")
    age(tmp_path / "data", -60)
    interrupt(data, tmp_path, 9)
    assert os.listdir(tmp_path / "collections") == []
    age(tmp_path / "data", 60)
    read(data, tmp_path)
    assert messages(caplog) == []


def cut(name: str):
    return lambda place: os.truncate(
        place / "documents" / name, (place / "documents" / name).stat().st_size // 2
    )


def overwrite(name: str, at: int):
    def write(place: Path) -> None:
        with open(place / "documents" / name, "r+b") as file:
            file.seek(at)
            file.write(b"\7")

    return write


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut("ids.utf8"), "ids.utf8 has less than 12 bytes"),
        (cut("field1.offsets.npy"), "field1.offsets.npy has less than 184 bytes"),
        (lambda place: (place / "documents" / "ids.utf8").unlink(), "ids.utf8 has less than 12 bytes"),
        (overwrite("field1.utf8", 5), "documents has other texts than were written"),
        (overwrite("field1.offsets.npy", 128 + 8), "documents has other texts than were written"),
        (lambda place: (place / PART_FILE).write_text('{"texts": {"ro'), "part.json was damaged"),
        (lambda place: (place / PART_FILE).unlink(), "no part was finished"),
    ],
    ids=["text", "offsets", "no file", "other text", "other offsets", "part file", "no part file"],
)
def test_it_begins_anew_when_what_it_left_is_damaged(tmp_path, caplog, damage, reason):
    data = write_corpus(tmp_path / "data")
    interrupt(data, tmp_path, 9)
    damage(place_in(tmp_path))
    folder = read(data, tmp_path)
    [message] = messages(caplog)
    assert message.startswith("the interrupted reading begins anew") and reason in message
    assert contents(folder) == contents(read(data, tmp_path / "whole"))


def test_what_follows_the_last_finished_part_is_cut_off(tmp_path, caplog):
    data = write_corpus(tmp_path / "data")
    interrupt(data, tmp_path, 9)
    for path in (place_in(tmp_path) / "documents").iterdir():
        with open(path, "ab") as file:
            file.write(b"half a li")
    (place_in(tmp_path) / "documents" / "ids.hashes.npy").write_bytes(b"half an array")
    folder = read(data, tmp_path)
    assert "continues after 6 documents" in messages(caplog)[0]
    assert contents(folder) == contents(read(data, tmp_path / "whole"))


def test_a_stored_collection_stays_when_its_reading_continues(tmp_path, monkeypatch):
    """A kill right after a collection is stored leaves a reading with the files of this collection."""
    data = write_corpus(tmp_path / "data")

    def store_and_die(collection, cache, store=store_collection) -> None:
        store(collection, cache)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setitem(globals(), "store_collection", store_and_die)
        read(data, tmp_path)
    [stored] = (tmp_path / "collections").glob("[!.]*")
    whole = contents(stored)
    interrupt(data, tmp_path, 1)
    assert contents(stored) == whole == contents(read(data, tmp_path))


def test_documents_that_were_left_out_are_still_known(tmp_path, caplog):
    data = write_corpus(tmp_path / "data")
    file = tmp_path / "data" / "corpus" / "a.jsonl"
    file.write_bytes(b'{"id": "e1", "contents": ""}\n' + LINES[0].removeprefix(b"\xef\xbb\xbf"))
    (tmp_path / "data" / "qrels").write_text("q 0 d5 1\nq 0 e1 1\n")
    age(tmp_path / "data", 60)
    data = data.model_copy(update={"empty_documents": "skip"})
    interrupt(data, tmp_path, 9)
    folder = read(data, tmp_path)
    assert "continues after 6 documents" in messages(caplog)[0]
    assert json.loads((folder / "collection.json").read_text())["skipped"] == {
        "documents without text": 1,
        "test judgments of documents without text": 1,
    }
    assert contents(folder) == contents(read(data, tmp_path / "whole"))


@pytest.mark.parametrize("empty_first", [True, False])
def test_an_id_with_and_without_text_is_found_across_an_interruption(tmp_path, empty_first):
    data = write_corpus(tmp_path / "data").model_copy(update={"empty_documents": "skip"})
    corpus, empty = tmp_path / "data" / "corpus", b'{"id": "d0", "contents": ""}\n'
    if empty_first:
        (corpus / "a.jsonl").write_bytes(
            empty.replace(b"d0", b"d10") + LINES[0].removeprefix(b"\xef\xbb\xbf")
        )
    else:
        (corpus / "c.jsonl").write_bytes(LINES[2] + b"\n" + empty)
    age(tmp_path / "data", 60)
    interrupt(data, tmp_path, 9)
    lines = ("a.jsonl, line 1", "c.jsonl, line 3") if empty_first else ("c.jsonl, line 4", "a.jsonl, line 1")
    with pytest.raises(
        ValueError, match=f"{lines[0]}: document 'd.*' is empty, but has a text in .*{lines[1]};"
    ):
        read(data, tmp_path)


@pytest.mark.parametrize(("again", "line"), [(b"d1", 3), (b"d4", 2), (b"d9", 2)])
def test_the_error_for_a_repeated_id_names_lines_that_were_read_before(tmp_path, again, line):
    data = write_corpus(tmp_path / "data")
    last = tmp_path / "data" / "corpus" / "c.jsonl"
    last.write_bytes(LINES[2].replace(b"d10", again))
    age(tmp_path / "data", 60)
    errors = []
    for cache in (tmp_path / "whole", tmp_path / "continued"):
        if cache.name == "continued":
            interrupt(data, cache, 9)
        with pytest.raises(ValueError, match=f"c.jsonl, line 3: document id '{again.decode()}'") as error:
            read(data, cache)
        errors.append(str(error.value))
    assert errors[0] == errors[1] and f"line {line};" in errors[0]


def test_the_fields_of_earlier_documents_are_still_known(tmp_path):
    """The first document after a part has other fields than those before it."""
    data = write_corpus(tmp_path / "data").model_copy(update={"fields": ()})
    document, seen = PyseriniJsonl._document, []

    def other_fields(self, line):
        entry = document(self, line)
        seen.append(entry.id)
        return entry._replace(fields={"text": "x"}) if entry.id == "d6" else entry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PyseriniJsonl, "_document", other_fields)
        for _ in range(2):
            with pytest.raises(
                ValueError, match="b.jsonl, line 5: document 'd6' has the fields text; expected "
            ):
                read(data, tmp_path)
    assert seen == ["d0", "d1", "d2", "d3", "d4", "d5", "d6", "d6"]


def test_while_another_process_reads_the_same_data_is_read_apart(tmp_path, caplog):
    data = write_corpus(tmp_path / "data")
    interrupt(data, tmp_path, 9)
    left = contents(place_in(tmp_path))
    with locked(lock := place_in(tmp_path).with_suffix(".writing")):
        folder = read(data, tmp_path)
        assert messages(caplog)[0].startswith("another process reads the same data")
        assert contents(folder) == contents(read(data, tmp_path / "whole"))
        assert contents(place_in(tmp_path)) == left
        names = {folder.name, lock.name, place_in(tmp_path).name}
        assert set(os.listdir(tmp_path / "collections")) == names


def test_while_another_thread_reads_the_same_data_is_read_apart(tmp_path):
    """Each has an object and a place of its own, of which the end of the other takes nothing."""
    data = write_corpus(tmp_path / "data")
    with reading(tmp_path, data.model_dump(mode="json")) as first:
        first.documents.mkdir(parents=True)
        with reading(tmp_path, data.model_dump(mode="json")) as second:
            read(data, tmp_path)
            assert len({first.documents, second.documents}) == 2
        assert first.documents.exists()


def test_what_others_left_is_removed_after_a_day(tmp_path, caplog):
    data, other = write_corpus(tmp_path / "data"), write_corpus(tmp_path / "other")
    interrupt(other, tmp_path, 9)
    left = place_in(tmp_path)
    for hours, stays in ((23, True), (25, False)):
        os.utime(left, (time.time() - hours * 3600,) * 2)
        folder = read(data, tmp_path)
        assert left.exists() == stays
    assert messages(caplog) == [f"removing {left}, left by a reading that was interrupted"]
    assert os.listdir(tmp_path / "collections") == [folder.name]


def test_an_error_in_the_judgments_keeps_the_documents(tmp_path, caplog):
    data = write_corpus(tmp_path / "data")
    (tmp_path / "data" / "qrels").write_text("q 0 d5 1\nq 0 unknown 1\n")
    with pytest.raises(ValueError, match="1 judgments of split 'test' refer to"):
        read(data, tmp_path)
    (tmp_path / "data" / "qrels").write_text("q 0 d5 1\n")
    read(data, tmp_path)
    assert "continues after 9 documents" in messages(caplog)[0]


CONTINUED = {"beir", "msmarco_doc", "msmarco_passage", "pyserini_jsonl", "dpr"}


@pytest.mark.parametrize("name", [name for name, one in WRITTEN.items() if one.kind not in NO_COLLECTIONS])
def test_every_format_continues_or_begins_anew(folder, tmp_path, monkeypatch, caplog, name):
    """Interrupted at its second document, in parts of one."""
    source = folder(name)
    age(source, 60)
    whole, original = KINDS[WRITTEN[name].kind].read(source), Format.read
    documents, part_file = tmp_path / "place" / "documents", tmp_path / "place" / PART_FILE

    def read_again(data):
        stop_at(2, killed)
        for _ in range(2):
            try:
                return original(data, documents, None, 1, part_file)
            except Killed:
                assert documents.exists()

    monkeypatch.setattr(Format, "read", read_again)
    assert KINDS[WRITTEN[name].kind].read(source) == whole
    [message] = messages(caplog)
    assert message.startswith(
        "reading continues after 1 documents"
        if name in CONTINUED
        else "the interrupted reading begins anew: its documents are not one line each"
    )


@pytest.mark.parametrize("is_list", [False, True])
def test_a_corpus_of_training_files_continues_unless_it_is_a_list(tmp_path, caplog, is_list):
    passages = [{"docid": f"d{n}", "title": "", "text": f"text {n}"} for n in range(5)]
    lines = "".join(json.dumps(passage) + "\n" for passage in passages)
    (tmp_path / "corpus.json").write_text(json.dumps(passages) if is_list else lines)
    record = {"query_id": "q", "query": "what", "positive_passages": [passages[3]], "negative_passages": []}
    (tmp_path / "train.jsonl").write_text(json.dumps(record) + "\n")
    age(tmp_path, 60)
    data = Tevatron(corpus=tmp_path / "corpus.json", splits={"train": tmp_path / "train.jsonl"})
    interrupt(data, tmp_path, 5)
    assert contents(read(data, tmp_path)) == contents(read(data, tmp_path / "whole"))
    # Without a part that it could continue after, nothing of a list is kept.
    assert [message.split(":")[0] for message in messages(caplog)] == (
        [] if is_list else ["reading continues after 3 documents"]
    )
