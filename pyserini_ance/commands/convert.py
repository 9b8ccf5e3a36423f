"""`pyserini-ance convert`: data, mined negatives and rankings in the formats of other tools."""

from pyserini_ance.commands import console

FORMATS = {
    "beir": "the collection as a folder with corpus.jsonl, queries.jsonl and qrels",
    "tevatron": "the collection as training files with texts and, of a run, its mined negatives",
    "trec": "the mined negatives of a run, or one of its rankings, as a TREC run",
    "msmarco": "the same as `qid docid rank`, for MS MARCO's leaderboards",
}
FOLDERS = ("beir", "tevatron")
DETAILS = "formats:\n" + "\n".join(f"  {name:<10}{text}" for name, text in FORMATS.items())


def main(arguments: list[str] | None = None) -> None:
    parser = console.command_parser(
        "convert",
        "Write a collection, mined negatives or a ranking in a format of other tools.",
        "pyserini-ance convert runs/demo-ance --to tevatron --output demo-tevatron",
        DETAILS,
    )
    parser.add_argument(
        "source",
        metavar="RECIPE|RUN",
        help="a recipe or a run directory; RUN:ROW for the ranking of a row of its results table",
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="dotted.key=value", help="override a value of the recipe"
    )
    parser.add_argument("--to", choices=FORMATS, required=True, help="the format to write, see below")
    parser.add_argument(
        "--output", required=True, metavar="PATH", help="the folder (beir, tevatron) or file to write"
    )
    of_run = parser.add_argument_group("options for a run directory")
    of_run.add_argument(
        "--table",
        metavar="GENERATION/TABLE",
        help="the negatives, such as ance-00000100/query.0 (default: those of the last generation)",
    )
    of_run.add_argument(
        "--negatives",
        type=console.positive_int,
        metavar="N",
        help="write the first N negatives of each query (default: 30 for tevatron, which repeats full texts, "
        "else all)",
    )
    of_run.add_argument(
        "--split",
        help="write the ranking of this test split instead of negatives (default for RUN:ROW: the first)",
    )
    args = parser.parse_intermixed_args(arguments)
    console.log_to_stderr()
    output = (console.output_folder if args.to in FOLDERS else console.output_file)(args.output)
    from pyserini_ance.pipeline.conversion import convert

    chosen = args.table, args.split, tuple(args.overrides), args.negatives
    key = convert(args.source, args.to, output, *chosen)
    print(f"{output}: written; in a recipe it is\n{key}")
