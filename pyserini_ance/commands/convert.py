"""`pyserini-ance convert`: data and rankings in the formats of other tools."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument

from pyserini_ance.commands import console, parsing

FOLDERS = ("beir", "tevatron")
DETAILS = """Formats:
  beir      the collection as a folder with corpus.jsonl, queries.jsonl and qrels
  tevatron  the collection as training files with texts; `mine` writes them with negatives
  trec      a ranking of a run, as a TREC run
  msmarco   the same as `qid docid rank`, for MS MARCO's leaderboards"""


@parsing.command("pyserini-ance convert demo/ance --to tevatron --output demo-tevatron", DETAILS)
def main(
    source: Annotated[str, Argument(metavar="RECIPE|RUN", help="a recipe, RUN, or RUN:ROW (a ranking)")],
    to: Annotated[Literal["beir", "tevatron", "trec", "msmarco"], parsing.option("FORMAT", "see below")],
    output: Annotated[Path, parsing.option("PATH", "the folder (beir, tevatron) or file to write")],
    overrides: parsing.Overrides = None,
    split: Annotated[
        str | None, parsing.option("NAME", "the test split of a ranking (default: the run's first)")
    ] = None,
) -> None:
    """Write a collection or a ranking in a format of other tools."""
    console.log_to_stderr()
    if to not in FOLDERS:
        parsing.check_output(output)
    from pyserini_ance.reports.conversion import convert

    key = convert(source, to, output, split, tuple(overrides or ()))
    print(f"{output}: written; in a recipe it is\n{key}")
