"""Our encoders behind the calls that Pyserini makes: vectors exactly as the checkpoint's side file says.

Pyserini asks for these methods, not for a base class, so that this file needs no Java. Of untied towers each class loads
its side's. Flags that would contradict the side file are refused; those that the stock classes ignore too, or that have
defaults, are ignored with a warning.
`others` takes what Pyserini passes on account of words in the path (`clip`, `dse`, `contriever`, ...).
"""

import logging
import re

import numpy as np

from pyserini_ance.encoders.checkpoint import SIDE_FILE, load_tower

log = logging.getLogger(__name__)


class QueryEncoder:
    """For `--encoder-class pyserini_ance` and `FaissSearcher(index, QueryEncoder(folder))`."""

    def __init__(
        self, encoder_dir: str, tokenizer_name: str | None = None, device: str = "cpu", prefix: str | None = None, **others
    ):
        _refuse(encoder_dir, {"--tokenizer": tokenizer_name, "--query-prefix": prefix})
        _warn_ignored(encoder_dir, {"--fp16": others.get("fp16")})
        self.encoder = load_tower(encoder_dir, "query", device)

    def encode(self, query: str) -> np.ndarray:
        """(D,) float32"""
        return self.encode_batch([query])[0]

    def encode_batch(self, queries: list[str]) -> np.ndarray:
        """(N, D) float32"""
        return self.encoder.encode([{"text": query} for query in queries], "query")


class DocumentEncoder:
    """For `pyserini.encode input ... encoder --encoder-class pyserini_ance --fields title text`."""

    def __init__(self, model_name: str, device: str = "cpu", **others):
        self.folder, self.encoder = model_name, load_tower(model_name, "document", device)
        self._flags_checked = False

    def encode(
        self,
        texts: list[str],
        max_length: int | None = None,
        fp16: bool = False,
        add_sep: bool = False,
        **fields: list[str] | None,
    ) -> np.ndarray:
        """(N, D) float32. The field `title` comes as the keyword `titles`, and so for every field."""
        others = {name.removesuffix("s"): values for name, values in fields.items() if values is not None}
        columns = {"text": texts, **others}
        if not self._flags_checked:
            self._check_flags(columns.keys(), max_length, fp16, add_sep)
        records = [{name: value or "" for name, value in zip(columns, row, strict=True)} for row in zip(*columns.values(), strict=True)]
        return self.encoder.encode(records, "document")

    def _check_flags(self, fields, max_length: int | None, fp16: bool, add_sep: bool) -> None:
        """Once: they are the same in every call."""
        self._flags_checked = True
        _refuse(self.folder, {"--add-sep": add_sep})
        length = self.encoder.length_tokens("document")
        _warn_ignored(self.folder, {"--fp16": fp16, f"--max-length {max_length}": max_length not in (None, length)})
        if (most := self.encoder.family.tokenization.document.passages) > 1:
            words = "%s reads documents in up to %d passages, and of each text that comes here only the first is read: encode whole documents "
            log.warning(words + "with python -m pyserini_ance.encode", self.folder, most)
        template = self.encoder.family.tokenization.document.template
        if missing := [name for name in re.findall(r"\{(\w+)\}", template) if name not in fields]:
            log.warning(
                "%s reads documents as %r, and %s does not arrive. If the corpus has it, name it after `--fields` "
                "of both `input` and `encoder`.",
                self.folder,
                template,
                ", ".join(missing),
            )


def _refuse(folder: str, flags: dict[str, object]) -> None:
    if given := [flag for flag, value in flags.items() if value]:
        raise ValueError(
            f"{', '.join(given)} cannot be used with {folder}: its {SIDE_FILE} says how texts are read; leave the flag out"
        )


def _warn_ignored(folder: str, flags: dict[str, object]) -> None:
    if given := [flag for flag, value in flags.items() if value]:
        log.warning("%s is ignored: %s of %s decides lengths, and vectors are float32", ", ".join(given), SIDE_FILE, folder)
