"""`pyserini-ance train`: from a recipe to a trained model, its index and its results table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tqdm.contrib.logging import logging_redirect_tqdm
from typer import Argument

from pyserini_ance.commands import console, parsing
from pyserini_ance.distributed.failures import FAILED

if TYPE_CHECKING:
    from pyserini_ance.pipeline.grid import GridRuns

EXAMPLE = """pyserini-ance train demo/ance seed=7 --output runs/demo-ance-7
  pyserini-ance train demo/ance --grid seed=1,2,3
  torchrun --nproc-per-node 8 -m pyserini_ance train demo/ance"""
DETAILS = """The default --output is runs/<recipe name>; of a grid runs/<recipe name>-grid, or runs/<file>.
--dry-steps reports speed, memory and expected time from a temporary folder.
--grid takes values of keys, or the name of a grid file. Pass overrides before --grid: every key after it is
one of the grid. --only is for the tasks of a job array."""


@parsing.command(EXAMPLE, DETAILS)
def main(
    recipe: Annotated[str | None, Argument(help="such as demo/ance, or a file")] = None,
    overrides: parsing.Overrides = None,
    output: Annotated[Path | None, parsing.output_folder("RUN", "the run directory (see below)")] = None,
    overwrite: Annotated[bool, parsing.flag("overwrite", "overwrite existing runs")] = False,
    resume: Annotated[bool, parsing.flag("resume", "continue an existing run")] = False,
    replay: Annotated[Path | None, parsing.option("FILE", "repeat adoptions of a decisions.jsonl")] = None,
    show: Annotated[bool, parsing.flag("print", "show the recipe and the plan; train nothing")] = False,
    plan: Annotated[bool, parsing.flag("plan", "show the plan; train nothing")] = False,
    dry_steps: Annotated[int | None, parsing.count("N", "measure N steps a stage; train no run")] = None,
    grid: Annotated[list[str] | None, parsing.option("KEY=A,B ...", "train all these combinations")] = None,
    jobs: Annotated[int | None, parsing.count("N", "train N runs of a grid at once")] = None,
    only: Annotated[str | None, parsing.option("I/N", "train part I of N of a grid's runs")] = None,
) -> int | None:
    """Train a recipe: from data to a trained model, its index and its results table.

    The run directory holds the model, its index, the rankings and the results table.
    """
    from pyserini_ance.runs.rundir import check_start, load_recipe, run_folder

    given = list(overrides or ())
    if grid and recipe and "=" in recipe:  # without a grid, a path such as that of a grid's run
        given, recipe = [recipe, *given], None
    check_start(overwrite, resume, replay)
    # --output and --overwrite stay: plans are asked for at the end of the command that will train.
    if grid or show or plan or dry_steps:
        reason = "--grid resumes stopped runs by itself; --print, --plan and --dry-steps train no run"
        parsing.refuse_options(reason, resume=resume, replay=replay)
    if grid or show or plan:
        parsing.refuse_options("--dry-steps measures one recipe", dry_steps=dry_steps)
    if not grid:
        parsing.refuse_options("--jobs and --only are for the runs of a --grid", jobs=jobs, only=only)
    console.begin()
    if grid:
        from pyserini_ance.pipeline.grid import GridRuns
        from pyserini_ance.recipe.grid_spec import Grid

        axes = Grid.parse(grid)
        if not (recipe or axes.names_recipes):
            raise ValueError(
                "--grid needs recipes: pass one, as in `pyserini-ance train demo/ance --grid ...`, or put "
                "them into the grid: recipe=demo/bm25,demo/ance"
            )
        name = f"{load_recipe(recipe, *given).name}-grid" if recipe else axes.name
        runs = GridRuns(recipe, given, axes, output or run_folder(name))
        return _train_grid(runs, overwrite, show or plan, jobs or 1, only)
    if not recipe:
        parsing.refuse("pass a recipe, such as demo/ance, or a --grid with the key `recipe`")
    loaded = load_recipe(recipe, *given)
    if show or plan:
        if console.is_main():  # the recipe, which needs no data, then the plan, which does
            from pyserini_ance.pipeline.initial_weights import describe_initial_weights
            from pyserini_ance.pipeline.plan import plan as planned
            from pyserini_ance.recipe.load import dump

            lines = [dump(loaded).rstrip()] if show else []
            if lines := [*lines, *describe_initial_weights(loaded)]:
                print(*lines, sep="\n", flush=True)
            print(planned(loaded))
    elif dry_steps:
        from pyserini_ance.pipeline.plan import measured_plan

        if text := measured_plan(loaded, dry_steps):
            print(text)
    else:
        from pyserini_ance.reports.finish import train

        with logging_redirect_tqdm():
            run = train(
                loaded, output or run_folder(loaded.name), overwrite=overwrite, resume=resume, replay=replay
            )
        if run:
            print(f"\n{run.as_text()}")
    return None


def _train_grid(runs: "GridRuns", overwrite: bool, shows_plans: bool, jobs: int, only: str | None) -> int:
    """Train the runs of a grid; exit code 0 if all have finished."""
    from pyserini_ance.pipeline.initial_weights import describe_initial_weights
    from pyserini_ance.pipeline.plan import plan
    from pyserini_ance.reports.finish import write_card_and_report
    from pyserini_ance.runs.rundir import RunDir
    from pyserini_ance.vectors.encoding import Shard

    part = Shard.parse(only, "--only") if only else None
    recipes = runs.check(overwrite)
    if shows_plans:
        for name, one in recipes.items():
            print(f"{runs.folder / name}:", *describe_initial_weights(one), sep="\n", flush=True)
            print(plan(one), end="\n\n", flush=True)
        return 0
    have_all_finished = runs.run(recipes, overwrite, jobs, part)
    for name in recipes:
        if RunDir(runs.folder / name).measures.exists():
            write_card_and_report(runs.folder / name, only_missing=True)
    print((runs.folder / "grid.md").read_text(encoding="utf-8"))
    return 0 if have_all_finished else FAILED
