"""Finished run directories with the files that tables read."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.provenance import config_hash
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json


def finished(
    folder: Path, recipe: Path, rows: dict[str, float], overrides: Sequence[str] = (), name: str = "set/ance"
) -> Path:
    """Rows but `bm25` and `untrained` are stages, with that RR@10 each."""
    loaded = load(recipe, f"name={name}", "final_evaluation.measures=[RR@10]", *overrides)
    run = RunDir(folder)
    run.create(dump(loaded))
    columns = [loaded.final_evaluation.column(split, "RR@10") for split in loaded.final_evaluation.split]
    made = [{"row": row, **dict.fromkeys(columns, value)} for row, value in rows.items()]
    for row in made:
        if row["row"] not in ("bm25", "untrained"):
            row["train seconds"] = 1.0
    head = {"recipe": name, "config_hash": config_hash(loaded), "measures": columns}
    export = {"command": "pyserini-ance search faiss --index RUN/index"}
    write_json(run.measures, {**head, "rows": made, "seconds": {}, "export": export})
    run.trainer.mark("finished", "the end")
    return folder


def ranked(folder: Path, recipe: Path, name: str, places: Mapping[str, int], *overrides: str) -> Path:
    """A finished run that ranks the relevant document `x` of each query at its place of four; bm25 at 2."""
    rows = {"bm25": 0.5, "only": sum(1 / place for place in places.values()) / len(places)}
    run = RunDir(finished(folder, recipe, rows, overrides, name=name))
    run.run_files.mkdir()
    for row, by_query in (("only", places), ("bm25", dict.fromkeys(places, 2))):
        lines = (
            f"{query} Q0 {'x' if rank == place else f'y{rank}'} {rank} {9 - rank} t\n"
            for query, place in by_query.items()
            for rank in (1, 2, 3, 4)
        )
        run.ranking(row, "test").write_text("".join(lines))
    run.qrels("test").write_text("".join(f"{query} 0 x 1\n" for query in places))
    return folder
