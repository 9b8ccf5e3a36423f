"""Run a module of Pyserini unmodified, with Java started and the encoder class `pyserini_ance` registered."""

import argparse
import logging
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS, register
from pyserini_ance.pyserini_bridge.java import offline_explained, start_java

# Modules with a flag --encoder-class. Other modules do not import all encoders, which takes about 5 s.
ENCODING_MODULES = ("pyserini.encode", "pyserini.search.faiss", "pyserini.search.hybrid")
log = logging.getLogger(__name__)


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
    from pyserini_ance.encoders.family import SIDE_FILE

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

    setattr(argparse.ArgumentParser, "add_argument", add_argument)  # noqa: B010  # mypy forbids the assignment
    try:
        yield
    finally:
        del argparse.ArgumentParser.add_argument  # the original is inherited
