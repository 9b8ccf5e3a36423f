"""`python -m pyserini_ance.refresh RECIPE`: beside a training with `run: background`, make new negatives of its checkpoints."""

import argparse
from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance import cli
from pyserini_ance.distributed.interruption import interrupt_on_termination
from pyserini_ance.recipe.load import load
from pyserini_ance.runs.rundir import run_folder


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.refresh", description=__doc__)
    parser.add_argument("recipe", help="the recipe of the run: a name such as demo/ance, or a file, such as the run's own recipe.yaml")
    overrides = "as given to train; `refresher`, `device`, `threads`, `cache` may differ"
    parser.add_argument("overrides", nargs="*", metavar="dotted.key=value", help=overrides)
    parser.add_argument("--output", type=Path, help="the run directory (default: runs/<recipe name>)")
    args = parser.parse_intermixed_args(arguments)
    cli.log_to_stderr()
    loaded = load(args.recipe, *args.overrides)
    interrupt_on_termination()
    from pyserini_ance.experiment.refreshing import refresh

    with logging_redirect_tqdm():
        reason = refresh(loaded.recipe, args.output or run_folder(loaded.recipe.name))
    if cli.is_main():
        print(f"the refresher leaves: {reason}")


if __name__ == "__main__":
    cli.run(main)
