"""`python -m pyserini_ance.convert RECIPE|RUN --to LAYOUT --output PATH`: data, mined negatives and rankings for other tools."""

import argparse
from pathlib import Path

from pyserini_ance import cli

LAYOUTS = {
    "beir": "the collection as a folder: corpus.jsonl, queries.jsonl, qrels",
    "tevatron": "the same as training files with texts, and the mined negatives of a run",
    "trec": "the mined negatives of a run, or one of its rankings, as a TREC run",
    "msmarco": "the same as `qid docid rank`, which MS MARCO's leaderboards take",
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.convert", description=__doc__)
    parser.add_argument("source", metavar="RECIPE|RUN", help="a recipe, or a run directory; FOLDER:ROW is the ranking of a row of its closing table")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="set a value of the recipe, by its dotted key")
    parser.add_argument("--to", choices=LAYOUTS, required=True, help="; ".join(f"{name}: {what}" for name, what in LAYOUTS.items()))
    parser.add_argument("--output", type=Path, required=True, help="the folder (beir, tevatron) or file to write")
    parser.add_argument("--table", metavar="GENERATION/TABLE", help="of a run: which negatives, such as ance-00000100/query.0; default: the last")
    parser.add_argument("--split", help="of a run: its ranking of this test split, in place of negatives; of FOLDER:ROW the default is the first")
    args = parser.parse_intermixed_args(arguments)
    cli.log_to_stderr()
    from pyserini_ance.experiment.convert import convert

    said = convert(args.source, args.to, args.output, args.table, args.split, tuple(args.overrides))
    print(f"{args.output}: written; in a recipe it is\n{said}")


if __name__ == "__main__":
    cli.run(main)
