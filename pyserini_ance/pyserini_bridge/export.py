"""Export of a run for Pyserini's own code: the stock class that may encode as a checkpoint does, topics, and
the search command.
"""

import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.ance import STOCK_FILE
from pyserini_ance.encoders.config import at, config_of, read_side_file, tower_folder
from pyserini_ance.encoders.dpr import is_dpr
from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS
from pyserini_ance.pyserini_bridge.java import choose_java, import_encoders
from pyserini_ance.storage.files import read_json, utf8_path, write_whole


class StockClass(NamedTuple):
    """A class of Pyserini that reads an encoder's folder, with settings by the names of `init_query_encoder`
    and `init_encoder`."""

    folder: Path
    name: str
    settings: Mapping[str, Any] = {}

    def flags(self, side: Side) -> list[str]:
        """The flags for the encoder of `pyserini.search.faiss`, or of `pyserini.encode ... encoder`."""
        flags = ["--encoder", str(self.folder), "--encoder-class", self.name]
        for name, value in self.settings.items():
            is_prefix = name == "prefix" and side == "query"
            flags.append("--query-prefix" if is_prefix else f"--{name.replace('_', '-')}")
            flags += [] if value is True else [str(value)]
        if side == "document":
            documents = config_of(self.folder).tokenization.document
            flags += ["--fields", *documents.fields]
            flags += ["--max-length", str(documents.length_tokens)]
            flags += ["--dimension", str(read_side_file(self.folder)["dimension"])]
        return flags


def stock_class(folder: Path, side: Side) -> StockClass:
    """The stock class that reads the form of a side's tower, which may compute other vectors."""
    tower = tower_folder(folder, side)
    config = config_of(tower)
    if (tower / STOCK_FILE).exists():
        return StockClass(tower, "ance")
    if is_dpr(tower):
        return StockClass(tower, "dpr")
    prompt = config.tokenization.prompts().get(side, "")
    settings: dict[str, Any] = {"l2_norm": True} if at(side, config.normalize) else {}
    # Stock `qwen3` runs code that config.json names, and reads a missing prefix as "None".
    if config.pooling == "lasttoken" and "auto_map" not in read_json(tower / "config.json"):
        length = {"max_length": config.tokenization.query.length_tokens} if side == "query" else {}
        return StockClass(tower, "qwen3", {**settings, **length, "prefix": prompt})
    pooling = "mean" if config.pooling == "mean" else "cls"
    prefix = {"prefix": prompt.rstrip()} if prompt.strip() else {}  # a blank follows it
    return StockClass(tower, "auto", {"pooling": pooling, **settings, **prefix})


def encode_by_stock(stock: StockClass, side: Side, records: Sequence[Mapping[str, str]]) -> np.ndarray:
    """Encode records into (N, D) float32 as Pyserini's commands do; they start no Java here."""
    init_query_encoder, init_encoder = import_encoders()
    given = {"pooling": "cls", "l2_norm": False, "prefix": None, **stock.settings}
    given |= {"encoder_class": stock.name, "device": "cpu"}
    with utf8_path(stock.folder) as folder:
        if side == "query":
            given |= dict.fromkeys(("tokenizer_name", "topics_name", "encoded_queries"))
            queries = init_query_encoder(**{"max_length": 256, **given}, encoder=str(folder))
            if first := config_of(stock.folder).tokenization.query.first_documents:
                if stock.name != "ance":
                    raise ValueError("it reads no first documents")
                cls, sep = queries.tokenizer.cls_token, queries.tokenizer.sep_token
                texts = (sep.join(record[name] for name in ("text", *first)) for record in records)
                return np.stack([queries.prf_encode(f"{cls}{text}{sep}") for text in texts])
            return np.stack([queries.encode(record["text"]) for record in records])
        documents = init_encoder(**given, encoder=str(folder), multimodal=False, explicit_truncate=False)
    settings = config_of(stock.folder).tokenization.document
    fields = dict.fromkeys(["text", *settings.fields])
    columns = {f"{name}s": [record.get(name, "") for record in records] for name in fields}
    return documents.encode(**columns, max_length=settings.length_tokens)


def check_ids(ids: Sequence[str], what: str) -> None:
    """Raises ValueError for ids that are empty or contain blanks, because runs are split at blanks.

    what: `query` or `document`, for the message.
    """
    if bad := [id for id in ids if id.split() != [id]]:
        shown = ", ".join(map(repr, bad[:5]))
        raise ValueError(
            f"{len(bad)} {what} ids are empty or contain blanks or line ends, which runs cannot represent: "
            f"{shown}. Rename them."
        )


def write_topics(queries: Sequence[tuple[str, str]], folder: Path, split: str = "test") -> Path:
    """Write the topics for Pyserini and return the file, `topics.SPLIT.json`.

    Pyserini's readers of other files convert an id of digits to a number (007 becomes 7), and cut texts at
    tabs. Texts are stripped, as encoders strip them.
    """
    check_ids([id for id, _ in queries], "query")
    topics = {id: {"title": text.strip()} for id, text in queries}
    file = Path(folder) / f"topics.{split}.json"
    # ASCII, because Pyserini opens the file in the encoding of the locale.
    write_whole(file, json.dumps(topics, indent=0) + "\n")
    return file


def search_command(
    topics: Path,
    index: Path,
    output: Path,
    encoder: Sequence[str],
    hits: int,
    passages: int = 1,
    remove_query: bool = False,
) -> str:
    """The shell command that searches with Pyserini: the stock module if possible, else this package's.

    The stock module must be able to start Java, and must reproduce the checkpoint. If documents have up to
    `passages` rows in the index, the search retrieves `passages` times as many rows. remove_query: without
    the document that has the query's id, in whose place one more is retrieved.
    """
    try:
        stock = ENCODER_CLASS not in encoder and choose_java().runs_stock_commands
    except RuntimeError:  # no Java
        stock = False
    program = ["pyserini.search.faiss"] if stock else ["pyserini_ance", "search", "faiss"]
    files = ["--topics", topics, "--index", index, "--output", output]
    deep = ["--hits", (hits + remove_query) * passages, *(["--remove-query"] if remove_query else [])]
    deep += [] if passages == 1 else ["--max-passage", "--max-passage-hits", hits]
    return shlex.join(map(str, [python_program(), "-m", *program, *encoder, *files, *deep]))


def python_program() -> str:
    """`python` if it is in this interpreter's environment, else the interpreter's path."""
    path = shutil.which("python")
    return "python" if path and Path(path).parent == Path(sys.executable).parent else sys.executable
