"""Topics as Pyserini reads them, with ids and texts that survive its readers."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from pyserini_ance.pyserini_bridge.ids import refuse_unwritable
from pyserini_ance.storage.files import write_whole

# A tab ends the text, a line end the record, and Java trims everything up to the blank.
CHANGED_BY_TSV = re.compile(r"[\t\r\n]|\A[\x00- ]|[\x00- ]\Z")


def write_topics(queries: Sequence[tuple[str, str]], folder: Path, split: str = "test") -> Path:
    """Write `topics.SPLIT.tsv` and, where Pyserini would read it otherwise, `topics.SPLIT.json`; return the one to use.

    Every topic reader but that of .json makes a number of an id of digits (007 becomes 7), that of .jsonl too; and a .tsv
    under a path that contains `cacm` goes to the reader of that collection. Texts are stripped, as encoders strip them.
    """
    folder = Path(folder)
    refuse_unwritable([id for id, _ in queries], "query")
    tsv, exact = folder / f"topics.{split}.tsv", folder / f"topics.{split}.json"
    topics = {id: text.strip() for id, text in queries}
    write_whole(tsv, "".join(f"{id}\t{CHANGED_BY_TSV.sub(' ', text)}\n" for id, text in topics.items()))
    exact.unlink(missing_ok=True)
    survive = all(_id_survives(id) and not CHANGED_BY_TSV.search(text) for id, text in topics.items())
    if survive and "cacm" not in str(folder):
        return tsv
    # ASCII, because Pyserini opens it in the encoding of the locale
    write_whole(exact, json.dumps({id: {"title": text} for id, text in topics.items()}, indent=0) + "\n")
    return exact


def _id_survives(id: str) -> bool:
    """Python counts the digits of every script, and superscripts, of which `int` fails."""
    return not id.isdigit() or (id.isdecimal() and str(int(id)) == id)
