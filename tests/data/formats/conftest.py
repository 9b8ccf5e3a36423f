"""Samples of the formats, written into folders."""

from itertools import count

import pytest
from data.formats.samples import WRITTEN


@pytest.fixture
def folder(tmp_path):
    """Write the files of a sample, some of them changed, into a new folder and return it.

    Files whose changed bytes may be gzip get .gz after their names.
    """
    folders = (tmp_path / str(number) for number in count())

    def write(name: str, changed: dict[str, bytes] | None = None):
        target = next(folders)
        for file, raw in {**WRITTEN[name].files, **WRITTEN[name].undamaged, **(changed or {})}.items():
            path = target / (file if raw and not raw.startswith(b"\x1f\x8b") else f"{file}.gz")
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(raw)
        return target

    return write
