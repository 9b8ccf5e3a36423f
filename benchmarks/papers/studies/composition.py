"""Composition of the training negatives by the generation that first had them, and their swing.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, section 3.2, Figures 5, 7, 9 and 10.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.papers.studies.figures import Line, Panel, bars, lines
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun
from pyserini_ance.data.trec import PADDING
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.runs.generation import TableKey

TITLE = "Composition of training negatives by first encounter, and their swing"
ANCHORS_PER_BLOCK = 10_000  # bounds the memory: all generations of so many anchors at once
Tables = Mapping[TableKey, NegativeTable]


def study(runs: Sequence[StudiedRun]) -> Findings:
    """For each generation of negatives, how many of its (query, negative) pairs each earlier generation and
    source was the first to have; and what becomes of the pairs that a generation introduces.

    `dropped`: the share of a generation's new pairs that the next one lacks. `returned`: the share of those
    that the one after it has again (negative swing). A pair counts once, however often it occurs.
    """
    rows: list[Row] = []
    summary: list[Row] = []
    panels: list[Panel] = []
    for run in runs:
        encounters = _encounters(run)
        of_run = encounters.rows(run.name)
        rows += of_run
        summary += encounters.swing(run.name)
        panels += _panels(run.name if len(runs) > 1 else "", of_run, encounters)
    return Findings(rows, panels, summary)


def _panels(name: str, rows: Sequence[Row], encounters: "Encounters") -> list[Panel]:
    suffix = f": {name}" if name else ""
    shares: dict[str, dict[str, float]] = {}
    for row in rows:
        shares.setdefault(row["generation"], {})[row["first"]] = 100 * row["share"]
    kept = {
        f"new in {since}": Line(encounters.positions[place:], [100 * share for share in of_later])
        for place, (since, of_later) in enumerate(encounters.kept().items())
        if of_later
    }
    composed = Panel(
        f"First encounter{suffix}", "generation of negatives", "share (%)", bars(shares, stacked=True)
    )
    left = Panel(f"What is left of new negatives{suffix}", "step of all stages", "share (%)", lines(kept))
    return [composed, left]


@dataclass
class Encounters:
    """Counts over the generations of a run, in order.

    first: for each generation, its pairs by the label of their first encounter. new_in: for each pair of
    generations (i, j), the pairs that i introduced and j has. returned: for each generation, the pairs that
    it introduced, the next one lacks and the one after it has.
    """

    names: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    first: list[Counter[str]] = field(default_factory=list)
    new_in: Counter[tuple[int, int]] = field(default_factory=Counter)
    returned: Counter[int] = field(default_factory=Counter)

    def rows(self, run: str) -> list[Row]:
        return [
            {
                "run": run,
                "generation": name,
                "step": position,
                "first": first,
                "negatives": count,
                "share": count / counts.total(),
            }
            for name, position, counts in zip(self.names, self.positions, self.first, strict=True)
            for first, count in counts.items()
        ]

    def kept(self) -> dict[str, list[float]]:
        """For each generation, the share of its new pairs that it and each later generation has."""
        return {
            name: [self.new_in[i, j] / self.new_in[i, i] for j in range(i, len(self.names))]
            if self.new_in[i, i]
            else []
            for i, name in enumerate(self.names)
        }

    def swing(self, run: str) -> list[Row]:
        """A row for each generation; `dropped` and `returned` are missing at the end of the run."""
        rows = []
        for i, name in enumerate(self.names):
            new, last = self.new_in[i, i], len(self.names) - 1
            gone = new - self.new_in[i, i + 1]
            rows.append(
                {
                    "run": run,
                    "generation": name,
                    "negatives": self.first[i].total(),
                    "new": new / self.first[i].total(),
                    "dropped": gone / new if new and i < last else None,
                    "returned": self.returned[i] / gone if new and gone and i < last - 1 else None,
                }
            )
        return rows


def _encounters(run: StudiedRun) -> Encounters:
    generations = [
        (name, position, tables)
        for name, position, of_all in run.tables_in_use
        if (tables := {key: table for key, table in of_all.items() if table.anchor_side == "query"})
    ]
    run.check_no_generation_was_removed()
    if not generations:
        raise NotKept(f"{run.run.folder} has no tables of negatives for queries: its recipe mines none")
    every = np.unique(np.concatenate([t.anchors for *_, of in generations for t in of.values()]))
    names, positions = [name for name, *_ in generations], [position for _, position, _ in generations]
    found = Encounters(names, positions, [Counter() for _ in names])
    blocks = max(1, -(-len(every) // ANCHORS_PER_BLOCK))
    for block in np.array_split(every, blocks):
        count(found, [tables for *_, tables in generations], block)
    return found


def count(found: Encounters, generations: Sequence[Tables], anchors: np.ndarray) -> None:
    """Add the pairs of these anchors (A,), ascending, to the counts."""
    largest = max(int(t.candidates.max(initial=0)) for tables in generations for t in tables.values())
    seen = np.empty(0, np.int64)
    labels_of, since = np.empty((2, 0), np.int32)
    labels: list[str] = []
    present: list[np.ndarray] = []
    for number, tables in enumerate(generations):
        keys, own = _pairs(tables, anchors, largest + 1, found.names[number], labels)
        is_new = ~np.isin(keys, seen, assume_unique=True)
        merged = np.concatenate([seen, keys[is_new]])
        order = np.argsort(merged, kind="stable")
        seen = merged[order]
        labels_of = np.concatenate([labels_of, own[is_new]])[order]
        since = np.concatenate([since, np.full(int(is_new.sum()), number, np.int32)])[order]
        at = np.searchsorted(seen, keys)
        for label, pairs in enumerate(np.bincount(labels_of[at], minlength=len(labels)).tolist()):
            if pairs:
                found.first[number][labels[label]] += pairs
        for earlier, pairs in enumerate(np.bincount(since[at], minlength=number + 1).tolist()):
            found.new_in[earlier, number] += pairs
        if number >= 2:
            back = keys[since[at] == number - 2]
            found.returned[number - 2] += int((~np.isin(back, present[number - 1])).sum())
        present.append(keys)


def _pairs(
    tables: Tables, anchors: np.ndarray, width: int, generation: str, labels: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs (P,) int64 of all tables, ascending, each once, and the number of each one's label (P,).

    A candidate with an origin has the label of that; others have the generation and the table's source.
    New labels are added to `labels`.
    """
    keys: list[np.ndarray] = []
    own: list[np.ndarray] = []
    for table in tables.values():
        own_anchors = anchors[np.isin(anchors, table.anchors)]
        at = table.positions(own_anchors) if len(own_anchors) else np.empty(0, int)
        candidates = table.candidates[at]
        mask = candidates != PADDING
        names = [str(origin) for origin in table.origins] or [f"{table.source} of {generation}"]
        numbers = np.array([_number(name, labels) for name in names], np.int32)
        origin = np.zeros(candidates.shape, np.uint8) if table.origin is None else table.origin[at]
        keys.append((own_anchors[:, None].astype(np.int64) * width + candidates)[mask])
        own.append(numbers[origin[mask]])
    unique, first = np.unique(np.concatenate(keys), return_index=True)
    return unique, np.concatenate(own)[first]


def _number(name: str, labels: list[str]) -> int:
    if name not in labels:
        labels.append(name)
    return labels.index(name)
