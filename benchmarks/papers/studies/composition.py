"""Composition of the training negatives by the generation that first had them, and their swing.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, section 3.2, Figures 5, 7, 9 and 10.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.papers.studies.figures import Line, Panel, bars, heights, lines
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.runs.generation import TableKey

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
        in_use: list[tuple[str, int, Tables]] = []
        for name, position, of_all in run.tables_in_use:
            if tables := {key: table for key, table in of_all.items() if table.anchor_side == "query"}:
                in_use.append((name, position, tables))
        if not in_use:
            raise NotKept(f"{run.run.folder} has no tables of negatives for queries: its recipe mines none")
        names, positions, generations = zip(*in_use, strict=True)
        counts = count(generations, names)
        totals = counts.first.groupby(level=0).sum()
        own: list[Row] = [
            {"run": run.name, "generation": names[number], "step": positions[number], "first": first}
            | {"negatives": int(pairs), "share": float(pairs / totals[number])}
            for (number, first), pairs in counts.first.items()
        ]
        rows += own
        summary += [{"run": run.name, **row} for row in swing(counts, names)]
        suffix = f": {run.name}" if len(runs) > 1 else ""
        left = {
            f"new in {name}": Line(positions[place:], [100 * share for share in kept(counts, place)])
            for place, name in enumerate(names)
            if counts.pairs(place, place)
        }
        composed = bars(heights(own, "generation", "first", "share", 100), stacked=True)
        panels += [
            Panel(f"First encounter{suffix}", "generation of negatives", "share (%)", composed),
            Panel(f"What is left of new negatives{suffix}", "step of all stages", "share (%)", lines(left)),
        ]
    return Findings(rows, panels, summary)


class Counts(NamedTuple):
    """Counts of pairs over the generations of a run, by their numbers.

    first: by generation and the label of their first encounter. new_in: by (i, j), the pairs that generation
    i introduced and j has. returned: by i, those that i + 1 lacks and i + 2 has again.
    """

    first: pd.Series
    new_in: pd.Series
    returned: pd.Series

    def pairs(self, introduced: int, generation: int) -> int:
        return int(self.new_in.get((introduced, generation), 0))


def kept(counts: Counts, number: int) -> list[float]:
    """The share of a generation's new pairs that it and each later generation has."""
    later = range(number, 1 + counts.first.index.levels[0].max())
    return [counts.pairs(number, other) / counts.pairs(number, number) for other in later]


def swing(counts: Counts, names: Sequence[str]) -> list[Row]:
    """A row for each generation; `dropped` and `returned` are missing at the end of the run."""
    rows: list[Row] = []
    for i, name in enumerate(names):
        total, new, last = int(counts.first[i].sum()), counts.pairs(i, i), len(names) - 1
        gone, back = new - counts.pairs(i, i + 1), int(counts.returned.get(i, 0))
        row = {"generation": name, "negatives": total, "new": new / total}
        row["dropped"] = gone / new if new and i < last else None
        rows.append(row | {"returned": back / gone if new and gone and i < last - 1 else None})
    return rows


def count(generations: Sequence[Tables], names: Sequence[str]) -> Counts:
    """Count the pairs of all generations; `names` are part of their labels."""
    tables = [table for of_generation in generations for table in of_generation.values()]
    every = np.unique(np.concatenate([table.anchors for table in tables]))
    width = 1 + max(int(table.candidates.max(initial=0)) for table in tables)
    labels: dict[str, int] = {}
    blocks: list[tuple[pd.Series, ...]] = []
    for anchors in np.array_split(every, max(1, -(-len(every) // ANCHORS_PER_BLOCK))):
        of_each = [_pairs(*each, anchors, width, labels) for each in zip(generations, names, strict=True)]
        pairs = pd.concat(of_each, keys=range(len(of_each)), names=["generation"]).reset_index("generation")
        firsts = pairs.drop_duplicates("pair").set_index("pair")
        pairs["since"] = pairs.pair.map(firsts.generation)
        pairs["label"] = pairs.pair.map(firsts.label)
        following, after = (pairs[pairs.generation == pairs.since + later] for later in (1, 2))
        counted = (pairs, ["generation", "label"]), (pairs, ["since", "generation"])
        back = after[~after.pair.isin(following.pair)]
        blocks.append(tuple(of.groupby(by).size() for of, by in (*counted, (back, ["since"]))))
    first, new_in, returned = (
        pd.concat(parts).groupby(level=list(range(parts[0].index.nlevels))).sum()
        for parts in zip(*blocks, strict=True)
    )
    return Counts(first.rename(dict(enumerate(labels)), level="label"), new_in, returned)


def _pairs(
    tables: Tables, generation: str, anchors: np.ndarray, width: int, labels: dict[str, int]
) -> pd.DataFrame:
    """The pairs of all tables for these anchors (A,), ascending, each once: anchor * width + negative, and
    the number of its label.

    A candidate with an origin has the label of that; others have the generation and the table's source.
    New labels are added to `labels`.
    """
    found = [pd.DataFrame({"pair": np.empty(0, np.int64), "label": np.empty(0, np.int64)})]
    for table in tables.values():
        own = anchors[np.isin(anchors, table.anchors)]
        at = table.positions(own) if len(own) else np.empty(0, int)
        candidates = table.candidates[at]
        mask = candidates != PADDING
        names = [str(origin) for origin in table.origins] or [f"{table.source} of {generation}"]
        numbers = np.array([labels.setdefault(name, len(labels)) for name in names])
        origin = np.zeros(candidates.shape, np.uint8) if table.origin is None else table.origin[at]
        keys = own[:, None].astype(np.int64) * width + candidates
        found.append(pd.DataFrame({"pair": keys[mask], "label": numbers[origin[mask]]}))
    return pd.concat(found).drop_duplicates("pair").sort_values("pair")
