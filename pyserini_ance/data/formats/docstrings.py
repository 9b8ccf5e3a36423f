"""A collection made from installed packages: find a documentation string by its first sentence."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

from pydantic import Field, model_validator

from pyserini_ance.data.formats.format import Entry, Format, Judgment, Parts
from pyserini_ance.data.formats.sources import Docstring, package_docstrings


class Docstrings(Format):
    """Documents are docstrings without their first sentence, which is the query; no module is in two splits.

    The shares are of modules. `max_documents` takes whole modules, in an order drawn from `seed`, up to the first
    that would exceed it: a smaller collection is a part of every larger one.
    """

    kind: str = "docstrings"
    packages: tuple[str, ...] = ("numpy", "scipy", "sklearn", "pandas", "matplotlib")
    seed: int = 0
    dev_share: float = Field(0.1, ge=0)
    test_share: float = Field(0.1, ge=0)
    max_documents: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _some_modules_train(self):
        if self.dev_share + self.test_share >= 1:
            shares = f"dev_share {self.dev_share} + test_share {self.test_share}"
            raise ValueError(f"{shares}: expected less than 1 in sum, the rest is for training")
        return self

    def parts(self) -> Parts:
        found = _unique(docstring for package in self.packages for docstring in package_docstrings(package))
        found = self._capped(found)
        splits = {name: [d for d in found if self._split_of(d.module) == name] for name in self._split_names()}
        documents = (Entry(d.line, d.id, {"text": d.rest}) for d in found)
        return Parts(documents, {name: _queries(part) for name, part in splits.items()})

    def _split_names(self) -> list[str]:
        shares = {"train": 1, "dev": self.dev_share, "test": self.test_share}
        return [name for name, share in shares.items() if share]

    def _capped(self, found: list[Docstring]) -> list[Docstring]:
        if self.max_documents is None:
            return found
        sizes = Counter(docstring.module for docstring in found)
        order = sorted(sizes, key=lambda module: self._drawn("order", module))
        totals = accumulate(sizes[module] for module in order)
        kept = {module for module, total in zip(order, totals, strict=True) if total <= self.max_documents}
        return [docstring for docstring in found if docstring.module in kept]

    def _split_of(self, module: str) -> str:
        share = self._drawn("split", module)
        if share < self.dev_share:
            return "dev"
        return "test" if share < self.dev_share + self.test_share else "train"

    def _drawn(self, purpose: str, module: str) -> float:
        """Uniform in [0, 1), and the same in every process."""
        sha = hashlib.sha256(f"{self.seed} {purpose} {module}".encode())
        return int.from_bytes(sha.digest()[:8], "big") / 2**64


def _queries(docstrings: list[Docstring]) -> tuple[list[Entry], list[Judgment]]:
    # Not the document's own id: some tools leave out of a ranking what has the id of its query.
    queries = [Entry(docstring.line, f"q-{docstring.id}", {"text": docstring.sentence}) for docstring in docstrings]
    return queries, [Judgment(docstring.line, f"q-{docstring.id}", docstring.id, 1) for docstring in docstrings]


def _unique(found: Iterable[Docstring]) -> list[Docstring]:
    """Sorted by id; of equal ids (a definition under `if` and `else`), sentences or rests, the first."""
    kept, seen = [], set()
    for docstring in sorted(found, key=lambda docstring: docstring.id):
        marks = {("id", docstring.id), ("sentence", docstring.sentence), ("rest", docstring.rest)}
        if seen.isdisjoint(marks):
            kept.append(docstring)
            seen |= marks
    return kept
