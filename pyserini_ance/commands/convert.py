"""`pyserini-ance convert`: data, mined negatives and rankings in the formats of other tools."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument

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
    to: Annotated[Literal["beir", "tevatron", "trec", "msmarco"], parsing.option("FORMAT", "see below")],
    output: Annotated[Path, parsing.option("PATH", "the folder (beir, tevatron) or file to write")],
    overrides: parsing.Overrides = None,
    table: Annotated[
        str | None,
        parsing.option("GENERATION/TABLE", "negatives such as ance-00000100/query.0 (default: the last)"),
    ] = None,
    num_negatives: Annotated[
        int | None,
        parsing.count("N", "the first N negatives of a query (default: 30 for tevatron, else all)"),
    ] = None,
    split: Annotated[
        str | None, parsing.option("NAME", "the ranking of this test split, not negatives")
    ] = None,
) -> None:
    """Write a collection, mined negatives or a ranking in a format of other tools."""
    console.log_to_stderr()
    if to not in FOLDERS:
        parsing.check_output(output)
    from pyserini_ance.reports.conversion import convert

    key = convert(source, to, output, table, split, tuple(overrides or ()), num_negatives)
    print(f"{output}: written; in a recipe it is\n{key}")
