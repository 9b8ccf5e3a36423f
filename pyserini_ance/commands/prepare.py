"""`pyserini-ance prepare`: read, check, count and tokenize ahead all data that training needs."""

from typing import Annotated

from tqdm.contrib.logging import logging_redirect_tqdm
from typer import Argument

from pyserini_ance.commands import console, parsing


@parsing.command("pyserini-ance prepare msmarco-passage/ance data.collection=collection.tsv")
def main(
    recipe: Annotated[str, Argument(help="a shipped recipe, such as msmarco-passage/ance, or a file")],
    overrides: parsing.Overrides = None,
) -> None:
    """Read, check and tokenize a recipe's data ahead of training; list what is missing.

    Training reads the result from the cache.
    """
    console.begin()
    from pyserini_ance.pipeline.preparation_report import prepare_data
    from pyserini_ance.runs.rundir import load_recipe

    loaded = load_recipe(recipe, *overrides or ())
    with logging_redirect_tqdm():
        report = prepare_data(loaded)
    print(report)
