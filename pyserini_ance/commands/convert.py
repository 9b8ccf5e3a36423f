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
  msmarco   the same as `qid docid rank`, for MS MARCO's leaderboards

A run's mined negatives are written (default: the last generation's, and 30 of a query for tevatron, else
all), unless --split or RUN:ROW names a ranking."""


@parsing.command("pyserini-ance convert runs/demo-ance --to tevatron --output demo-tevatron", DETAILS)
def main(
    source: Annotated[str, Argument(metavar="RECIPE|RUN", help="a recipe, RUN, or RUN:ROW (a ranking)")],
    to: Annotated[Literal["beir", "tevatron", "trec", "msmarco"], parsing.option("FORMAT", "see below")],
    output: Annotated[Path, parsing.option("PATH", "the folder (beir, tevatron) or file to write")],
    overrides: parsing.Overrides = None,
    table: Annotated[str | None, parsing.option("GENERATION/TABLE", "such as ance-00000100/query.0")] = None,
    num_negatives: Annotated[int | None, parsing.count("N", "negatives of a query (see below)")] = None,
    split: Annotated[str | None, parsing.option("NAME", "a ranking of this test split")] = None,
) -> None:
    """Write a collection, mined negatives or a ranking in a format of other tools."""
    console.log_to_stderr()
    if to not in FOLDERS:
        parsing.check_output(output)
    from pyserini_ance.reports.conversion import convert

    key = convert(source, to, output, table, split, tuple(overrides or ()), num_negatives)
    print(f"{output}: written; in a recipe it is\n{key}")
