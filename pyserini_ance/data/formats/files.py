"""The files that a recipe's data names, and published facts about them: counts, and where to obtain them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt

from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.recipe.components import Settings

if TYPE_CHECKING:
    from pyserini_ance.data.formats.format import Format


class SplitCounts(Settings):
    """Published counts of a split: queries, queries with a relevant document (`used`), and judgments.

    None: the count is not published, or sources disagree.
    """

    queries: PositiveInt | None = None
    """Published number of queries; null: not published, or sources disagree."""
    used: PositiveInt | None = None
    """Published number of queries with a relevant document."""
    judgments: PositiveInt | None = None
    """Published number of judgments."""


class Official(Settings):
    """Published facts about a data set: counts to compare the read data with, and files by name.

    The recipe's files may be in any folder.
    """

    documents: PositiveInt | None = None
    """Published number of documents."""
    splits: dict[str, SplitCounts] = {}  # noqa: RUF012  pydantic copies defaults
    """Published counts by split."""
    files: dict[str, str] = {}  # noqa: RUF012
    """Published files by name: the address, or the archive that contains the file, and its description."""


def input_files(data: "Format") -> list[Path]:
    """The files that `data.files` lists, as they exist on disk: plain or .gz; for a folder, all its files.

    Raises FileNotFoundError that lists every missing file and its published source.
    """
    files: list[Path] = []
    missing: list[tuple[str, Path]] = []
    for key, path in data.files():
        try:
            if (folder := path.expanduser()).is_dir():
                files += sorted(one for one in folder.iterdir() if one.is_file())
            else:
                files.append(find_file(path, key))
        except FileNotFoundError:
            missing.append((key, path))
    if missing:
        sources = (
            (key, path, data.official.files.get(path.name.removesuffix(".gz"))) for key, path in missing
        )
        raise FileNotFoundError(
            f"{len(missing)} of {len(data.files())} files of the recipe do not exist, plain or as .gz:\n"
            + "\n".join(f"  {key}: {path}" + (f"\n    {file}" if file else "") for key, path, file in sources)
            + "\nput them there, or set their paths, with KEY=PATH on the command line (relative paths start "
            f"at the working directory, now {Path.cwd()}); data.splits.NAME=null leaves a split out, and "
            "data.hold_out.queries=200 cuts a dev split from the training queries"
        )
    return files


def paths_in(settings: Any, key: str) -> list[tuple[str, Path]]:
    """Every path in the settings under `key`, with its own key."""
    if isinstance(settings, Path):
        return [(key, settings)]
    inner = dict(settings) if isinstance(settings, Settings | Mapping) else {}
    return [pair for name, value in inner.items() for pair in paths_in(value, f"{key}.{name}")]
