"""`pyserini-ance train`: from a recipe to a trained model, its index and its results table."""

import argparse
from functools import partial
from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance.commands import console
from pyserini_ance.distributed.failures import FAILED, interrupt_on_termination

DETAILS = """The run directory holds the model, its index, the rankings and the results table.
On several GPUs: torchrun --nproc-per-node N -m pyserini_ance train ..."""
EXAMPLE = """pyserini-ance train demo/ance seed=7 --output runs/demo-ance-7
  pyserini-ance train demo/ance --grid seed=1,2,3"""


def main(arguments: list[str] | None = None) -> int | None:
    args = _parse(arguments)
    console.log_to_stderr()
    interrupt_on_termination()
    if args.grid:
        return _train_grid(args)
    is_plan = args.show or args.plan
    text = _measured_plan(args) if args.dry_steps else _print_plan(args) if is_plan else _train(args)
    if text:
        print(text)
    return None


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = _parser()
    args = parser.parse_intermixed_args(arguments)
    from pyserini_ance.runs.rundir import check_start

    if args.recipe and "=" in args.recipe:
        args.recipe, args.overrides = None, [args.recipe, *args.overrides]
    if not (args.recipe or args.grid):
        parser.error("pass a recipe, such as demo/ance, or a --grid with the key `recipe`")
    try:
        check_start(args.overwrite, args.resume, args.replay)
    except ValueError as error:
        parser.error(str(error))
    if args.dry_steps is not None and args.dry_steps < 1:
        parser.error(f"--dry-steps {args.dry_steps}: expected at least 1")
    refuse = partial(console.refuse_options, parser, args)
    # --output and --overwrite stay: plans are asked for at the end of the command that will train.
    plan = "--print" if args.show else "--plan" if args.plan else ""
    if args.grid:
        reason = "--grid resumes stopped runs by itself, and trains no other runs"
        refuse(reason, "--resume", "--replay", "--dry-steps", "--no-prerequisites")
    if plan:
        refuse(f"{plan} trains nothing", "--dry-steps", "--resume", "--replay", "--jobs")
    if args.dry_steps:
        reason = "--dry-steps measures the first steps of this recipe in a temporary folder"
        refuse(reason, "--resume", "--replay", "--no-prerequisites")
    if args.jobs > 1 and not args.grid:
        parser.error("--jobs trains several runs of a grid at once; add --grid, or remove --jobs")
    return args


def _parser() -> argparse.ArgumentParser:
    parser = console.command_parser(
        "train",
        "Train a recipe: from data to a trained model, its index and its results table.",
        EXAMPLE,
        DETAILS,
    )
    parser.add_argument(
        "recipe",
        nargs="?",
        help="a shipped recipe, such as demo/ance, or a file; not needed if the grid has the key `recipe`",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="dotted.key=value",
        help="override values of the recipe, for example stages.ance.steps=500 seed=7",
    )
    run = parser.add_argument_group("run directory")
    run.add_argument(
        "--output",
        type=console.output_folder,
        metavar="RUN",
        help="the run directory (default: runs/<recipe name>; of a grid runs/<recipe name>-grid, "
        "or runs/<grid file>)",
    )
    run.add_argument(
        "--overwrite",
        action="store_true",
        help="overwrite an existing run; with --grid, overwrite its runs that had already finished",
    )
    run.add_argument("--resume", action="store_true", help="continue an existing run")
    run.add_argument(
        "--replay",
        type=Path,
        metavar="DECISIONS",
        help="repeat the adoptions of another run, from its decisions.jsonl",
    )
    run.add_argument(
        "--no-prerequisites",
        action="store_true",
        help="do not train the recipes that this one starts from (`init_from: {recipe: NAME}`) if their runs "
        "are missing or unfinished; stop and name the command instead",
    )
    plan = parser.add_argument_group("planning (nothing is trained)")
    plan.add_argument(
        "--print",
        action="store_true",
        dest="show",
        help="show the resolved recipe, the file that each value comes from, and the plan; with --grid, the "
        "plan of each run",
    )
    plan.add_argument(
        "--plan", action="store_true", help="show the plan alone: steps, epochs, encodings, memory and disk"
    )
    plan.add_argument(
        "--dry-steps",
        type=int,
        metavar="N",
        help="run N steps of each stage; report speed, memory and the expected time",
    )
    grid = parser.add_argument_group("grids")
    grid.add_argument(
        "--grid",
        nargs="+",
        action="extend",
        metavar="key=a,b",
        help="train all combinations of values, or those of a grid file, and write one table of them; the "
        "same command started several times shares the runs, and other values of its keys join the table. "
        "Pass overrides before --grid: every key after it is one of the grid",
    )
    grid.add_argument(
        "--jobs",
        type=console.positive_int,
        default=1,
        metavar="N",
        help="train N runs at once, each with an equal share of the cores (default: 1)",
    )
    return parser


def _measured_plan(args: argparse.Namespace) -> str | None:
    from pyserini_ance.pipeline.plan import measured_plan
    from pyserini_ance.runs.rundir import load_recipe

    return measured_plan(load_recipe(args.recipe, *args.overrides).recipe, args.dry_steps)


def _print_plan(args: argparse.Namespace) -> str | None:
    """Print the recipe, which needs no data, and return the plan, which does: that of all runs to come."""
    from pyserini_ance.pipeline.initial_weights import describe_initial_weights
    from pyserini_ance.pipeline.plan import plan, plan_of_chain
    from pyserini_ance.pipeline.prerequisites import prerequisites, recipe_in_file
    from pyserini_ance.recipe.load import dump
    from pyserini_ance.runs.rundir import load_recipe

    recipe = load_recipe(args.recipe, *args.overrides).recipe
    if not console.is_main():
        return None
    chain = [] if args.no_prerequisites else prerequisites(recipe, recipe_in_file(recipe))
    first = {one.folder: one.recipe for one in chain if one.status != "finished"}
    lines = [dump(recipe).rstrip()] if args.show else []
    lines += [*describe_initial_weights(recipe, first), *(one.describe() for one in chain)]
    if lines:
        print(*lines, sep="\n", flush=True)
    return plan(recipe) if args.no_prerequisites else plan_of_chain(recipe, list(first.values()))


def _train(args: argparse.Namespace) -> str | None:
    from pyserini_ance.reports.finish import train
    from pyserini_ance.runs.rundir import load_recipe, run_folder

    recipe = load_recipe(args.recipe, *args.overrides).recipe
    how = (recipe, args.output or run_folder(recipe.name), args.overwrite, args.resume, args.replay)
    with logging_redirect_tqdm():
        results = train(*how, prerequisites=not args.no_prerequisites)
    return f"\n{results.as_text()}" if results else None


def _train_grid(args: argparse.Namespace) -> int:
    """Train the runs of a grid; exit code 0 if all have finished."""
    from pyserini_ance.pipeline.grid_runs import GridRuns
    from pyserini_ance.pipeline.initial_weights import describe_initial_weights
    from pyserini_ance.pipeline.plan import plan
    from pyserini_ance.recipe.grid_spec import Grid
    from pyserini_ance.reports.finish import write_card_and_report
    from pyserini_ance.runs.rundir import RunDir, load_recipe, run_folder

    grid = Grid.parse(args.grid)
    if not (args.recipe or grid.names_recipes):
        raise ValueError(
            "--grid needs recipes: pass one, as in `pyserini-ance train demo/ance --grid ...`, or put them "
            "into the grid: recipe=demo/bm25,demo/ance"
        )
    name = f"{load_recipe(args.recipe, *args.overrides).recipe.name}-grid" if args.recipe else grid.name
    runs = GridRuns(args.recipe, args.overrides, grid, args.output or run_folder(name))
    recipes = runs.check(args.overwrite)
    if args.show or args.plan:
        for name, recipe in recipes.items():
            print(f"{runs.folder / name}:", *describe_initial_weights(recipe), sep="\n", flush=True)
            print(plan(recipe), end="\n\n", flush=True)
        return 0
    have_all_finished = runs.run(recipes, args.overwrite, args.jobs)
    for name in recipes:
        if RunDir(runs.folder / name).measures.exists():
            write_card_and_report(runs.folder / name, only_missing=True)
    print(runs.describe())
    return 0 if have_all_finished else FAILED
