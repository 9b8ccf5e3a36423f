"""`python -m pyserini_ance.compare RUN [RUN ...]`: one table of finished runs, the seeds of a recipe in one row."""

import argparse
from pathlib import Path

from pyserini_ance import cli
from pyserini_ance.measures.compare import compare, read_results
from pyserini_ance.measures.table import table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.compare", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories that hold measures.json")
    rows, columns = compare([read_results(run) for run in parser.parse_args(arguments).runs])
    print(table(rows, columns))


if __name__ == "__main__":
    cli.run(main)
