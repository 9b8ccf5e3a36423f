"""What the benchmarks' parsers share."""

import argparse
from pathlib import Path

from pyserini_ance.commands.parsing import RANKING, output_file, output_folder

__all__ = [
    "add_questions",
    "add_ranking_source",
    "command_parser",
    "output_file",
    "output_folder",
    "positive_int",
]


def command_parser(name: str, description: str, example: str, details: str = "") -> argparse.ArgumentParser:
    """The parser of `python -m benchmarks...`; its help ends with `details` and an example."""
    epilog = f"{details}\n\nexample:\n  {example}" if details else f"example:\n  {example}"
    form = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=name, description=description, epilog=epilog, formatter_class=form)


def positive_int(text: str) -> int:
    """The type of an argument that is a count."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def add_ranking_source(parser: argparse.ArgumentParser) -> None:
    """The argument that names a ranking: `source`, as pipeline/ranking_inputs.py reads it."""
    parser.add_argument("source", metavar="RUN|RECIPE", help=f"{RANKING}, or a recipe with --run")


def add_questions(group: argparse._ArgumentGroup) -> None:
    """The argument that names a file of questions in place of a split."""
    help = "questions and answers in a file of DPR (.csv, .txt, .json), instead of a split"
    group.add_argument("--questions", type=Path, metavar="FILE", help=help)
