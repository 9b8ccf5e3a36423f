"""`pyserini-ance refresh`: the refresher of a run with `mode: async`, as a process of its own."""

from pathlib import Path
from typing import Annotated

from tqdm.contrib.logging import logging_redirect_tqdm
from typer import Argument

from pyserini_ance.commands import console, parsing

EXAMPLE = "pyserini-ance refresh runs/demo-ance/recipe.yaml --output runs/demo-ance device=cuda"


@parsing.command(
    EXAMPLE, "Overrides are those of train; `refresher`, `device`, `threads` and `cache` may differ."
)
def main(
    recipe: Annotated[str, Argument(help="the run's recipe: a shipped one, or such as RUN/recipe.yaml")],
    overrides: parsing.Overrides = None,
    output: Annotated[Path | None, parsing.option("RUN", "default: runs/<recipe name>")] = None,
) -> None:
    """Mine new negatives with the checkpoints of a training run with `mode: async`, until the run ends.

    Training starts a refresher by itself. With `refresher=external` you start it, on any machine that
    sees the run directory.
    """
    console.begin()
    from pyserini_ance.runs.rundir import load_recipe, run_folder

    loaded = load_recipe(recipe, *overrides or ())
    from pyserini_ance.pipeline.refresher_process import refresh

    with logging_redirect_tqdm():
        reason = refresh(loaded, output or run_folder(loaded.name))
    if console.is_main():
        print(f"the refresher exits: {reason}")
