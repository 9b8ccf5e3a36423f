"""Export of a run for Pyserini's own code: topics, and the search command."""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS
from pyserini_ance.pyserini_bridge.java import choose_java
from pyserini_ance.pyserini_bridge.stock_class import StockChoice
from pyserini_ance.storage.files import write_whole

SHOWN = 5


def check_ids(ids: Sequence[str], what: str) -> None:
    """Raises ValueError for ids that are empty or contain blanks, because runs are split at blanks.

    what: `query` or `document`, for the message.
    """
    if bad := [id for id in ids if id.split() != [id]]:
        shown = ", ".join(map(repr, bad[:SHOWN]))
        raise ValueError(
            f"{len(bad)} {what} ids are empty or contain blanks or line ends, which runs cannot represent: "
            f"{shown}. Rename them."
        )


# A tab ends the text, a line end the record, and Java trims all characters up to the blank.
CHANGED_BY_TSV = re.compile(r"[\t\r\n]|\A[\x00- ]|[\x00- ]\Z")


def write_topics(queries: Sequence[tuple[str, str]], folder: Path, split: str = "test") -> Path:
    """Write the topics for Pyserini and return the file: `topics.SPLIT.tsv` or `topics.SPLIT.json`.

    The .json file is written if Pyserini would change ids or texts of the .tsv file.

    All topic readers except that of .json convert an id of digits to a number (007 becomes 7), and a .tsv
    under a path that contains `cacm` is read as that collection. Texts are stripped, as encoders strip them.
    """
    folder = Path(folder)
    check_ids([id for id, _ in queries], "query")
    tsv, exact = folder / f"topics.{split}.tsv", folder / f"topics.{split}.json"
    topics = {id: text.strip() for id, text in queries}
    write_whole(tsv, "".join(f"{id}\t{CHANGED_BY_TSV.sub(' ', text)}\n" for id, text in topics.items()))
    exact.unlink(missing_ok=True)
    # `isdigit` includes superscripts, which `int` rejects.
    changed = [id for id in topics if id.isdigit() and not (id.isdecimal() and str(int(id)) == id)]
    if not changed and not any(map(CHANGED_BY_TSV.search, topics.values())) and "cacm" not in str(folder):
        return tsv
    # ASCII, because Pyserini opens the file in the encoding of the locale.
    write_whole(exact, json.dumps({id: {"title": text} for id, text in topics.items()}, indent=0) + "\n")
    return exact


def search_command(
    topics: Path, index: Path, output: Path, choice: StockChoice, hits: int, passages: int = 1
) -> str:
    """The shell command that searches with Pyserini: the stock module if possible, else this package's.

    The stock module must be able to start Java, and must reproduce the checkpoint. If documents have up to
    `passages` rows in the index, the search retrieves `passages` times as many rows.
    """
    try:
        stock = choice.query_class != ENCODER_CLASS and choose_java().runs_stock_commands
    except RuntimeError:  # no Java
        stock = False
    program = ["pyserini.search.faiss"] if stock else ["pyserini_ance", "search", "faiss"]
    encoder = ["--encoder", choice.query_folder, "--encoder-class", choice.query_class, *choice.flags]
    files = ["--topics", topics, "--index", index, "--output", output]
    deep = (
        ["--hits", hits]
        if passages == 1
        else ["--hits", hits * passages, "--max-passage", "--max-passage-hits", hits]
    )
    return shlex.join(map(str, [python_program(), "-m", *program, *encoder, *files, *deep]))


def python_program() -> str:
    """`python` if it is in this interpreter's environment, else the interpreter's path."""
    path = shutil.which("python")
    return "python" if path and Path(path).parent == Path(sys.executable).parent else sys.executable
