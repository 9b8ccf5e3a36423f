"""Train the rows that decide in docs/lab-notes/winning.md and compare them: three of our recipes, and two of
sentence-transformers, with five seeds. A command that was stopped continues; what has finished is kept.

python -m benchmarks.peers.winning demo two --output runs/winning
python -m benchmarks.peers.winning nfcorpus whole data.folder=DATA/nfcorpus --output runs/winning
"""

import argparse
import logging
from dataclasses import replace
from pathlib import Path

from pyserini_ance.commands import compare, console

SETS = ("demo", "pydocs", "nfcorpus", "medquad", "squad-beir")
STARTS = {
    "two": ["encoder.layers=[0,1]", "stage_defaults.optimizer.learning_rate=3e-4"],
    "whole": ["stage_defaults.optimizer.learning_rate=3e-5"],
}
ROWS = ("rand-batch", "recommended", "distilled")
METHODS = ("in-batch", "mined")
log = logging.getLogger("pyserini_ance.benchmarks")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", choices=SETS)
    parser.add_argument("start", choices=STARTS, help="two layers of MiniLM, or the whole model")
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="settings of all rows, as of `train`"
    )
    parser.add_argument("--seeds", default="42,43,44,45,46")
    parser.add_argument("--steps", type=int, default=300, help="fewer, to try the command")
    parser.add_argument("--jobs", type=int, default=1, help="runs of ours at once")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    args = parser.parse_intermixed_args(arguments)
    console.begin()
    from benchmarks.peers.sentence_transformers_training import train_rows
    from pyserini_ance.pipeline.grid import GridRuns
    from pyserini_ance.recipe.grid_spec import RECIPE, Grid

    overrides = [*STARTS[args.start], *args.overrides]
    grid = Grid.parse([f"winning-{args.set}", f"seed={args.seeds}"])
    points = {
        name: {**point, "stage_defaults.steps": args.steps}
        for name, point in grid.points.items()
        if point[RECIPE].rpartition("/")[2] in ROWS
    }
    folder = args.output / f"{args.set}-{args.start}"
    ours = GridRuns(None, overrides, replace(grid, points=points), folder / "ours")
    if not ours.run(ours.check(), jobs=args.jobs):
        return 1
    baseline = f"{args.set}/{ROWS[0]}"
    folders: list[Path] = []
    for name, point in points.items():
        for method in METHODS if point[RECIPE] == baseline else ():
            folders.append(folder / f"{method}-{point['seed']}")
            if (folders[-1] / "measures.json").exists():
                log.info("%s had already finished", folders[-1])
            else:
                settings = [*overrides, *ours.grid.overrides(name)]
                train_rows(baseline, settings, method, folders[-1], overwrite=True)
    named = [f"{args.set}/{row}" for row in ROWS]
    peer_rows = [f"{args.set}/sentence-transformers-{method}" for method in METHODS]
    rows = ["bm25", "untrained", *named[:-1], *peer_rows]
    compare.main([*map(str, [folder / "ours", *folders]), "--significance", named[-1], "--rows", *rows])
    return 0


if __name__ == "__main__":
    console.run(main)
