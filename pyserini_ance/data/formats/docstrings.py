"""A collection made from installed packages: first sentences of docstrings are queries for the rest."""

import ast
import hashlib
import importlib.util
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line
from pyserini_ance.data.formats.records import Entry
from pyserini_ance.data.made_splits import SENTENCE_END
from pyserini_ance.data.trec import Judgment
from pyserini_ance.recipe.components import expected

SENTENCE_WORDS = 4
DOCUMENT_WORDS = 20

# First paragraphs that are not sentences: a signature, a parameter, a directive, a doctest, a heading, an
# introduction to code.
NO_SENTENCE = re.compile(
    r"\A[\w.]+\(|\A[*\w]+ ?:|\A\.\. |\A>>>|^[-=~^]{3,}$|::\Z|deprecated", re.MULTILINE | re.IGNORECASE
)

# A NUL or half a surrogate pair, which an escape in a docstring that is not raw may stand for.
NO_TEXT = re.compile("[\\0\ud800-\udfff]")

TESTS = re.compile(r"tests?|testing|conftest|test_.*|.*_test")

PIP_NAMES = {"Bio": "biopython", "sklearn": "scikit-learn"}

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Docstring(NamedTuple):
    """A docstring, split after its first sentence.

    id: `package.module:Class.method`. line: the line at which the definition starts.
    """

    line: Line
    module: str
    id: str
    sentence: str
    rest: str


def package_docstrings(package: str) -> Iterator[Docstring]:
    """Iterate over the docstrings of an installed package in the order of its files, without test modules.

    Raises ValueError if the package is not installed, and for a file that cannot be parsed.
    """
    for path, module in _modules(package):
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            try:
                definitions = list(_definitions(ast.parse(path.read_bytes(), filename=str(path)), ""))
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                line = Line(path, getattr(error, "lineno", 1) or 1, "")
                cure = "remove its package from data.packages"
                raise line.error(f"{error}", "Python source", cure) from error
        for name, node in definitions:
            docstring = ast.get_docstring(node) or ""
            # The first sentence, which may be a first paragraph without a full stop.
            match = SENTENCE_END.search(re.split(r"\n\s*\n", docstring, maxsplit=1)[0])
            assert match is not None  # the pattern also matches the end of the paragraph
            sentence, rest = docstring[: match.end()], docstring[match.end() :].strip()
            if not (
                len(sentence.split()) < SENTENCE_WORDS
                or NO_SENTENCE.search(sentence)
                or NO_TEXT.search(sentence + rest)
                or len(rest.split()) < DOCUMENT_WORDS
            ):
                line = Line(path, node.lineno, "")
                yield Docstring(line, module, f"{module}:{name}", " ".join(sentence.split()), rest)


def _modules(package: str) -> Iterator[tuple[Path, str]]:
    """The source files of a package, in their order, each with the name of its module."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        cure = f"python -m pip install {PIP_NAMES.get(package, package)}"
        raise ValueError(f"data.packages: no installed package {package!r}; install it: {cure}")
    root = Path(spec.submodule_search_locations[0])
    for path in sorted(root.rglob("*.py")):
        names = (*path.parts[len(root.parts) : -1], path.stem)  # 0.14 s less than `relative_to`, of demo
        if not any(TESTS.fullmatch(name) for name in names):
            yield path, ".".join([package, *(name for name in names if name != "__init__")])


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    """Iterate over classes, functions and methods, also under `if` and `try`, but not inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield prefix + child.name, child
        if isinstance(child, ast.ClassDef):
            yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _definitions(child, prefix)


class Docstrings(Format):
    """Docstrings of installed packages: the first sentence is a query, and the rest its relevant document.

    No module is in two splits: of the modules of a list of packages, a tenth each are dev and test, by a hash
    of their names. `max_documents` selects whole modules, in an order drawn by another hash, up to the first
    that would exceed it: a smaller collection is a subset of every larger one.
    """

    kind: str = "docstrings"
    packages: Annotated[
        tuple[str, ...] | dict[str, tuple[str, ...]], expected("a list of packages, or lists by split")
    ] = ("numpy", "scipy", "sklearn", "pandas", "matplotlib")
    """Installed packages whose docstrings are read, or the packages of each split: {train: [numpy], dev:
    [scipy]}."""
    max_documents: int | None = Field(None, ge=1)
    """The maximum number of documents; null: all."""

    @property
    def _split_of_package(self) -> dict[str, str]:
        """The split of each package; "" if modules are split."""
        by_split = self.packages if isinstance(self.packages, dict) else {"": self.packages}
        return {package: split for split, packages in by_split.items() for package in packages}

    def files(self) -> list[tuple[str, Path]]:
        """The source files of all packages: while they are unchanged, they are not parsed again."""
        packages = self._split_of_package
        return [("data.packages", path) for package in packages for path, _ in _modules(package)]

    def raw_data(self) -> RawData:
        packages = self._split_of_package
        docstrings = self._capped(_unique(one for each in packages for one in package_docstrings(each)))
        documents = (Entry(d.line, d.id, {"text": d.rest}) for d in docstrings)
        names = self.packages if isinstance(self.packages, dict) else ("train", "dev", "test")
        parts: dict[str, list[Docstring]] = {name: [] for name in names}
        for docstring in docstrings:
            owners = [one for one in packages if f"{docstring.module}.".startswith(f"{one}.")]
            share = _drawn("split", docstring.module)
            drawn_split = "dev" if share < 0.1 else "test" if share < 0.2 else "train"
            parts[packages[max(owners, key=len)] or drawn_split].append(docstring)
        splits = {}
        for name, part in parts.items():
            # Ids differ: some tools remove a document with the id of the query from its ranking.
            queries = [Entry(d.line, f"q-{d.id}", {"text": d.sentence}) for d in part]
            splits[name] = queries, [Judgment(d.line, f"q-{d.id}", d.id, 1) for d in part]
        return RawData(documents, splits)

    def _capped(self, docstrings: list[Docstring]) -> list[Docstring]:
        if self.max_documents is None:
            return docstrings
        sizes = Counter(docstring.module for docstring in docstrings)
        order = sorted(sizes, key=lambda module: _drawn("order", module))
        totals = accumulate(sizes[module] for module in order)
        selected = {name for name, total in zip(order, totals, strict=True) if total <= self.max_documents}
        if order and not selected:
            raise ValueError(
                f"data.max_documents is {self.max_documents}, but whole modules are taken, and the first, "
                f"{order[0]}, has {sizes[order[0]]} docstrings; give at least as many"
            )
        return [docstring for docstring in docstrings if docstring.module in selected]


def _drawn(purpose: str, module: str) -> float:
    """A number drawn uniformly from [0, 1), the same in every process."""
    # "0 " was the default of a seed: the splits stay those of runs with it.
    sha = hashlib.sha256(f"0 {purpose} {module}".encode())
    return int.from_bytes(sha.digest()[:8], "big") / 2**64


def _unique(docstrings: Iterable[Docstring]) -> list[Docstring]:
    """Sort by id and keep the first of equal ids (a definition under `if` and `else`), sentences or rests."""
    unique: list[Docstring] = []
    seen: set[tuple[str, str]] = set()
    for docstring in sorted(docstrings, key=lambda docstring: docstring.id):
        marks = {("id", docstring.id), ("sentence", docstring.sentence), ("rest", docstring.rest)}
        if seen.isdisjoint(marks):
            unique.append(docstring)
            seen |= marks
    return unique
