"""Finished run directories with the files that tables read."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.provenance import config_hash
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json


def finished(
    folder: Path,
    recipe: Path,
    rows: Mapping[str, float],
    overrides: Sequence[str] = (),
    beside: Mapping[str, float] | None = None,
    name: str = "set/ance",
) -> Path:
    """A run whose rows have that RR@10 on each test split.

    All rows but `bm25` and `untrained` are stages; `beside` holds further columns of the last one.
    """
    loaded = load(recipe, f"name={name}", "final_evaluation.measures=[RR@10]", *overrides).recipe
    run = RunDir(folder)
    run.create(dump(loaded))
    columns = [loaded.final_evaluation.column(split, "RR@10") for split in loaded.final_evaluation.split]
    made = [{"row": row, **dict.fromkeys(columns, value)} for row, value in rows.items()]
    for row in made:
        if row["row"] not in ("bm25", "untrained"):
            row["train seconds"] = 1.0
    made[-1] |= beside or {}
    head = {"recipe": name, "config_hash": config_hash(loaded), "measures": columns}
    export = {"command": "pyserini-ance search faiss"}
    write_json(run.measures, {**head, "rows": made, "seconds": {}, "export": export})
    run.mark("finished", "the end")
    return folder
