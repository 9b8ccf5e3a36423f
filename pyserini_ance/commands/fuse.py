"""`pyserini-ance fuse`: a hybrid of rankings of the same queries, by Pyserini's fusion."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument

from pyserini_ance.commands import parsing
from pyserini_ance.pyserini_bridge.searchers import METHODS, WEIGHTED

DETAILS = "Methods:\n" + "\n".join(f"  {name:<14}{text}" for name, text in METHODS.items())
DETAILS += "\n\n--choose-on takes the weight with the highest first measure on a split of the recipe's."
LEGEND = "the last row is the fusion, as written to --output; the rows above are what it fuses"
EXAMPLE = "pyserini-ance fuse runs/demo-ance --method interpolation --choose-on dev --output fused.trec"


@parsing.command(EXAMPLE, DETAILS)
def main(
    rankings: Annotated[
        list[str],
        Argument(
            metavar="RANKING",
            help=f"{parsing.RANKING}, or a TREC file; a run directory alone is fused with its BM25",
        ),
    ],
    output: Annotated[Path, parsing.output_file("FILE", "the TREC run to write")],
    method: Annotated[
        Literal["rrf", "average", "normalize", "interpolation"], parsing.option("METHOD", "see below")
    ] = "rrf",
    weight: Annotated[float | None, parsing.option("W", "of the first ranking", min=0, max=1)] = None,
    choose_on: Annotated[str | None, parsing.option("SPLIT", "choose the weight by this split")] = None,
    split: parsing.Split = None,
    qrels: parsing.QrelsFile = None,
    measures: parsing.Measures = None,
) -> None:
    """Fuse rankings of the same queries, for example dense and BM25, and measure the result."""
    if (method == WEIGHTED) != ((weight is None) != (choose_on is None)):
        parsing.refuse(f"pass --weight W or --choose-on SPLIT for --method {WEIGHTED}, and for it alone")
    from pyserini_ance.data.trec import read_qrels
    from pyserini_ance.evaluation.tables import table_with_legend
    from pyserini_ance.reports.fusion import fuse_rankings
    from pyserini_ance.storage.files import check_not_input

    check_not_input(output, [*map(Path, rankings), *([qrels] if qrels else [])])
    judgments = read_qrels(qrels) if qrels else None
    rows, tried = fuse_rankings(rankings, method, output, split, weight, choose_on, measures or (), judgments)
    columns = list(rows[0])
    if tried:
        listed = ", ".join(f"{weight:g}: {value:.4f}" for weight, value in sorted(tried.items()))
        print(f"{columns[1]} on {choose_on} by weight: {listed}\n")
    print(table_with_legend(rows, columns, LEGEND))
