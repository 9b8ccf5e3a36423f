"""Train what a user of sentence-transformers would, at the cost of a recipe, and measure it as
the recipe's own runs are measured.

python -m benchmarks.peers demo/rand-batch --method mined --output runs/demo-st-mined
"""

import argparse
from pathlib import Path

from pyserini_ance.commands import console

METHODS = ("in-batch", "mined", "mined-positives")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", help="a recipe with one stage: demo/rand-batch, or a YAML file")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, as of `train`")
    parser.add_argument("--method", choices=METHODS, required=True)
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="the run directory")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing run")
    args = parser.parse_intermixed_args(arguments)
    console.begin()
    # Imported only now: console.run has limited the spinning of OpenMP's threads before torch is imported.
    from benchmarks.peers.sentence_transformers_training import train_rows

    print(train_rows(args.recipe, args.overrides, args.method, args.output, args.overwrite).as_text())


if __name__ == "__main__":
    console.run(main)
