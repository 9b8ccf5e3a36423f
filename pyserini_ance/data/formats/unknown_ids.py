"""Judgments of queries or documents that do not exist: counted by side, refused or skipped."""

import logging
from collections.abc import Iterable
from itertools import islice

from pyserini_ance.data.collection import PLURALS, Side, Texts
from pyserini_ance.data.formats.builder import Judgment
from pyserini_ance.data.formats.lines import SHOWN_CHARACTERS

log = logging.getLogger(__name__)

SHOWN = 5
LONGEST_NUMBER = 20  # digits of an id that may have lost leading zeros
# Of the judgments: so many are skipped with a warning that the ids of two files may differ.
SUSPICIOUS_SHARE = 0.1


class UnknownIds:
    """The judgments of one split whose query or document does not exist; the first few are kept."""

    def __init__(self, split: str, queries: Texts, documents: Texts) -> None:
        self.count = 0
        self._split = split
        self._texts: dict[Side, Texts] = {"query": queries, "document": documents}
        self._counts: dict[Side, int] = {"query": 0, "document": 0}
        self._ids: dict[Side, list[str]] = {"query": [], "document": []}  # the first, each once
        self._first: list[Judgment] = []

    def add(self, judgment: Judgment) -> None:
        self.count += 1
        if len(self._first) < SHOWN:
            self._first.append(judgment)
        for side, id in _ids(judgment):
            if id not in self._texts[side].rows:
                self._counts[side] += 1
                if len(self._ids[side]) <= SHOWN and id not in self._ids[side]:
                    self._ids[side].append(id)

    def refuse(self, skip: str) -> None:
        """Raise ValueError, with the number and the first ids of each side, if there are any.

        skip: the setting that ignores such judgments.
        """
        if not self.count:
            return
        examples = ", ".join(
            f"{j.line.short_place} {f'{j.query} {j.document}'[:SHOWN_CHARACTERS]}" for j in self._first
        )
        raise ValueError(
            f"{self.count} judgments of split {self._split!r} refer to a query or a document that does not "
            f"exist; {self._by_side()}; the first: {examples}; {self._lost_zeros()}correct the ids, add what "
            f"is missing, or skip such judgments with {skip}"
        )

    def warn(self, read: int) -> None:
        """Log a warning if they are a large share of the judgments that were `read`: skipping them may hide
        that the ids of two files differ."""
        if self.count > SUSPICIOUS_SHARE * read:
            log.warning(
                "split %s: %d of its %d judgments are skipped; %s. Are the ids of these files the same ones? "
                "If they are not, those judgments that fit do so by chance",
                self._split,
                self.count,
                read,
                self._by_side(),
            )

    def _by_side(self) -> str:
        return "; ".join(
            f"{count} name an unknown {side} ({_listed(self._ids[side])}), "
            f"the {PLURALS[side]} are {_listed(self._texts[side].ids)}"
            for side, count in self._counts.items()
            if count
        )

    def _lost_zeros(self) -> str:
        """A hint if an id exists with other leading zeros: a JSON number has none, and pandas drops them."""
        for judgment in self._first:
            for side, id in _ids(judgment):
                rows = self._texts[side].rows
                others = (id.lstrip("0").zfill(length) for length in range(1, LONGEST_NUMBER))
                found = next((other for other in others if other in rows), None)
                if id.isdecimal() and id not in rows and found:
                    return (
                        f"{side} {found!r} exists: was {id!r} written as a number, without its leading "
                        "zeros? Write ids as strings in all files; or "
                    )
        return ""


def _ids(judgment: Judgment) -> tuple[tuple[Side, str], ...]:
    return ("query", judgment.query), ("document", judgment.document)


def _listed(ids: Iterable[str]) -> str:
    """The first ids, shortened, as `1, 2, 4, 8, 9, ...`."""
    first = list(islice(ids, SHOWN + 1))
    shown = [id if len(id) <= SHOWN_CHARACTERS // 2 else f"{id[: SHOWN_CHARACTERS // 2]}..." for id in first]
    return ", ".join([*shown[:SHOWN], *(["..."] if len(first) > SHOWN else [])]) or "none"
