"""Atomic writes, JSON files and block files, and what they do on a full disk."""

import errno
import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pyserini_ance.storage.files import (
    append_json_line,
    read_json_lines,
    read_json_object,
    reserve,
    save_array,
    sha256_json,
    write_json,
    write_whole,
)


def _full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_is_written_whole(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "old")
    write_whole(path, "né")
    assert path.read_bytes() == "né".encode()
    write_json(path, {"é": [1, 2.5, None]})
    assert json.loads(path.read_text(encoding="utf-8")) == {"é": [1, 2.5, None]}
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("kind", ["link to a file", "link to no file", "pipe", "device"])
def test_links_are_followed_and_what_is_no_file_is_written_to(tmp_path, kind):
    path, target = tmp_path / "given.gz", tmp_path / "inner" / "target"
    target.parent.mkdir()
    pipe = None
    if kind == "pipe":
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    elif kind == "device":
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # a /dev/null of its own
        except PermissionError:
            pytest.skip("only root makes devices")
    else:
        path.symlink_to("inner/target")
        if kind == "link to a file":
            target.write_text("old")
    before = stat.S_IFMT(path.lstat().st_mode)
    write_whole(path, "new")
    assert stat.S_IFMT(path.lstat().st_mode) == before
    assert sorted(os.listdir(tmp_path)) == ["given.gz", "inner"]
    if kind == "pipe":
        assert gzip.decompress(os.read(pipe, 1000)) == b"new"
        os.close(pipe)
    elif kind != "device":
        assert gzip.decompress(target.read_bytes()) == b"new" and os.listdir(target.parent) == ["target"]


def test_standard_output_is_written_to_after_what_was_printed(tmp_path):
    program = "import sys; from pathlib import Path; from pyserini_ance.storage.files import write_whole\n"
    program += "print('first'); write_whole(Path(sys.argv[1]), 'second\\n'); print('third')"
    log = tmp_path / "log"
    log.write_text("old\n")
    with open(log, "ab") as file:  # a file: it is neither replaced nor cut
        subprocess.run([sys.executable, "-c", program, "/dev/stdout"], stdout=file, check=True)
    assert log.read_text() == "old\nfirst\nsecond\nthird\n" and os.listdir(tmp_path) == ["log"]


def test_a_path_that_is_not_utf_8_is_written_and_read_again(tmp_path):
    value = {"folder": os.fsdecode(b"jos\xe9"), "other": r"\udce9", "é": 1}
    write_json(tmp_path / "object.json", value)
    append_json_line(tmp_path / "log.jsonl", value)
    assert read_json_object(tmp_path / "object.json") == value == read_json_lines(tmp_path / "log.jsonl")[0]
    assert sha256_json(value) != sha256_json(value | {"folder": r"jos\udce9"})


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_unchanged(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    write_whole(path, "old")
    monkeypatch.setattr(os, call, _full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_an_error_names_the_target_file(tmp_path, monkeypatch):
    """The system names no file when a write fails, and the hidden temporary file when an open fails."""
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*/nowhere/file'$"):
        write_whole(tmp_path / "nowhere" / "file", "new")
    monkeypatch.setattr(os, "fsync", _full)
    with pytest.raises(OSError, match=rf"\[Errno 28\] No space left on device: '{tmp_path}/file'$"):
        write_whole(tmp_path / "file", "new")
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}/log.jsonl'$"):
        append_json_line(tmp_path / "log.jsonl", {}, durable=True)


@pytest.mark.parametrize(
    "array", [np.eye(3)[:, ::2], np.zeros((0, 2), "f4"), np.array([(1, 0.5)], "u8,f4"), 7]
)
def test_an_array_is_the_file_that_numpy_writes_and_a_full_disk_an_error(tmp_path, array):
    save_array(tmp_path / "a.npy", array)
    np.save(tmp_path / "b.npy", np.ascontiguousarray(array) if np.ndim(array) else array)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    with pytest.raises(OSError, match="No space left on device"):
        save_array(Path("/dev/full"), array)


def test_a_json_object_is_read_whole_or_not_at_all(tmp_path):
    path = tmp_path / "object.json"
    assert read_json_object(path) is None
    write_json(path, {"é": 1})
    assert read_json_object(path) == {"é": 1}
    for content in (b"", b'{"a": ', b"[]", b"null", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(RuntimeError, match=r"object.json was damaged: .*, expected one JSON object"):
            read_json_object(path)


def test_json_lines_round_trip_with_any_separator_in_the_text(tmp_path):
    path = tmp_path / "log.jsonl"
    assert read_json_lines(path) == []
    records = [{"a": 1}, {"text": "one\u2028two\x85three\nfour"}, {"é": []}]
    for record in records:
        append_json_line(path, record, durable=True)
    assert read_json_lines(path) == records
    assert path.read_bytes().count(b"\n") == 3
    path.write_text('{"a": 1}\n{"b"\n')
    with pytest.raises(RuntimeError, match="log.jsonl:2: expected one JSON object, found"):
        read_json_lines(path)


@pytest.mark.parametrize("cut", [b'{"b', '{"b": "é'.encode()[:-1], b'{"b": 2}'])
def test_a_truncated_last_line_is_skipped_and_overwritten(tmp_path, cut):
    path = tmp_path / "log.jsonl"
    append_json_line(path, {"a": "é"})
    with open(path, "ab") as file:
        file.write(cut)
    assert read_json_lines(path) == [{"a": "é"}]
    append_json_line(path, {"c": 3})
    assert read_json_lines(path) == [{"a": "é"}, {"c": 3}]


# A limit on the size of files stands in for a full disk: the same calls fail in the same way.
def test_a_system_may_lack_the_call_that_reserves(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")  # as macOS
    reserve(tmp_path / "new", 2000)
    assert (tmp_path / "new").stat().st_size == 2000


LIMITED = """
import resource, sys
from pathlib import Path
from pyserini_ance.storage.files import reserve, write_at, write_whole

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
folder = Path(sys.argv[1])

def show_error(call):
    try:
        call()
    except OSError as error:
        print("OSError", error.errno, Path(error.filename).name)

show_error(lambda: reserve(folder / "reserved", 2000))
growing = folder / "growing"
reserve(growing, 0)
write_at(growing, 0, b"x" * 900)
show_error(lambda: write_at(growing, 900, b"x" * 900))
(folder / "whole").write_text("old")
show_error(lambda: write_whole(folder / "whole", "x" * 2000))
print((folder / "whole").read_text(), sorted(path.name for path in folder.iterdir()))
"""


def test_a_full_disk_is_an_error_and_not_a_signal(tmp_path):
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True)
    expected = "".join(f"OSError {errno.EFBIG} {name}\n" for name in ("reserved", "growing", "whole"))
    expected += "old ['growing', 'reserved', 'whole']\n"
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
