"""Objects of a JSON file: of one list, read piece by piece (DPR's are larger than memory), or one a line."""

import codecs
import gzip
import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.lines import BEYOND, DAMAGE, SHOWN_CHARACTERS, Line, damaged, not_utf8, read_lines, shown

PIECE_BYTES = 1 << 20
LONGEST_TOKEN = 16  # of JSON's own: a name such as -Infinity, a \u escape, an exponent

_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def read_records(path: Path) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Each object and where it begins, its line without the text: of a JSON list, or of a file with one object a line."""
    if _Unread(path).next() == "[":
        yield from read_list(path)
    else:
        for line in read_lines(path):
            yield line._replace(text=""), line.json()


def read_list(path: Path) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Each object and where it begins, its line without the text.

    Raises ValueError, with the line, for anything but one whole list of objects.
    """
    unread = _Unread(path)
    unread.take("[")
    if unread.next() == "]":
        unread.take("]")
    else:
        for item in count(1):
            yield unread.take_object(item)
            if unread.take(",]") == "]":
                break
    unread.take("")


class _Unread:
    """The text of a file that is still to be parsed: `text` from `place` on, which is in line `number`, and what `pieces` will give."""

    def __init__(self, path: Path):
        self.path, self.text, self.place, self.number = path, "", 0, 1
        self.pieces = self._pieces()

    def next(self) -> str:
        """The next character that is no blank; "" at the end of the file."""
        while True:
            self._go_to(_BLANKS.match(self.text, self.place).end())
            if self.place < len(self.text) or not self._read_on():
                return self.text[self.place : self.place + 1]

    def take(self, wanted: str) -> str:
        """The next character that is no blank, one of those `wanted`; of none, the end of the file."""
        found = self.next()
        if not (found and found in wanted or found == wanted):
            expected = " or ".join(map(repr, wanted)) or "the end of the file"
            raise self._error(f"{self._near(self.place)} in a JSON list", expected, self.place)
        self._go_to(self.place + len(found))
        return found

    def take_object(self, item: int) -> tuple[Line, dict[str, Any]]:
        if self.next() != "{":
            raise self._error(f"{self._near(self.place)} as item {item} of a JSON list", "a JSON object", self.place)
        line = Line(self.path, self.number, "", f", item {item}")
        while True:
            try:
                record, end = _DECODER.raw_decode(self.text, self.place)
            except json.JSONDecodeError as error:
                if not self._ends_in(error) or not self._read_on():
                    found = f"malformed JSON in item {item} ({error.msg}) near {self._near(error.pos - SHOWN_CHARACTERS // 2)}"
                    raise self._error(found, "a JSON object", error.pos) from error
            except BEYOND as error:
                raise self._error(f"JSON that cannot be read ({error}) in item {item}", "a JSON object", self.place) from error
            else:
                self._go_to(end)
                return line, record

    def _ends_in(self, error: json.JSONDecodeError) -> bool:
        """The object may only be cut off where the text that was read so far ends."""
        return error.msg.startswith("Unterminated string") or error.pos > len(self.text) - LONGEST_TOKEN

    def _go_to(self, place: int) -> None:
        self.number += self.text.count("\n", self.place, place)
        self.place = place

    def _read_on(self) -> bool:
        piece = next(self.pieces, "")
        if piece:
            self.text, self.place = self.text[self.place :] + piece, 0
        return bool(piece)

    def _pieces(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            with (gzip.open if self.path.suffix == ".gz" else open)(self.path, "rb") as file:
                # As much again as is held: an object of any size is tried a few times only.
                while raw := file.read(max(PIECE_BYTES, len(self.text) - self.place)):
                    if piece := decoder.decode(raw):  # none yet of a character that is cut
                        yield piece
            yield decoder.decode(b"", final=True)
        except DAMAGE as error:
            raise damaged(self.path, self.number, error) from error
        except UnicodeDecodeError as error:
            held = self.text.count("\n", self.place) + error.object.count(b"\n", 0, error.start)
            raise not_utf8(self.path, self.number + held, error) from error

    def _near(self, place: int) -> str:
        start = max(place, self.place)
        return shown(self.text[start : start + 2 * SHOWN_CHARACTERS]) if start < len(self.text) else "the end of the file"

    def _error(self, found: str, expected: str, place: int) -> ValueError:
        number = self.number + self.text.count("\n", self.place, place)
        return Line(self.path, number, "").error(found, expected, "correct the file, or write it again as one JSON list")
