"""Two classes of negatives between which a training query swings, as cases and as a picture by t-SNE.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, section 3.2, Figure 6; appendix F, Table 10.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.papers.studies.figures import Line, Panel, bars, lines, lines_of, points
from benchmarks.papers.studies.studied_run import Findings, Mined, NotKept, Row, StudiedRun, passage_means
from benchmarks.papers.studies.t_sne import AXES, placed
from pyserini_ance.reports.forgetting import reciprocal_ranks
from pyserini_ance.runs.rundir import TRAINING_RANKS_CUTOFF as CUTOFF

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CASES = 8  # as in Table 10
CLASSES = ("class A", "class B")
QUERY, RELEVANT, OTHER = "query", "relevant", "other negative"
GROUPS = (*CLASSES, RELEVANT, OTHER)  # in this order they have the same colours in all panels


@dataclass(frozen=True)
class Case:
    """A query (its place among the anchors) with its classes; class A is new in generation `first`."""

    query: int
    first: int
    classes: tuple[Sequence[int], Sequence[int]]

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Ascending from the clearest case: both classes large, then A, then early."""
        a, b = map(len, self.classes)
        return -min(a, b), -a, self.query, self.first


def study(runs: Sequence[StudiedRun]) -> Findings:
    """The eight clearest cases; for the first, or `--query`, how many negatives of each class each generation
    has, their scores by the models that mined, and t-SNE of the vectors by each of these models.

    Class A: negatives that a generation has first, the next lacks, and the one after it has again. Class B:
    the same, one generation later. Models are those of the checkpoints that are kept.
    """
    rows: list[Row] = []
    summary: list[Row] = []
    panels: list[Panel] = []
    notes: list[str] = []
    for run in runs:
        suffix = f": {run.name}" if len(runs) > 1 else ""
        chosen = run.chosen_anchor(run.training_queries)
        sampled = run.sampled_anchors("study negative-swing")
        anchors = sampled if chosen is None else np.array([chosen], np.int32)
        mined = [generation for generation in run.mined_for(anchors) if generation.negatives.shape[1]]
        if len(mined) < 3:
            raise NotKept(
                f"{run.run.folder} has {len(mined)} generations of negatives for the same queries; swing "
                "needs 3"
            )
        each = [[generation.of(place) for generation in mined] for place in range(len(anchors))]
        found = sorted(
            (case for place, of in enumerate(each) if (case := case_of(place, of))),
            key=lambda case: case.rank,
        )
        if not found:
            raise NotKept(
                f"{run.run.folder}: none of {len(anchors)} training queries has negatives that one "
                "generation dropped and the next had again; --queries samples more"
            )
        both = sum(bool(case.classes[1]) for case in found)
        notes.append(
            f"{run.name}: {len(found)} of {len(anchors)} training queries swing, {both} with both classes"
        )
        for case in found[:CASES]:
            own = _case_rows(run, int(anchors[case.query]), mined, case)
            rows += own
            shown = {name: [row["text"] for row in own if row["class"] == name] for name in CLASSES}
            beginnings = {name: f"{len(of)}: {of[0]}" if of else "" for name, of in shown.items()}
            queries, anchor = run.data.split.queries, int(anchors[case.query])
            about = {"run": run.name, "query": queries.ids[anchor], "text": queries.columns["text"][anchor]}
            summary.append(about | beginnings)
        placed = _points(run, int(anchors[found[0].query]), mined, found[0])
        if not placed:
            notes.append(f"{run.name}: no checkpoint that mined is kept; train with save_total_limit=100")
        rows += placed
        panels += _panels(suffix, mined, found[0], placed, _ranks(run, int(anchors[found[0].query])))
    return Findings(rows, panels, summary, notes)


def swinging(generations: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each generation of a query's negatives but the last two, those that it has first, the next lacks
    and the one after it has again, in their order."""
    seen: set[int] = set()
    found = []
    for place, own in enumerate(generations[:-2]):
        following, after = map(set, generations[place + 1 : place + 3])
        found.append([row for row in dict.fromkeys(own) if row not in seen | following and row in after])
        seen |= set(own)
    return found


def case_of(query: int, generations: Sequence[Sequence[int]]) -> Case | None:
    """The clearest case of a query with these negatives; None if none returns."""
    found = swinging(generations)
    cases = [Case(query, place, (of, [*found, []][place + 1])) for place, of in enumerate(found) if of]
    return min(cases, key=lambda case: case.rank, default=None)


def _case_rows(run: StudiedRun, anchor: int, mined: Sequence[Mined], case: Case) -> list[Row]:
    documents = run.data.collection.documents
    return [
        {
            "run": run.name,
            "query": run.data.split.queries.ids[anchor],
            "class": name,
            "id": documents.ids[row],
            "generations": [of.name for of in mined if row in of.negatives[case.query]],
            "text": " ".join(" ".join(documents[row].values()).split())[:100],
        }
        for name, of_class in zip(CLASSES, case.classes, strict=True)
        for row in of_class
    ]


def _points(run: StudiedRun, anchor: int, mined: Sequence[Mined], case: Case) -> list[Row]:
    """A row for each text of the picture by each kept checkpoint that mined.

    A document of several passages scores as the best and is drawn at their mean.
    """
    kept = run.checkpoints_by_weights
    shown = [generation for generation in mined[case.first : case.first + 4] if generation.weights in kept]
    ids, rows = run.data.collection.documents.ids, []
    for generation in shown:
        known = run.data.anchor_sets["query"].known_positives
        groups = dict.fromkeys(known.of(anchor).tolist(), RELEVANT)
        for name, of_class in zip(CLASSES, case.classes, strict=True):
            groups |= dict.fromkeys(of_class, name)
        groups |= {row: OTHER for row in generation.of(case.query) if row not in groups}
        snapshot, documents = run.snapshot(kept[generation.weights]), np.array(list(groups), np.int32)
        query = snapshot.encode_queries(run.data.train_split, np.array([anchor]))
        vectors, passages = snapshot.encode_documents(documents)
        scores = vectors @ query[0]
        if passages is not None:
            scores = np.maximum.reduceat(scores, passages.offsets[:-1])
        names = [(run.data.split.queries.ids[anchor], QUERY), *((ids[row], groups[row]) for row in groups)]
        about = {"run": run.name, "generation": generation.name, "step": generation.position}
        own = [
            {**about, "class": group, "id": id, "score": float(score)}
            for (id, group), score in zip(names, [np.nan, *scores], strict=True)
        ]
        places = np.concatenate([query, passage_means(vectors, passages)])
        rows += placed(own, places, run.settings.seed)
    return rows


def _ranks(run: StudiedRun, anchor: int) -> dict[str, float]:
    """RR@100 of a training query by generation; empty if the run's rankings are too short for it."""
    place = np.searchsorted(run.data.anchor_sets["query"].known_positives.anchors, anchor)
    try:
        return {name: float(of[place]) for name, of in reciprocal_ranks(run.run.folder).items()}
    except ValueError:
        return {}


def _panels(
    suffix: str, mined: Sequence[Mined], case: Case, placed: Sequence[Row], ranks: Mapping[str, float]
) -> Iterator[Panel]:
    has = {
        generation.name: {
            name: float(len(set(of) & set(generation.of(case.query))))
            for name, of in zip(CLASSES, case.classes, strict=True)
        }
        for generation in mined
    }
    yield Panel(f"The query's negatives{suffix}", "generation of negatives", "negatives", bars(has))
    if not placed:
        return
    averaged = pd.DataFrame(placed).groupby(["class", "step"], sort=False).score.mean().reset_index()
    means = lines_of(averaged.to_dict("records"), "class", "step", "score")
    scores = lines({group: means.get(group, Line([], [])) for group in GROUPS})
    title = f"By the model of each generation{suffix}"
    yield Panel(title, "step of all stages", "mean score with the query", scores)
    for name in dict.fromkeys(row["generation"] for row in placed):
        own = [row for row in placed if row["generation"] == name]
        title = name + (f", RR@{CUTOFF} {ranks[name]:.2f}" if name in ranks else "") + suffix
        yield Panel(title, *AXES, partial(_draw, own))


def _draw(rows: Sequence[Row], axes: "Axes") -> None:
    """The documents of one picture, and the query as a star."""
    places = lines_of(rows, "class", "x", "y")
    query = places.pop(QUERY)
    points({group: places.get(group, Line([], [])) for group in GROUPS}, emphasized=CLASSES)(axes)
    axes.plot(query.x, query.y, "k*", label=QUERY, markersize=14, zorder=4)
