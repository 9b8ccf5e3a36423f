"""`pyserini-ance search`: Pyserini's own commands, with embedded Java and this package's encoder classes."""

import logging
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from typer import Argument

from pyserini_ance.commands import parsing

MODULES = {
    "faiss": "pyserini.search.faiss",
    "lucene": "pyserini.search.lucene",
    "hybrid": "pyserini.search.hybrid",
    "encode": "pyserini.encode",
    "index": "pyserini.index.lucene",
    "index-hnsw": "io.anserini.index.IndexHnswDenseVectors",
    "index-flat": "io.anserini.index.IndexFlatDenseVectors",
    "rest": "pyserini.server.rest",
    "trec_eval": "pyserini.eval.trec_eval",
}
TABLE = "\n".join(
    f"  {word:<10} {'python -m ' if module.startswith('pyserini') else ''}{module}"
    for word, module in MODULES.items()
)
DETAILS = f"Commands:\n{TABLE}\n\n`pyserini-ance search faiss --help` shows the options of a command."
EXAMPLE = """pyserini-ance search faiss --encoder RUN/model --encoder-class pyserini_ance \\
    --topics RUN/topics.test.json --index RUN/index --output run.test.txt --hits 100"""


@parsing.command(EXAMPLE, DETAILS, passes_flags=True)
def main(
    command: Annotated[str, Argument(metavar="COMMAND", help=f"one of: {', '.join(MODULES)}")],
    flags: Annotated[list[str] | None, Argument(metavar="...", help="options of that command")] = None,
) -> None:
    """Run a command of Pyserini, unmodified and with its own options.

    Needed if no full JDK 21 is installed (it starts the embedded Java), and for --encoder-class
    pyserini_ance.
    """
    if command not in MODULES:
        parsing.refuse(f"unknown command {command!r}; expected one of {', '.join(MODULES)}")
    logging.basicConfig(format="%(levelname)s: %(message)s")
    from pyserini_ance.pyserini_bridge.launcher import run_module

    given, written = list(flags or ()), list[Path]()
    if command.startswith("index"):
        written = [Path(value) for flag, value in pairwise(given) if flag in ("-index", "--index")]
    before = [path.exists() and path.stat().st_mtime_ns for path in written]
    run_module(MODULES[command], given)
    for path, time in zip(written, before, strict=True):
        if not path.exists() or path.stat().st_mtime_ns == time:  # Anserini reports wrong options and returns
            raise RuntimeError(f"Anserini wrote no index {path}; its message is above")
