"""`python -m pyserini_ance.prepare RECIPE [dotted.key=value ...]`: read, check and tokenise ahead what training needs."""

import argparse

from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance import cli
from pyserini_ance.recipe.load import load


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.prepare", description=__doc__)
    parser.add_argument("recipe", help="a recipe that ships, such as msmarco-passage/ance, or a file")
    parser.add_argument("overrides", nargs="*", metavar="dotted.key=value", help="for example data.collection=FILE cache=FOLDER")
    args = parser.parse_intermixed_args(arguments)
    cli.log_to_stderr()
    recipe = load(args.recipe, *args.overrides).recipe

    from pyserini_ance.experiment.ahead import prepare_ahead

    with logging_redirect_tqdm():
        report = prepare_ahead(recipe)
    print(report)


if __name__ == "__main__":
    cli.run(main)
