"""Run a module of Pyserini unmodified, with Java started and this package's encoder classes registered.

Pyserini knows no side file. Flags that an encoder's side file determines are therefore completed, or refused
if they contradict it, and missing files are named before Pyserini looks for them on the web.
"""

import argparse
import logging
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.family import is_local
from pyserini_ance.encoders.load_save import TOWERS, check_weight_files, read_side_file, tower_folder
from pyserini_ance.encoders.saved_settings import SIDE_FILE
from pyserini_ance.encoders.sentence_transformers_import import sentence_transformers_settings
from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS, load_encoders_by_name, register
from pyserini_ance.pyserini_bridge.java import import_pyserini, offline_explained, start_java
from pyserini_ance.pyserini_bridge.shards import ABOUT, joined_index
from pyserini_ance.pyserini_bridge.stock_class import PREFIX_FLAGS, auto_flags, stock_class
from pyserini_ance.recipe.components import similar_name
from pyserini_ance.runs.any_encoder import encoder_source, is_saved
from pyserini_ance.runs.checkpoint import document_weights_of
from pyserini_ance.runs.rundir import RECIPE
from pyserini_ance.storage.files import read_json_object

log = logging.getLogger(__name__)
# Modules with a flag --encoder-class, and the side that they encode. Other modules do not import all
# encoders, which takes about 5 s.
ENCODING_MODULES: dict[str, Side] = {
    "pyserini.encode": "document",
    "pyserini.search.faiss": "query",
    "pyserini.search.hybrid": "query",
}
SEARCH_MODULES = ("pyserini.search.faiss", "pyserini.search.lucene", "pyserini.search.hybrid")
# The subcommand with the encoder's flags, and all subcommands, which argv names in any order.
SUBCOMMANDS = {
    "pyserini.encode": ("encoder", ("input", "output", "encoder")),
    "pyserini.search.hybrid": ("dense", ("dense", "sparse", "fusion", "run")),
}


def run_module(module: str, argv: list[str]) -> None:
    """Run `python -m module *argv` in this process, or the `main` of an `io.anserini` class of Java.

    Raises RuntimeError if there is no suitable Java, or Pyserini cannot be imported without a network;
    FileNotFoundError for an encoder or index that does not exist; ValueError for flags that contradict the
    encoder's side file.
    """
    if module.startswith("io.anserini."):
        _run_java(module, argv)
        return
    indexes = _values(argv, "--index") if module in SEARCH_MODULES else []
    several = indexes if module == "pyserini.search.faiss" and len(indexes) > 1 else []
    for index in indexes:
        if os.sep in index and not Path(index).exists():  # names of prebuilt indexes have no slash
            raise _no_index(index)
    if module in ENCODING_MODULES:
        argv = with_settings(module, argv)
        _warn_of_other_weights(_values(argv, "--encoder"), indexes)
        register()
    else:
        start_java()
    if module == "pyserini.server.rest":
        load_encoders_by_name()
    with _argv([module, *argv]), _class_among_choices(), offline_explained(), _joined(several):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            # Pyserini calls exit() without a code after it has reported an unknown name of an index.
            for index in indexes:
                if end.code is None and not Path(index).exists():
                    raise _no_index(index) from None
            raise


def _run_java(name: str, argv: list[str]) -> None:
    """Run a class of Anserini that writes the index `-index`.

    Raises RuntimeError if it has not: Anserini reports wrong options and returns.
    """
    start_java()
    from jnius import autoclass

    autoclass(name).main(argv)
    for index in _values(argv, "-index"):
        if not Path(index).exists():
            raise RuntimeError(f"Anserini wrote no index {index}; its message is above")


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


def with_settings(module: str, argv: list[str]) -> list[str]:
    """Complete the encoder's flags by what its side file says, with a warning.

    Without a class, Pyserini uses the first class whose name is part of the path: `ance` is part of
    `dance`, `finance` and `pyserini_ance`. Without `--pooling` and `--l2-norm`, its class `auto` uses the
    first token's vector, not normalized. Raises ValueError for a class or flag that contradicts the side
    file.
    """
    side = ENCODING_MODULES[module]
    start, end = _section(module, argv)
    given = vars(_parser(side).parse_known_args(argv[start:end])[0])
    folder, name = given.pop("encoder"), given.pop("encoder_class")
    if folder is None:
        return argv
    if (Path(folder) / RECIPE).is_file():
        folder, run = encoder_source(folder), folder
        names = {run: folder, f"--encoder={run}": f"--encoder={folder}"}
        argv = [*argv[:start], *(names.get(word, word) for word in argv[start:end]), *argv[end:]]
    if not is_saved(folder):
        return [*argv[:end], *_foreign_class(folder, name, given), *argv[end:]]
    if name is None:
        name = ENCODER_CLASS
        added = ["--encoder-class", name]
        log.warning("no --encoder-class given: using %s, because %s has a %s", name, folder, SIDE_FILE)
    else:
        added = []
        _check_class(folder, name, side)
    check_weight_files(tower_folder(folder, side))
    expected = _settings(folder, side)
    _check_flags(folder, given, expected, name)
    completed = [flag for key, flag in _flags(expected, name).items() if given[key] is None]
    if completed:
        words = [word for flag in completed for word in flag]
        log.warning("added %s, as %s of %s says", " ".join(words), SIDE_FILE, folder)
        added += words
    return [*argv[:end], *added, *argv[end:]]


def _section(module: str, argv: list[str]) -> tuple[int, int]:
    """Start and end of the flags among which `--encoder` is."""
    if module not in SUBCOMMANDS:
        return 0, len(argv)
    own, subcommands = SUBCOMMANDS[module]
    starts = [at for at, word in enumerate(argv) if word in subcommands] + [len(argv)]
    sections = [(start, end) for start, end in pairwise(starts) if argv[start] == own]
    return sections[-1] if sections else (len(argv), len(argv))


def _parser(side: Side) -> argparse.ArgumentParser:
    """The flags that a side file determines; None if they are not given."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--encoder", "--encoder-class", "--pooling"):
        parser.add_argument(flag)
    parser.add_argument("--l2-norm", action="store_true", default=None)
    parser.add_argument(PREFIX_FLAGS[side])
    if side == "document":
        for flag in ("--max-length", "--dimension"):
            parser.add_argument(flag, type=int)
    return parser


def _foreign_class(folder: str, name: str | None, given: dict[str, Any]) -> list[str]:
    """The flags that an encoder needs that this package has not saved.

    A sentence-transformers model has all settings in its files, which our class reads.
    """
    if is_local(folder) and not Path(folder).exists():
        raise FileNotFoundError(
            f"--encoder {folder}: no such folder{similar_name(Path(folder))}; expected RUN/model, or a "
            "name on the Hugging Face hub"
        )
    flags = [word for key in ("pooling", "l2_norm") if given[key] for word in _flag(key, given[key])]
    if name == ENCODER_CLASS and flags:
        raise ValueError(f"--encoder-class {name} does not read {' '.join(flags)}; pass --encoder-class auto")
    if name is not None:
        return []
    if flags or not sentence_transformers_settings(folder):
        log.warning("no --encoder-class given: Pyserini will guess one from the path %r; pass one", folder)
        return []
    log.warning("no --encoder-class given: using %s, which reads the files of %s", ENCODER_CLASS, folder)
    return ["--encoder-class", ENCODER_CLASS]


def _check_class(folder: str, name: str, side: Side) -> None:
    """Raise ValueError if a stock class does not compute the vectors of the encoder's side."""
    if name == ENCODER_CLASS:
        return
    side_file = read_side_file(folder)
    choice = stock_class(side_file, Path(folder))
    on_query = side == "query"
    fitting = choice.query_class if on_query else choice.document_class
    tower = choice.query_folder if on_query else choice.document_folder
    classes = " or ".join(dict.fromkeys([fitting, ENCODER_CLASS]))
    if name != fitting:
        other = "queries" if side == "document" else "documents"
        reasons = [reason for reason in choice.reasons if not reason.startswith(f"{other}: ")]
        why = "; ".join(reasons) or f"its {SIDE_FILE} says kind {side_file['kind']}"
        raise ValueError(
            f"--encoder-class {name} does not compute the vectors of {folder}: {why}. Pass --encoder-class "
            f"{classes}"
        )
    if side_file.get("tower", side) != side:
        raise ValueError(
            f"--encoder {folder} encodes a {side_file['tower']}, not a {side}; pass --encoder "
            f"{Path(folder).parent / TOWERS[side]}"
        )
    if tower != Path(folder):
        raise ValueError(
            f"--encoder {folder} has two towers; for --encoder-class {name} pass --encoder {tower}"
        )


def _settings(folder: str, side: Side) -> dict[str, Any]:
    """The values that the flags must have, by the names of the parser; None for flags that must be absent."""
    side_file = read_side_file(folder)
    expected = vars(_parser(side).parse_args(auto_flags(side_file, side)))
    if side == "document":
        expected["max_length"] = side_file["tokenization"][side]["length_tokens"]
        expected["dimension"] = side_file["dimension"]
    return {key: value for key, value in expected.items() if not key.startswith("encoder")}


def _check_flags(folder: str, given: dict[str, Any], expected: dict[str, Any], name: str) -> None:
    for key, value in given.items():
        if value is None or value == expected[key] or (key == "max_length" and name == ENCODER_CLASS):
            continue  # our class warns of another --max-length, and Pyserini's default is one
        right = [word for key, value in expected.items() if value is not None for word in _flag(key, value)]
        raise ValueError(
            f"{' '.join(_flag(key, value))} contradicts {Path(folder) / SIDE_FILE}, by which the flags are "
            f"{' '.join(right)}; remove it"
        )


def _flags(expected: dict[str, Any], name: str) -> dict[str, list[str]]:
    """The flags that class `name` needs, by the names of the parser."""
    needed = {"auto": tuple(expected), ENCODER_CLASS: ("dimension",)}.get(name, ("max_length", "dimension"))
    return {key: _flag(key, expected[key]) for key in needed if expected.get(key) is not None}


def _flag(key: str, value: Any) -> list[str]:
    flag = "--" + key.replace("_", "-")
    return [flag] if value is True else [flag, str(value)]


@contextmanager
def _argv(words: list[str]) -> Iterator[None]:
    original, sys.argv = sys.argv, words
    try:
        yield
    finally:
        sys.argv = original


@contextmanager
def _joined(indexes: list[str]) -> Iterator[None]:
    """Let Pyserini's Faiss searcher read several folders as one index, whichever of them it is given."""
    if not indexes:
        yield
        return
    if absent := [index for index in indexes if not Path(index).is_dir()]:
        raise FileNotFoundError(f"--index {absent[0]}: no such folder; of several --index, each is a folder")
    import faiss

    searcher = import_pyserini("pyserini.search.faiss").FaissSearcher
    read_index, load_docids = faiss.read_index, searcher.load_docids
    joined, ids = joined_index(list(map(Path, indexes)))
    setattr(faiss, "read_index", lambda path: joined)  # noqa: B010  # not for mypy otherwise
    searcher.load_docids = staticmethod(lambda path: ids)
    try:
        yield
    finally:
        setattr(faiss, "read_index", read_index)  # noqa: B010
        searcher.load_docids = staticmethod(load_docids)


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
