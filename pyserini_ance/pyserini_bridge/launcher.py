"""Run a module of Pyserini unmodified, with Java started and this package's encoder classes registered."""

import argparse
import logging
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyserini_ance.encoders.config import is_saved
from pyserini_ance.pyserini_bridge import encoder_classes
from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS
from pyserini_ance.pyserini_bridge.java import import_pyserini, start_java
from pyserini_ance.pyserini_bridge.vector_files import ABOUT
from pyserini_ance.runs.any_encoder import encoder_source, is_run
from pyserini_ance.runs.checkpoint import document_weights_of
from pyserini_ance.storage.files import read_json_object

log = logging.getLogger(__name__)
TSV_READER = "io.anserini.search.topicreader.TsvStringTopicReader"
# Modules with a flag --encoder-class, and the word before the flags of the dense encoder. Other modules do
# not import all encoders, which takes about 5 s.
ENCODING_MODULES = {
    "pyserini.encode": "encoder",
    "pyserini.search.faiss": None,
    "pyserini.search.hybrid": "dense",
}


def run_module(module: str, argv: list[str]) -> None:
    """Run `python -m module *argv` in this process, or the `main` of an `io.anserini` class of Java.

    Raises RuntimeError if there is no suitable Java, or for an index that does not exist.
    """
    if module not in ENCODING_MODULES:
        start_java()
    if module.startswith("io.anserini."):
        from jnius import autoclass

        autoclass(module).main(argv)
        return
    indexes = _values(argv, "--index") if module.startswith("pyserini.search.") else []
    if module in ENCODING_MODULES:
        argv = with_class(module, argv)
        _warn_of_other_weights(_values(argv, "--encoder"), indexes)
        encoder_classes.register()
        if "ance-prf" in _values(argv, "--prf-method") and ENCODER_CLASS in _values(argv, "--encoder-class"):
            # Pyserini checks that the first pass has its class, and encodes feedback with it.
            vars(import_pyserini("pyserini.encode"))["AnceQueryEncoder"] = encoder_classes.QueryEncoder
    if module.startswith("pyserini.search."):
        keep_topic_ids()
    if module == "pyserini.server.rest":
        encoder_classes.patch_searcher()
    original, sys.argv = sys.argv, [module, *argv]
    try:
        with _class_among_choices():
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None:  # Pyserini's exit() after it has said what is wrong
            raise RuntimeError(f"{module} ended without a result; its message is above") from None
        raise
    finally:
        sys.argv = original


def keep_topic_ids() -> None:
    """Let Pyserini's commands read topics whose ids its readers change: as text, so that 007 is not 7.

    Other topics are read as always: an order of numbers is not that of texts, and TREC's form has numbers.
    """
    iterators, search = import_pyserini("pyserini.query_iterator"), import_pyserini("pyserini.search._base")

    def read(reader: str, file: str) -> dict[Any, dict[str, str]]:
        is_tsv = file.removesuffix(".gz").endswith((".tsv", ".txt"))
        as_text = TSV_READER if is_tsv else reader
        found = search.JTopicReader.getTopicsWithStringIdsFromFileWithTopicReaderClass(as_text, file)
        ids = [] if found is None else found.keySet().toArray()
        if all(map(is_kept, ids)) and not (is_tsv and "cacm" in file):
            return search.get_topics_with_reader(reader, file)
        return {id: {key: found.get(id).get(key) for key in found.get(id).keySet().toArray()} for id in ids}

    iterators.get_topics_with_reader = read  # type: ignore[attr-defined]


def is_kept(id: str) -> bool:
    """Whether Pyserini's readers keep a topic's id: 007 and +7 become 7, and a superscript is an error."""
    try:
        return str(int(id)) == id
    except ValueError:
        return not id.isdigit()


def _values(argv: list[str], flag: str) -> list[str]:
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    named = [(word.partition("="), following) for word, following in pairs]
    return [value if equals else following for (name, equals, value), following in named if name == flag]


def _warn_of_other_weights(encoders: list[str], indexes: list[str]) -> None:
    """Warn if an index has vectors of another document tower than that of the encoder.

    Indexes of encoders that this package has not saved, or of earlier versions, do not tell.
    """
    for name in encoders:
        encoder = encoder_source(name) if is_run(name) else name
        for index in indexes if is_saved(encoder) else []:
            about = read_json_object(Path(index) / ABOUT) or {}
            if (told := about.get("document_weights")) and told != document_weights_of(Path(encoder)):
                log.warning(
                    f"--index {index} has vectors of {about.get('encoder')}, whose weights are not those of "
                    f"--encoder {encoder}: its scores mean nothing"
                )


def with_class(module: str, argv: list[str]) -> list[str]:
    """Add our class for an encoder whose files it reads, if none is given.

    Without a class, Pyserini uses the first class whose name is part of the path: `ance` is part of `dance`,
    `finance` and `pyserini_ance`. A stock class needs the flags of the command that training prints.
    """
    section = ENCODING_MODULES[module]
    start = argv.index(section) + 1 if section in argv else 0
    names = _values(argv[start:], "--encoder")
    if not names or _values(argv[start:], "--encoder-class"):
        return argv
    if not encoder_classes.is_ours(names[0]):
        log.warning("no --encoder-class given: Pyserini will guess one from the path %r; pass one", names[0])
        return argv
    log.warning("no --encoder-class given: using %s, which reads %s", ENCODER_CLASS, names[0])
    return [*argv[:start], "--encoder-class", ENCODER_CLASS, *argv[start:]]


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
