"""Encoder classes for Pyserini, registered as `pyserini_ance` for queries and documents.

They compute vectors exactly as the checkpoint's side file says.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from pyserini_ance.data.passages import DELIMITER
from pyserini_ance.encoders.config import SIDE_FILE, is_saved
from pyserini_ance.encoders.hub import is_local
from pyserini_ance.encoders.sentence_transformers_files import text_settings
from pyserini_ance.pyserini_bridge.java import import_pyserini
from pyserini_ance.runs.any_encoder import is_run, load_any_encoder

log = logging.getLogger(__name__)
ENCODER_CLASS = "pyserini_ance"
SEPARATOR = "\0"


class QueryEncoder:
    """Query encoder for `--encoder-class pyserini_ance` and `FaissSearcher(index, QueryEncoder(dir))`."""

    def __init__(
        self,
        encoder_dir: str,
        tokenizer_name: str | None = None,
        device: str = "cpu",
        prefix: str | None = None,
        **others: Any,
    ):
        refused = {"--tokenizer": tokenizer_name, "--query-prefix": prefix}
        _check_flags(encoder_dir, refused, {"--fp16": others.get("fp16")})
        self.encoder = load_any_encoder(encoder_dir, device, "query").optimize_for_inference()
        # Of ANCE-PRF, which joins the texts of a query and of its first documents.
        self.tokenizer = SimpleNamespace(cls_token="", sep_token=SEPARATOR)

    def encode(self, query: str | Sequence[str]) -> np.ndarray:
        """(D,) float32 vector of a query, or (N, D) of a list of queries."""
        return self.encode_batch([query])[0] if isinstance(query, str) else self.encode_batch(query)

    def encode_batch(self, queries: Sequence[str]) -> np.ndarray:
        """(N, D) float32 vectors of queries."""
        return self.encoder.encode([{"text": query} for query in queries], "query")

    def prf_encode(self, query: str) -> np.ndarray:
        """(D,) float32 vector of a query and its first documents, each followed by SEPARATOR."""
        return self.prf_batch_encode([query])[0]

    def prf_batch_encode(self, queries: Sequence[str]) -> np.ndarray:
        """(N, D) float32 vectors of queries and their first documents.

        Raises ValueError for another number of documents than the encoder reads.
        """
        names = ["text", *self.encoder.config.tokenization.query.first_documents]
        texts = [query.split(SEPARATOR)[:-1] for query in queries]
        if any(len(each) != len(names) for each in texts):
            reads = f"--prf-depth {len(names) - 1}" if names[1:] else "no --prf-method ance-prf"
            raise ValueError(f"the encoder reads queries with {len(names) - 1} first documents; pass {reads}")
        return self.encoder.encode([dict(zip(names, each, strict=True)) for each in texts], "query")


class DocumentEncoder:
    """Document encoder for `pyserini.encode ... encoder --encoder-class pyserini_ance --fields ...`."""

    def __init__(self, model_name: str, device: str = "cpu", **others: Any):
        self.folder = model_name
        self.encoder = load_any_encoder(model_name, device, "document").optimize_for_inference()
        self._is_checked = False

    def encode(
        self,
        texts: list[str],
        max_length: int | None = None,
        fp16: bool = False,
        add_sep: bool = False,
        **fields: list[str] | None,
    ) -> np.ndarray:
        """(N, D) float32 vectors. Pyserini passes the field `title` as the keyword `titles`, and so on."""
        others = {name.removesuffix("s"): values for name, values in fields.items() if values is not None}
        columns = {"text": texts, **others}
        if not self._is_checked:  # all calls have the same flags and fields
            length = self.encoder.length_tokens("document")
            ignored = {"--fp16": fp16, f"--max-length {max_length}": max_length not in (None, length)}
            _check_flags(self.folder, {"--add-sep": add_sep}, ignored)
            documents = self.encoder.config.tokenization.document
            if missing := [name for name in documents.fields if name not in columns]:
                arguments = ", ".join(f"{name}s=[...]" for name in missing)
                log.warning(
                    f"{self.folder} reads documents as {documents.template!r}, but {', '.join(missing)} is "
                    f"not passed. If the corpus has it, pass {arguments}; on the command line, add it to "
                    "`--fields` of both `input` and `encoder`."
                )
            self._is_checked = True
        rows = zip(*columns.values(), strict=True)
        records = [{name: value or "" for name, value in zip(columns, row, strict=True)} for row in rows]
        return self.encoder.encode(records, "document")


def _check_flags(folder: str, refused: Mapping[str, object], ignored: Mapping[str, object]) -> None:
    """Raise ValueError for flags that would change vectors; warn of those that change nothing here."""
    if given := [flag for flag, value in refused.items() if value]:
        raise ValueError(
            f"{', '.join(given)} cannot be used with {folder}: its {SIDE_FILE} says how texts are read; "
            "remove the flag"
        )
    if given := [flag for flag, value in ignored.items() if value]:
        flags = ", ".join(given)
        log.warning(f"{flags} is ignored: {SIDE_FILE} of {folder} determines lengths; vectors are float32")


def is_ours(name: str) -> bool:
    """Whether our class reads the encoder, or says that its folder is missing."""
    if is_saved(name) or is_run(name) or (is_local(name) and not Path(name).exists()):
        return True
    return bool(text_settings(name))


def register() -> None:
    """Register the encoder class `pyserini_ance` with Pyserini; starts Java, as Pyserini's imports do."""
    encode = import_pyserini("pyserini.encode")
    encode.document_encoder_class_map[ENCODER_CLASS] = DocumentEncoder
    encode.query_encoder_class_map[ENCODER_CLASS] = QueryEncoder


def patch_searcher() -> None:
    """Let Pyserini's FaissSearcher, as its REST server uses it, load an encoder by name as its files say, and
    return documents by their best passage (MaxP), as `--max-passage` does elsewhere.

    It guesses a class from the letters of the path (`ance` is in `finance`), without the encoder's pooling,
    and returns passages.
    """
    searcher = import_pyserini("pyserini.search.faiss").FaissSearcher
    guessed, found = searcher._init_encoder_from_str, searcher.search

    def encoder(name: str) -> Any:
        return QueryEncoder(name) if is_ours(name) else guessed(name)

    def search(self: Any, query: str, k: int = 10, *given: Any, **others: Any) -> Any:
        of = self.query_encoder
        passages = of.encoder.config.tokenization.document.passages if isinstance(of, QueryEncoder) else 1
        hits = found(self, query, k * passages, *given, **others)
        if passages == 1:
            return hits
        best: dict[str, Any] = {}
        for hit in hits:
            hit.docid = hit.docid.rsplit(DELIMITER, 1)[0]
            best.setdefault(hit.docid, hit)
        return list(best.values())[:k]

    searcher._init_encoder_from_str, searcher.search = staticmethod(encoder), search
