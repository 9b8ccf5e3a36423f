"""What is published of a data set: where its files are to be had, and how much is in them."""

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.recipe.parts import Settings

if TYPE_CHECKING:
    from pyserini_ance.data.formats.format import Format


class OfficialFile(Settings):
    """`what` it holds, and the address `at` which its maker gives it, or the archive that it is in."""

    what: str
    at: str


class SplitCounts(Settings):
    """Of the files: queries; `used`, those that have a relevant document; and judgments. None: not published, or not alike everywhere."""

    queries: PositiveInt | None = None
    used: PositiveInt | None = None
    judgments: PositiveInt | None = None


class Official(Settings):
    """Counts, which what is read is compared with, and files by their names: those of the recipe may lie in any folder."""

    documents: PositiveInt | None = None
    splits: dict[str, SplitCounts] = {}
    files: dict[str, OfficialFile] = {}

    def of(self, path: Path) -> OfficialFile | None:
        return self.files.get(path.name.removesuffix(".gz"))


def found_files(data: "Format") -> list[Path]:
    """What `data.files` names, as it lies on disk: plain or .gz, and of a folder the files in it.

    Raises FileNotFoundError that tells all that are missing, and where they are to be had.
    """
    found, missing = [], []
    for key, path in data.files():
        folder = path.expanduser()
        try:
            found += sorted(one for one in folder.iterdir() if one.is_file()) if folder.is_dir() else [find_file(path, key)]
        except FileNotFoundError:
            missing.append(_told(key, path, data.official.of(path)))
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} of {len(data.files())} files that the recipe names are not there, neither plain nor as .gz:\n"
            + "\n".join(missing)
            + f"\nput them there, or say with KEY=PATH where they lie (relative paths start at the working directory, now {Path.cwd()})"
        )
    return found


def _told(key: str, path: Path, official: OfficialFile | None) -> str:
    return f"  {key}: {path}" + (f"\n    {official.what}: {official.at}" if official else "")
