"""Is the adapted encoder better? Dev chooses between base, adapted and fused; test is looked at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.adapt.queries import LEAST_TEST
from pyserini_ance.data.trec import Qrels, Run, read_qrels, read_run
from pyserini_ance.evaluation.metrics import overlap, per_query
from pyserini_ance.evaluation.significance import Difference, differences
from pyserini_ance.evaluation.tables import BM25, HYBRID, UNTRAINED, last_stage, read_results, table
from pyserini_ance.pyserini_bridge.searchers import fuse
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.runs.rundir import RunDir

BASE, WORDS, BASE_FUSED = "base", "BM25", "base + BM25"
ADAPTED, FUSED = "adapted", "adapted + BM25"
MEASURE, RECALL = "nDCG@10", "R@100"
LEVEL = 0.05


@dataclass(frozen=True)
class Verdict:
    """The sentence at the end, and the table above it.

    chosen: what dev prefers. better: whether test shows that it is better than the base. rows: the measures
    on test, with the difference from the base; without judged queries how much rankings agree.
    """

    chosen: str
    better: bool
    sentence: str
    rows: list[dict[str, Any]]

    def as_text(self) -> str:
        return f"{table(self.rows, list(self.rows[0]))}\n\n{self.sentence}"


def rankings(run: RunDir, split: str) -> dict[str, Run]:
    """The rankings of a finished run by the base, BM25, the adapted encoder, and both encoders with BM25."""
    result = last_stage(read_results(run.folder)["rows"])["row"]
    by_row = {BASE: UNTRAINED, WORDS: BM25, ADAPTED: result, FUSED: HYBRID}
    found = {name: read_run(run.ranking(row, split)) for name, row in by_row.items()}
    found[BASE_FUSED] = fuse([found[WORDS], found[BASE]], "normalize")
    return {name: found[name] for name in (BASE, WORDS, BASE_FUSED, ADAPTED, FUSED)}


def judge(run: RunDir, model: Path) -> Verdict:
    """The verdict on a finished run that was evaluated on dev and test; `model` is the adapted encoder."""
    dev, test = (_values(run, split) for split in ("dev", "test"))
    means = {name: of[MEASURE].mean() for name, of in dev.items()}
    chosen = max(means, key=lambda name: means[name])  # of equal ones the first, which is simpler
    base = test[BASE][MEASURE]
    rows = []
    for name, of in test.items():
        difference = None if name == BASE else _difference(of[MEASURE], base)
        row = {"": name, MEASURE: float(of[MEASURE].mean()), RECALL: float(of[RECALL].mean())}
        rows.append({**row, "against base": "-" if difference is None else str(difference)})
    against = _difference(test[chosen][MEASURE], base)
    better = chosen != BASE and len(base) >= LEAST_TEST and against.mean > 0 and against.p < LEVEL
    return Verdict(chosen, better, _sentence(chosen, better, against, len(base), model), rows)


def _difference(values: np.ndarray, base: np.ndarray) -> Difference:
    return differences({"": values}, base)[""]


def _sentence(chosen: str, better: bool, against: Difference, queries: int, model: Path) -> str:
    shown = f"{against.mean:+.3f} {MEASURE} ({str(against).partition(', ')[2]}, {queries} test queries)"
    if chosen == BASE:
        return "Keep the base model: nothing is better on dev."
    if queries < LEAST_TEST:
        return (
            f"Keep the base model: {queries} test queries are too few to tell (at least {LEAST_TEST}). The "
            f"best on dev is {chosen}, on test {shown}."
        )
    if not better:
        return f"Keep the base model: {chosen} is the best on dev, but on test its difference is {shown}."
    used = {
        WORDS: "BM25 alone",
        BASE_FUSED: "the base model fused with BM25",
        ADAPTED: str(model),
        FUSED: f"{model} fused with BM25",
    }
    return f"Use {used[chosen]}: {shown} over the base model."


def compare(run: RunDir, split: str) -> Verdict:
    """Without judged queries: how much the rankings of `split` agree with the base model's."""
    found = rankings(run, split)
    rows = []
    for name, ranking in found.items():
        shared = [of["Overlap@10"] for of in overlap(ranking, found[BASE], found[BASE], 10).values()]
        other_first = sum(_first(ranking, query) != _first(found[BASE], query) for query in found[BASE])
        row = {
            "": name,
            "Overlap@10 with base": float(np.mean(shared)),
            "another first document": other_first,
        }
        rows.append(row | {"queries": len(found[BASE])})
    sentence = (
        "Keep the base model: there is no judged query, so nothing here shows that another is better. "
        f"Judge {2 * LEAST_TEST} queries in a CSV file with the columns query, document and grade, and add: "
        "--judgments FILE"
    )
    return Verdict(BASE, False, sentence, rows)


def _first(ranking: Run, query: str) -> str | None:
    hits = ranking.get(query)
    return max(hits, key=hits.__getitem__) if hits else None


def _values(run: RunDir, split: str) -> dict[str, dict[str, np.ndarray]]:
    """By ranking and measure, the values of the judged queries of a split (Q,)."""
    qrels: Qrels = read_qrels(run.qrels(split))
    measures = parse_measures([MEASURE, RECALL])
    values: dict[str, dict[str, np.ndarray]] = {}
    for name, ranking in rankings(run, split).items():
        of_queries = per_query(qrels, ranking, measures)
        values[name] = {
            str(one): np.array([of_queries[query][str(one)] for query in qrels]) for one in measures
        }
    return values
