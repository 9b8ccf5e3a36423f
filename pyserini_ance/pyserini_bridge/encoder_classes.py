"""Encoder classes for Pyserini, registered as `pyserini_ance` for queries and documents.

They compute vectors exactly as the checkpoint's side file says. `run_module` runs a module of Pyserini
unmodified, with Java started and these classes registered.
"""

import argparse
import logging
import re
import runpy
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.encoders.family import SIDE_FILE
from pyserini_ance.encoders.load_save import load_tower
from pyserini_ance.pyserini_bridge.java import import_pyserini, offline_explained, start_java

log = logging.getLogger(__name__)
# Modules with a flag --encoder-class. Other modules do not import all encoders, which takes about 5 s.
ENCODING_MODULES = ("pyserini.encode", "pyserini.search.faiss", "pyserini.search.hybrid")


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
        _reject(encoder_dir, {"--tokenizer": tokenizer_name, "--query-prefix": prefix})
        _warn_ignored(encoder_dir, {"--fp16": others.get("fp16")})
        self.encoder = load_tower(encoder_dir, "query", device)

    def encode(self, query: str) -> np.ndarray:
        """(D,) float32 vector of a query."""
        return self.encode_batch([query])[0]

    def encode_batch(self, queries: list[str]) -> np.ndarray:
        """(N, D) float32 vectors of queries."""
        return self.encoder.encode([{"text": query} for query in queries], "query")


class DocumentEncoder:
    """Document encoder for `pyserini.encode ... encoder --encoder-class pyserini_ance --fields ...`."""

    def __init__(self, model_name: str, device: str = "cpu", **others: Any):
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
        """(N, D) float32 vectors. Pyserini passes the field `title` as the keyword `titles`, and so on."""
        others = {name.removesuffix("s"): values for name, values in fields.items() if values is not None}
        columns = {"text": texts, **others}
        if not self._flags_checked:
            self._check_flags(columns.keys(), max_length, fp16, add_sep)
        records = [
            {name: value or "" for name, value in zip(columns, row, strict=True)}
            for row in zip(*columns.values(), strict=True)
        ]
        return self.encoder.encode(records, "document")

    def _check_flags(
        self, fields: Collection[str], max_length: int | None, fp16: bool, add_sep: bool
    ) -> None:
        """Check flags in the first call; they are the same in every call."""
        self._flags_checked = True
        _reject(self.folder, {"--add-sep": add_sep})
        length = self.encoder.length_tokens("document")
        _warn_ignored(
            self.folder, {"--fp16": fp16, f"--max-length {max_length}": max_length not in (None, length)}
        )
        if (passages := self.encoder.family.tokenization.document.passages) > 1:
            log.warning(
                "%s reads documents in up to %d passages, but Pyserini encodes only the first passage of "
                "each text: "
                "encode whole documents with pyserini-ance encode",
                self.folder,
                passages,
            )
        template = self.encoder.family.tokenization.document.template
        if missing := [name for name in re.findall(r"\{(\w+)\}", template) if name not in fields]:
            log.warning(
                "%s reads documents as %r, but %s is not passed. If the corpus has it, add it to `--fields` "
                "of both `input` and `encoder`.",
                self.folder,
                template,
                ", ".join(missing),
            )


def _reject(folder: str, flags: dict[str, object]) -> None:
    if given := [flag for flag, value in flags.items() if value]:
        raise ValueError(
            f"{', '.join(given)} cannot be used with {folder}: its {SIDE_FILE} says how texts are read; "
            "remove the flag"
        )


def _warn_ignored(folder: str, flags: dict[str, object]) -> None:
    if given := [flag for flag, value in flags.items() if value]:
        log.warning(
            "%s is ignored: %s of %s determines lengths, and vectors are float32",
            ", ".join(given),
            SIDE_FILE,
            folder,
        )


ENCODER_CLASS = "pyserini_ance"


def register() -> None:
    """Register the encoder class `pyserini_ance` with Pyserini; starts Java, as Pyserini's imports do."""
    encode = import_pyserini("pyserini.encode")
    encode.document_encoder_class_map[ENCODER_CLASS] = DocumentEncoder
    encode.query_encoder_class_map[ENCODER_CLASS] = QueryEncoder


def run_module(module: str, argv: list[str]) -> None:
    """Run `python -m module *argv` in this process.

    Raises RuntimeError if there is no suitable Java, or Pyserini cannot be imported without a network.
    """
    if module in ENCODING_MODULES:
        argv = with_encoder_class(argv)
        register()
    else:
        start_java()
    with _argv([module, *argv]), _class_among_choices(), offline_explained():
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def with_encoder_class(argv: list[str]) -> list[str]:
    """Add `--encoder-class pyserini_ance`, with a warning, for a saved encoder without a class.

    Without a class, Pyserini uses the first class whose name is part of the path: `ance` is part of
    `dance`, `finance` and `pyserini_ance`.
    """
    flags = [word.partition("=")[0] for word in argv]
    if "--encoder-class" in flags or "--encoder" not in flags:
        return argv
    at = flags.index("--encoder")
    end = at + (1 if "=" in argv[at] else 2)
    encoder = "".join(argv[at:end]).removeprefix("--encoder").removeprefix("=")
    if not (Path(encoder) / SIDE_FILE).exists():
        log.warning(
            "no --encoder-class given: Pyserini will guess one from the path %r; better pass the class",
            encoder,
        )
        return argv
    log.warning("no --encoder-class given: using %s, because %s has a %s", ENCODER_CLASS, encoder, SIDE_FILE)
    return [*argv[:end], "--encoder-class", ENCODER_CLASS, *argv[end:]]


@contextmanager
def _argv(words: list[str]) -> Iterator[None]:
    original, sys.argv = sys.argv, words
    try:
        yield
    finally:
        sys.argv = original


@contextmanager
def _class_among_choices() -> Iterator[None]:
    """Add `pyserini_ance` to the choices of `--encoder-class`, which are constants in Pyserini's modules."""
    original = argparse.ArgumentParser.add_argument

    def add_argument(self: argparse.ArgumentParser, *names: Any, **settings: Any) -> argparse.Action:
        if "--encoder-class" in names and settings.get("choices"):
            settings["choices"] = [*settings["choices"], ENCODER_CLASS]
        return original(self, *names, **settings)

    setattr(argparse.ArgumentParser, "add_argument", add_argument)  # noqa: B010  # not for mypy otherwise
    try:
        yield
    finally:
        del argparse.ArgumentParser.add_argument  # the original is inherited
