"""`python -m pyserini_ance.train RECIPE [dotted.key=value ...]`: from a recipe to a trained model, its index and its table."""

import argparse
from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance import cli
from pyserini_ance.distributed.interruption import interrupt_on_termination
from pyserini_ance.recipe.load import load
from pyserini_ance.runs.rundir import run_folder


def main(arguments: list[str] | None = None) -> int | None:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.train", description=__doc__)
    parser.add_argument("recipe", nargs="?", help="a recipe that ships, such as demo/ance, or a file; a grid may name recipes itself")
    parser.add_argument("overrides", nargs="*", metavar="dotted.key=value", help="for example stages.ance.steps=500 seed=7")
    places = "the run directory (default: runs/<recipe name>; of a grid runs/<recipe name>-grid, or runs/<grid file>)"
    parser.add_argument("--output", type=Path, help=places)
    parser.add_argument("--overwrite", action="store_true", help="replace the run that lies there; of a grid those that had finished by now")
    parser.add_argument("--resume", action="store_true", help="go on with the run that lies there")
    parser.add_argument("--replay", type=Path, metavar="DECISIONS", help="repeat the adoptions of a run: its decisions.jsonl")
    parser.add_argument("--print", action="store_true", dest="show", help="show the resolved recipe, where each value came from, and the plan")
    parser.add_argument("--dry-steps", type=int, metavar="N", help="run N steps of each stage and say speed, memory and time to come")
    combinations = "run all combinations, or those of a grid file; a table of all. Started several times, processes share the runs"
    parser.add_argument("--grid", nargs="+", metavar="key=a,b", help=combinations)
    args = parser.parse_intermixed_args(arguments)
    if args.recipe and "=" in args.recipe:
        args.recipe, args.overrides = None, [args.recipe, *args.overrides]
    if not (args.recipe or args.grid):
        parser.error("name a recipe, such as demo/ance, or a --grid that names recipes")
    if args.overwrite and args.resume:
        parser.error("--overwrite and --resume exclude each other")
    if args.replay and args.resume:
        parser.error("--replay is for a new run; --resume of one that was begun with --replay goes on with it")
    if args.dry_steps is not None and args.dry_steps < 1:
        parser.error(f"--dry-steps {args.dry_steps}: expected at least 1")
    if args.grid and (args.resume or args.replay or args.dry_steps):
        parser.error("--grid goes on with what has stopped by itself; leave out --resume, --replay and --dry-steps")
    cli.log_to_stderr()
    interrupt_on_termination()
    return (_grid if args.grid else _run)(args)


def _run(args: argparse.Namespace) -> None:
    loaded = load(args.recipe, *args.overrides)
    if args.dry_steps:
        from pyserini_ance.experiment.plan import measured_plan

        text = measured_plan(loaded.recipe, args.dry_steps)
    elif args.show:
        from pyserini_ance.experiment.plan import plan
        from pyserini_ance.experiment.starts import describe_starts
        from pyserini_ance.recipe.show import annotated

        if not cli.is_main():
            return
        print(annotated(loaded), *describe_starts(loaded.recipe), sep="\n", flush=True)  # which needs no data, and the plan does
        text = plan(loaded.recipe)
    else:
        from pyserini_ance.experiment.experiment import train

        with logging_redirect_tqdm():
            results = train(loaded.recipe, args.output or run_folder(loaded.recipe.name), args.overwrite, args.resume, args.replay)
        text = results and f"\n{results.as_text()}"
    if text:
        print(text)


def _grid(args: argparse.Namespace) -> int:
    """Exit code 0 when all runs have finished."""
    from pyserini_ance.experiment.grid import GridRuns
    from pyserini_ance.recipe.grid import Grid

    grid = Grid.parse(args.grid)
    if not (args.recipe or grid.names_recipes):
        raise ValueError("--grid: name the recipe, as in `train demo/ance --grid ...`, or recipes in the grid: recipe=demo/bm25,demo/ance")
    name = f"{load(args.recipe, *args.overrides).recipe.name}-grid" if args.recipe else grid.name
    runs = GridRuns(args.recipe, args.overrides, grid, args.output or run_folder(name))
    recipes = runs.check()
    if args.show:
        print("\n".join(str(runs.folder / name) for name in recipes))
        return 0
    whole = runs.conduct(recipes, args.overwrite)
    print(runs.describe())
    return 0 if whole else cli.FAILED


if __name__ == "__main__":
    cli.run(main)
