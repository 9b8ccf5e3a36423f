"""`pyserini-ance convert`: data, mined negatives and rankings in the formats of other tools."""

from typing import Annotated, Literal

from typer import Argument, Option

from pyserini_ance.commands import console, parsing

FOLDERS = ("beir", "tevatron")
DETAILS = """Formats:
  beir      the collection as a folder with corpus.jsonl, queries.jsonl and qrels
  tevatron  the collection as training files with texts and, of a run, its mined negatives
  trec      the mined negatives of a run, or one of its rankings, as a TREC run
  msmarco   the same as `qid docid rank`, for MS MARCO's leaderboards"""


@parsing.command("pyserini-ance convert runs/demo-ance --to tevatron --output demo-tevatron", DETAILS)
def main(
    source: Annotated[
        str, Argument(metavar="RECIPE|RUN", help="a recipe, a run directory, or RUN:ROW for a row's ranking")
    ],
    to: Annotated[Literal["beir", "tevatron", "trec", "msmarco"], Option(metavar="FORMAT", help="see below")],
    output: Annotated[str, Option(metavar="PATH", help="the folder (beir, tevatron) or file to write")],
    overrides: parsing.Overrides = None,
    table: Annotated[
        str | None,
        Option(
            metavar="GENERATION/TABLE",
            help="of a run: the negatives, such as ance-00000100/query.0 (default: the last generation's)",
        ),
    ] = None,
    num_negatives: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="of a run: the first N negatives of each query (default: 30 for tevatron, else all)",
        ),
    ] = None,
    split: Annotated[
        str | None, Option(metavar="NAME", help="of a run: the ranking of this test split, not negatives")
    ] = None,
) -> None:
    """Write a collection, mined negatives or a ranking in a format of other tools."""
    console.log_to_stderr()
    path = (parsing.output_folder if to in FOLDERS else parsing.output_file)(output)
    from pyserini_ance.reports.conversion import convert

    key = convert(source, to, path, table, split, tuple(overrides or ()), num_negatives)
    print(f"{path}: written; in a recipe it is\n{key}")
