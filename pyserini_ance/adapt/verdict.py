"""Is the adapted encoder better? Dev chooses between base, adapted and fused; test is looked at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd

from pyserini_ance.adapt.documents import counted
from pyserini_ance.adapt.queries import LEAST_TEST, hash_of
from pyserini_ance.adapt.ranking import first_document
from pyserini_ance.data.collection import Collection
from pyserini_ance.data.trec import Qrels, Run, best_first, read_qrels, read_run
from pyserini_ance.encoders.cross_encoder_model import record_text
from pyserini_ance.evaluation.metrics import differences, overlap, per_query
from pyserini_ance.evaluation.tables import BM25, HYBRID, UNTRAINED, last_stage, read_results, table
from pyserini_ance.pyserini_bridge.searchers import fuse
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.reports.ranking_inputs import collection_of
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_whole

BASE, ONLY_BM25, BASE_FUSED = "base", "BM25", "base + BM25"
ADAPTED, FUSED = "adapted", "adapted + BM25"
MEASURE, RECALL = "nDCG@10", "R@100"
LEVEL = 0.05
POOLED = 3  # documents of a ranking


@dataclass(frozen=True)
class Verdict:
    """The sentence at the end, and the table above it.

    chosen: what dev prefers. better: whether test shows that it is better than the base. rows: the measures
    on test, with the difference from the base, and dev's; without judged queries how much rankings agree.
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
    by_row = {BASE: UNTRAINED, ONLY_BM25: BM25, ADAPTED: result, FUSED: HYBRID}
    found = {name: read_run(run.ranking(row, split)) for name, row in by_row.items()}
    found[BASE_FUSED] = fuse([found[ONLY_BM25], found[BASE]], "normalize")
    return {name: found[name] for name in (BASE, ONLY_BM25, BASE_FUSED, ADAPTED, FUSED)}


def judge(run: RunDir, model: Path) -> Verdict:
    """The verdict on a finished run that was evaluated on dev and test; `model` is the adapted encoder.

    What dev prefers is better if, on test, it is above the base, and an adapted encoder also above the best
    that needs no training by dev (p values of both by Holm). Else that best untrained one may be.
    """
    dev, test = (_values(run, split) for split in ("dev", "test"))
    means = {name: float(of[MEASURE].mean()) for name, of in dev.items()}
    values = {name: of[MEASURE] for name, of in test.items()}
    rows = []
    for name, of in test.items():
        row = {"": name, MEASURE: float(of[MEASURE].mean()), RECALL: float(of[RECALL].mean())}
        against = "-" if name == BASE else str(differences({"": of[MEASURE]}, values[BASE])[""])
        rows.append({**row, "against base": against, f"dev {MEASURE}": means[name]})
    untrained = max((BASE, ONLY_BM25, BASE_FUSED), key=means.__getitem__)  # of equal ones the first: simpler
    chosen = max(means, key=means.__getitem__)
    queries = len(values[BASE])
    if chosen == BASE:
        judged = counted(len(dev[BASE][MEASURE]), "queries")
        sentence = f"Keep the base model: nothing is better on dev ({judged})."
        return Verdict(BASE, False, sentence, rows)
    if queries < LEAST_TEST:
        few = f"{counted(queries, 'test queries')}, too few to tell (at least {LEAST_TEST})"
        sentence = f"Keep the base model: {few}. The best on dev is {chosen}."
        return Verdict(chosen, False, sentence, rows)
    reasons: list[str] = []
    for name in dict.fromkeys(one for one in (chosen, untrained) if one != BASE):
        rivals = dict.fromkeys((BASE, untrained) if name == chosen else (BASE,))
        # Both sides are negated: one call compares `name` with each rival, and corrects p for their number.
        found = differences({one: -values[one] for one in rivals if one != name}, -values[name])
        shown = "; ".join(f"over {rival} {one}" for rival, one in found.items())
        if all(one.mean > 0 and one.p < LEVEL for one in found.values()):
            sentence = f"Use {_named(name, model)}: {MEASURE} {shown} ({queries} test queries)."
            return Verdict(name, True, " ".join([sentence, *reasons]), rows)
        reasons.append(f"Not shown to be better: {_named(name, model)}, {shown}.")
    return Verdict(chosen, False, f"Keep the base model. {' '.join(reasons)}", rows)


def _named(name: str, model: Path) -> str:
    encoder = "the base model" if name == BASE_FUSED else str(model)
    alone = {ONLY_BM25: "BM25 alone", ADAPTED: encoder}
    return alone.get(name, f"{encoder} fused with BM25")


def compare(run: RunDir, split: str, to_judge: Path | None) -> Verdict:
    """Without judged queries: how much the rankings of `split` agree with the base model's.

    to_judge: a file to write for judgments of these queries, if they are real ones.
    """
    found = rankings(run, split)
    base, rows = found[BASE], []
    for name, ranking in found.items():
        shared = [of["Overlap@10"] for of in overlap(ranking, base, base, 10).values()]
        other_first = sum(first_document(ranking, one) != first_document(base, one) for one in base)
        row = {"": name, "Overlap@10 with base": float(np.mean(shared))}
        rows.append(row | {"another first document": other_first, "queries": len(base)})
    file = f"first those in {to_judge}" if to_judge else "in a CSV file with query, document and grade"
    sentence = (
        "Keep the base model: no test query is judged, so nothing here shows that another is better. "
        f"Judge {3 * LEAST_TEST // 2} queries or more, {file}, and give the same command with "
        f"--judgments {quote(str(to_judge or 'FILE'))} and another --output"
    )
    if to_judge and not to_judge.exists():  # or it may hold grades
        write_pools(to_judge, collection_of(run), split, found)
    return Verdict(BASE, False, sentence, rows)


def write_pools(path: Path, collection: Collection, split: str, found: Mapping[str, Run]) -> None:
    """Write each query's first `POOLED` documents by base, BM25 and the adapted encoder, to be graded."""
    queries, documents, rows = collection.split(split).queries, collection.documents, []
    for id, text in zip(queries.ids, queries.columns["text"], strict=True):
        firsts = (best_first(found[name].get(id, {}))[:POOLED] for name in (BASE, ONLY_BM25, ADAPTED))
        pool = sorted({one for of_row in firsts for one in of_row}, key=hash_of)  # no row comes first
        texts = documents.take(documents.rows_of(pool).tolist())
        rows += [[text, one, "", record_text(of)] for one, of in zip(pool, texts, strict=True)]
    write_whole(path, pd.DataFrame(rows, columns=["query", "document", "grade", "text"]).to_csv(index=False))


def _values(run: RunDir, split: str) -> dict[str, dict[str, np.ndarray]]:
    """By ranking and measure, the values of the judged queries of a split (Q,)."""
    qrels: Qrels = read_qrels(run.qrels(split))
    measures = parse_measures([MEASURE, RECALL])
    values: dict[str, dict[str, np.ndarray]] = {}
    for name, ranking in rankings(run, split).items():
        of_queries = per_query(qrels, ranking, measures)
        values[name] = {str(one): np.array([of_queries[id][str(one)] for id in qrels]) for one in measures}
    return values
