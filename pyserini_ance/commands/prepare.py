"""`pyserini-ance prepare`: read, check, count and tokenize ahead all data that training needs."""

from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance.commands import console


def main(arguments: list[str] | None = None) -> None:
    parser = console.command_parser(
        "prepare",
        "Read, check and tokenize a recipe's data ahead of training; list what is missing.",
        "pyserini-ance prepare msmarco-passage/ance data.collection=collection.tsv",
        "Training reads the result from the cache.",
    )
    parser.add_argument("recipe", help="a shipped recipe, such as msmarco-passage/ance, or a file")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="dotted.key=value",
        help="override values of the recipe, for example data.collection=FILE cache=FOLDER",
    )
    args = parser.parse_intermixed_args(arguments)
    console.log_to_stderr()
    from pyserini_ance.pipeline.preparation_report import prepare_data
    from pyserini_ance.runs.rundir import load_recipe

    recipe = load_recipe(args.recipe, *args.overrides).recipe
    with logging_redirect_tqdm():
        report = prepare_data(recipe)
    print(report)
