"""The progress bar of reading: in bytes of the files where these are known, so that it knows its end; else in entries."""

from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from pyserini_ance.data.formats.lines import Line

DELAY_SECONDS = 2  # what is read sooner needs no bar
ENTRIES_PER_LOOK = 1024


class ReadingBar:
    """Shown after two seconds, gone at the end."""

    def __init__(self, what: str, files: Sequence[Path] = ()):
        self._sizes = {path: path.stat().st_size for path in files}
        unit = {"unit": "B", "unit_scale": True, "total": sum(self._sizes.values())} if files else {"unit": " entries"}
        self._bar = tqdm(desc=what, delay=DELAY_SECONDS, leave=False, **unit)
        self._entries = self._before = 0  # bytes of the files that are done
        self._path: Path | None = None

    def __enter__(self) -> "ReadingBar":
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()

    def at(self, line: Line) -> None:
        """An entry of this line was read."""
        self._entries += 1
        if line.path is not self._path:
            self._before += self._sizes.get(self._path, 0)
            self._path = line.path
        if self._entries % ENTRIES_PER_LOOK == 0:
            self._look(line)

    def _look(self, line: Line) -> None:
        if not self._sizes:
            self._bar.update(ENTRIES_PER_LOOK)
            return
        self._bar.set_postfix_str(f"{self._entries:,} entries", refresh=False)
        self._bar.update(self._before + line.read_bytes - self._bar.n)
