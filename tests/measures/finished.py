"""Run directories that have finished, as far as tables read them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.runs.variant import variant
from pyserini_ance.storage.files import write_json


def finished(
    folder: Path, recipe: Path, rows: Mapping[str, float], overrides: Sequence[str] = (), beside: Mapping[str, float] | None = None,
    name: str = "set/ance",
) -> Path:  # fmt: skip
    """A run whose rows have that RR@10 on each test split; all but `bm25` and `untrained` are stages, and the last has what is `beside`."""
    loaded = load(recipe, f"name={name}", "test.measures=[RR@10]", *overrides).recipe
    run = RunDir(folder)
    run.create(dump(loaded))
    columns = [loaded.test.column(split, "RR@10") for split in loaded.test.split]
    made = [{"row": row, **dict.fromkeys(columns, value)} for row, value in rows.items()]
    for row in made:
        if row["row"] not in ("bm25", "untrained"):
            row["train seconds"] = 1.0
    made[-1] |= beside or {}
    write_json(run.measures, {"recipe": name, "variant": variant(loaded), "measures": columns, "rows": made})
    run.mark("finished", "the end")
    return folder
