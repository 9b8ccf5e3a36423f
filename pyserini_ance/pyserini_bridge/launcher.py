"""Run a module of Pyserini unmodified, with Java started and this package's encoder classes registered."""

import argparse
import logging
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyserini_ance.encoders.family import is_local
from pyserini_ance.encoders.sentence_transformers_import import sentence_transformers_settings
from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS, load_encoders_by_name, register
from pyserini_ance.pyserini_bridge.java import offline_explained, start_java
from pyserini_ance.pyserini_bridge.shards import ABOUT
from pyserini_ance.recipe.components import similar_name
from pyserini_ance.runs.any_encoder import encoder_source, is_saved
from pyserini_ance.runs.checkpoint import document_weights_of
from pyserini_ance.runs.rundir import RECIPE
from pyserini_ance.storage.files import read_json_object

log = logging.getLogger(__name__)
# Modules with a flag --encoder-class. Other modules do not import all encoders, which takes about 5 s.
HYBRID = "pyserini.search.hybrid"
ENCODING_MODULES = ("pyserini.encode", "pyserini.search.faiss", HYBRID)
SEARCH_MODULES = ("pyserini.search.faiss", "pyserini.search.lucene", HYBRID)


def run_module(module: str, argv: list[str]) -> None:
    """Run `python -m module *argv` in this process, or the `main` of an `io.anserini` class of Java.

    Raises RuntimeError if there is no suitable Java, or Pyserini cannot be imported without a network;
    FileNotFoundError for an encoder or index that does not exist.
    """
    if module.startswith("io.anserini."):
        start_java()
        from jnius import autoclass

        autoclass(module).main(argv)
        for index in _values(argv, "-index"):
            if not Path(index).exists():  # Anserini reports wrong options and returns
                raise RuntimeError(f"Anserini wrote no index {index}; its message is above")
        return
    indexes = _values(argv, "--index") if module in SEARCH_MODULES else []
    for index in indexes:
        if os.sep in index and not Path(index).exists():  # names of prebuilt indexes have no slash
            raise _no_index(index)
    if module in ENCODING_MODULES:
        argv = with_class(module, argv)
        _warn_of_other_weights(_values(argv, "--encoder"), indexes)
        register()
    else:
        start_java()
    if module == "pyserini.server.rest":
        load_encoders_by_name()
    original, sys.argv = sys.argv, [module, *argv]
    try:
        with _class_among_choices(), offline_explained():
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        # Pyserini calls exit() without a code after it has reported an unknown name of an index.
        for index in indexes:
            if end.code is None and not Path(index).exists():
                raise _no_index(index) from None
        raise
    finally:
        sys.argv = original


def _values(argv: list[str], flag: str) -> list[str]:
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    return [
        following if word == flag else word.partition("=")[2]
        for word, following in pairs
        if word.partition("=")[0] == flag
    ]


def _warn_of_other_weights(encoders: list[str], indexes: list[str]) -> None:
    """Warn if an index has vectors of another document tower than that of the encoder.

    Indexes of encoders that this package has not saved, or of earlier versions, do not tell.
    """
    for encoder in (one for one in encoders if is_saved(one)):
        for index in indexes:
            about = read_json_object(Path(index) / ABOUT) or {}
            if (told := about.get("document_weights")) and told != document_weights_of(Path(encoder)):
                log.warning(
                    "--index %s has vectors of %s, whose weights are not those of --encoder %s: its scores "
                    "mean nothing",
                    index, about.get("encoder"), encoder,
                )  # fmt: skip


def _no_index(index: str) -> FileNotFoundError:
    return FileNotFoundError(
        f"--index {index}: no such folder{similar_name(Path(index))}, nor a prebuilt index of Pyserini; "
        "expected RUN/index, or a folder that `pyserini-ance encode` wrote. `train --resume` writes a run's "
        "index again"
    )


def with_class(module: str, argv: list[str]) -> list[str]:
    """Replace RUN by RUN/model, and add our class for an encoder whose files it reads if none is given.

    Without a class, Pyserini uses the first class whose name is part of the path: `ance` is part of `dance`,
    `finance` and `pyserini_ance`. A stock class needs the flags of the command that training prints.
    """
    # The sparse encoder of a hybrid search is another one.
    start = argv.index("dense") if module == HYBRID and "dense" in argv else 0
    at = next((n for n in range(start, len(argv)) if argv[n].partition("=")[0] == "--encoder"), None)
    if at is None or argv[at:] == ["--encoder"]:
        return argv
    end = at + 1 if argv[at].startswith("--encoder=") else at + 2
    name = _values(argv[at:end], "--encoder")[0]
    if is_local(name) and not Path(name).exists():
        raise FileNotFoundError(
            f"--encoder {name}: no such folder{similar_name(Path(name))}; expected RUN/model, or a name on "
            "the Hugging Face hub"
        )
    folder = str(encoder_source(name)) if (Path(name) / RECIPE).is_file() else name
    added: list[str] = []
    if not _values(argv[start:], "--encoder-class"):
        if is_saved(folder) or sentence_transformers_settings(folder):
            added = ["--encoder-class", ENCODER_CLASS]
            log.warning("no --encoder-class given: using %s, which reads %s", ENCODER_CLASS, folder)
        else:
            log.warning(
                "no --encoder-class given: Pyserini will guess one from the path %r; pass one", folder
            )
    return [*argv[:at], "--encoder", folder, *added, *argv[end:]]


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
