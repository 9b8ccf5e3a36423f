"""`python -m benchmarks.papers COMMAND`: the papers' figures, tables and readers, from finished runs."""

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks import options
from pyserini_ance.commands import console

COMMANDS = {"analyze": "figures of the papers' analyses", "tables": "results beside published figures",
            "answer": "a reader answers questions from retrieved passages"}  # fmt: skip


def main(arguments: list[str] | None = None) -> int | None:
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser("python -m benchmarks.papers", description=__doc__)
    parser.add_argument("command", choices=COMMANDS, help="; ".join(map(": ".join, COMMANDS.items())))
    command = parser.parse_args(given[:1]).command
    if command == "tables":
        return tables(given[1:])
    return importlib.import_module(f"benchmarks.papers.{command}").main(given[1:])


def tables(arguments: list[str]) -> None:
    from benchmarks.papers.tables import read_tables

    parser = argparse.ArgumentParser("python -m benchmarks.papers tables")
    parser.add_argument("set", help="a set of recipes: recipes/msmarco-passage, or a folder of your own")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="the folder of the run directories")
    parser.add_argument("--output", type=options.output_file, help="also write .md, .json or .csv")
    args = parser.parse_args(arguments)
    published = read_tables(args.set, args.runs)
    if args.output:
        published.write(args.output)
    print(published.as_markdown())


if __name__ == "__main__":
    console.run(main)
