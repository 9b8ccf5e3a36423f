"""The command that searches with a finished run by Pyserini's own code, as it works on this machine."""

import shlex
import shutil
import sys
from pathlib import Path

from pyserini_ance.pyserini_bridge.java import choose_java
from pyserini_ance.pyserini_bridge.stock import StockChoice


def search_command(topics: Path, index: Path, output: Path, choice: StockChoice, hits: int, passages: int = 1) -> str:
    """Ready to paste: the stock module itself where it can start its Java and knows the class, else our launcher of it.

    Where documents have up to `passages` rows in the index, `hits` of them are certain to be among `passages` times as many rows.
    """
    stock = choice.reproduces_exactly and _stock_commands_run()
    program = ["pyserini.search.faiss"] if stock else ["pyserini_ance.search", "faiss"]
    encoder = ["--encoder", choice.query_folder, "--encoder-class", choice.query_class, *choice.flags]
    files = ["--topics", topics, "--index", index, "--output", output]
    deep = ["--hits", hits] if passages == 1 else ["--hits", hits * passages, "--max-passage", "--max-passage-hits", hits]
    return shlex.join(map(str, [_python(), "-m", *program, *encoder, *files, *deep]))


def _stock_commands_run() -> bool:
    try:
        return choose_java().runs_stock_commands
    except RuntimeError:
        return False


def _python() -> str:
    """`python` where that word means this interpreter's environment."""
    found = shutil.which("python")
    return "python" if found and Path(found).parent == Path(sys.executable).parent else sys.executable
