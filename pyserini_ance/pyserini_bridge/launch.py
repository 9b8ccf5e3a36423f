"""Run a module of Pyserini unmodified, with Java started and our encoder class among its choices."""

import argparse
import logging
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyserini_ance.pyserini_bridge.jvm import offline_explained, start_java
from pyserini_ance.pyserini_bridge.register import ENCODER_CLASS, register

# Those with a flag --encoder-class. The others are spared the import of all encoders, some 5 s.
ENCODING_MODULES = ("pyserini.encode", "pyserini.search.faiss", "pyserini.search.hybrid")
log = logging.getLogger(__name__)


def run_module(module: str, argv: list[str]) -> None:
    """Like `python -m module *argv`, in this process.

    Raises RuntimeError when there is no fitting Java, or Pyserini cannot be imported without a network.
    """
    if module in ENCODING_MODULES:
        argv = with_encoder_class(argv)
        register()
    else:
        start_java()
    with _argv([module, *argv]), _class_among_choices(), offline_explained():
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def with_encoder_class(argv: list[str]) -> list[str]:
    """`argv` with our class named after an `--encoder` that is a folder of ours, if the user named no class; warns.

    Without a class Pyserini takes the first name that is part of the path: `ance` is in `dance`, `finance`, `pyserini_ance`.
    """
    from pyserini_ance.encoders.checkpoint import SIDE_FILE

    flags = [word.partition("=")[0] for word in argv]
    if "--encoder-class" in flags or "--encoder" not in flags:
        return argv
    at = flags.index("--encoder")
    end = at + (1 if "=" in argv[at] else 2)
    encoder = "".join(argv[at:end]).removeprefix("--encoder").removeprefix("=")
    if not (Path(encoder) / SIDE_FILE).exists():
        log.warning("no --encoder-class given: Pyserini will guess one from the letters of %r; better name it", encoder)
        return argv
    log.warning("no --encoder-class given: using %s, since %s has a %s", ENCODER_CLASS, encoder, SIDE_FILE)
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
    """Pyserini writes the choices of `--encoder-class` into its modules, which runpy executes afresh."""
    original = argparse.ArgumentParser.add_argument

    def add_argument(self, *names, **settings):
        if "--encoder-class" in names and settings.get("choices"):
            settings["choices"] = [*settings["choices"], ENCODER_CLASS]
        return original(self, *names, **settings)

    argparse.ArgumentParser.add_argument = add_argument
    try:
        yield
    finally:
        del argparse.ArgumentParser.add_argument  # it was inherited
