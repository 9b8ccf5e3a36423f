"""Docstrings in the source files of an installed package, each cut after its first sentence.

Sources are parsed, not imported: quick, silent, and the same whatever else the process has loaded.
"""

import ast
import importlib.util
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyserini_ance.data.formats.lines import Line

SENTENCE_WORDS = 4
DOCUMENT_WORDS = 20

# The end of a sentence: a mark, perhaps closing quotes, and then no lower-case word ("wrt. the", "e.g. a").
SENTENCE_END = re.compile(r"""[.!?]["'`)\]*]*(?=\s+[^\sa-z]|\Z)|\Z""")

# First sentences that are none: a signature, a parameter, a directive, a doctest, a heading, an introduction to code.
NO_SENTENCE = re.compile(
    r"\A[\w.]+\(|\A[*\w]+ ?:|\A\.\. |\A>>>|^[-=~^]{3,}$|::\Z|deprecated", re.MULTILINE | re.IGNORECASE
)

TESTS = re.compile(r"tests?|testing|conftest|test_.*|.*_test")

PIP_NAMES = {"sklearn": "scikit-learn"}


class Docstring(NamedTuple):
    """`id` is `package.module:Class.method`, and `line` where that definition starts."""

    line: Line
    module: str
    id: str
    sentence: str
    rest: str


def package_docstrings(package: str) -> Iterator[Docstring]:
    """In the order of the files, tests left out. Raises ValueError where the package is not installed."""
    root = _folder(package)
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if not any(TESTS.fullmatch(part) for part in parts):
            yield from _module_docstrings(path, ".".join([package, *(part for part in parts if part != "__init__")]))


def _folder(package: str) -> Path:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        cure = f"python -m pip install {PIP_NAMES.get(package, package)}"
        raise ValueError(f"data.packages: no installed package {package!r}; install it: {cure}")
    return Path(spec.submodule_search_locations[0])


def _module_docstrings(path: Path, module: str) -> Iterator[Docstring]:
    for name, node in _parsed(path):
        sentence, rest = _cut(ast.get_docstring(node) or "")
        if len(sentence.split()) < SENTENCE_WORDS or NO_SENTENCE.search(sentence) or len(rest.split()) < DOCUMENT_WORDS:
            continue
        yield Docstring(Line(path, node.lineno, ""), module, f"{module}:{name}", " ".join(sentence.split()), rest)


def _parsed(path: Path) -> list[tuple[str, ast.AST]]:
    with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
        try:
            return list(_definitions(ast.parse(path.read_bytes(), filename=str(path)), ""))
        except SyntaxError as error:
            found, number = error.msg, error.lineno or 1
        except (ValueError, RecursionError, MemoryError) as error:
            found, number = f"source that cannot be parsed ({error})", 1
    raise Line(path, number, "").error(found, "Python source", "leave its package out of data.packages")


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    """Classes, functions and methods, also under `if` and `try`, but none inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
        if isinstance(child, ast.ClassDef):
            yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _definitions(child, prefix)


def _cut(docstring: str) -> tuple[str, str]:
    """The first sentence, which may be a first paragraph without a full stop, and what comes after it."""
    paragraph = re.split(r"\n\s*\n", docstring, maxsplit=1)[0]
    end = SENTENCE_END.search(paragraph).end()
    return docstring[:end], docstring[end:].strip()
