"""Samples of the formats, written into folders."""

from itertools import count

import pytest
from data.formats.samples import WRITTEN


@pytest.fixture
def folder(tmp_path):
    """Writes the files of a sample, with some changed, and returns a new folder; bytes that may be gzip's have .gz after the name."""
    places = (tmp_path / str(number) for number in count())

    def write(name: str, changed: dict[str, bytes] | None = None):
        place = next(places)
        for file, raw in {**WRITTEN[name].files, **WRITTEN[name].kept, **(changed or {})}.items():
            path = place / (file if raw and not raw.startswith(b"\x1f\x8b") else f"{file}.gz")
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(raw)
        return place

    return write
