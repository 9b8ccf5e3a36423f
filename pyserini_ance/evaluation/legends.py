"""Legends: a line below a printed table for each column whose name does not explain itself.

Measures have the names of ir-measures and no line, unless they are our own.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyserini_ance.evaluation.tables import table

# By the columns' pattern. A pattern has one meaning in all tables.
LEGENDS = {
    "bytes a document": "bytes a document: of its vectors, as the index of the row stores them",
    "train seconds": "train seconds: optimizer steps",
    "refresh seconds": "refresh seconds: checkpoints, encoding, mining, dev evaluation",
    "test seconds": "test seconds: encoding and ranking for the final evaluation",
    "seconds": "seconds: steps, refreshes, dev and final evaluation of all stages",
    "runs": "runs: more than one are the seeds of a row, as mean (lowest-highest)",
    "dev best": "dev best: the best dev measure during training",
    r".* gain": "gain: of the mean over the baseline's mean, in percent",
    "forgotten": "forgotten, learnt: shares of the training queries whose RR@100 is lower, higher at `until` "
    "than at `since`",
    r"train RR@\d+": "train RR@100: mean over the training queries at `until`",
    r"(.* )?Hole@\d+": "Hole@k: share of the first k documents that are not judged",
    r"(.* )?Overlap@\d+": "Overlap@k: share of the first k documents that the other run has in its first k",
    r"(.* )?queries .*": "queries ...: each relevant document searches the queries (query retrieval)",
    r"(.*)-rerank .*": "SPLIT-rerank: a given ranking of the split, in the order of the model's scores",
    r"(.* )?mean ms": "ms: milliseconds per query, mean and percentiles",
    "candidates per query": "candidates per query: found and not filtered out, mean (lowest-highest)",
    "negatives per query": "negatives per query: drawn from the candidates, mean (lowest-highest)",
    "filled at random": "filled at random: queries with fewer candidates than negatives",
    "candidates removed": "candidates removed: counted for the first filter that removes them; promoted ones "
    "become positives",
    "median tokens": "tokens: of all texts together, and the median of a text, before cutting",
    "drawn queries": "drawn queries: in all steps; repeats in a row (`repeats_per_query`) count once",
    "dev evaluations": "refreshes, dev evaluations: how many; a refresh encodes and mines",
    "documents to encode": "documents to encode: their passages, for all refreshes and dev evaluations",
    r"(.* )?EM": "EM, F1: answers that match a gold answer exactly; overlap of their words with it",
}


def legend(columns: Iterable[str], *more: str) -> str:
    """The lines of the columns and `more`; "" if there are none."""
    columns = list(columns)
    lines = [
        text for pattern, text in LEGENDS.items() if any(re.fullmatch(pattern, column) for column in columns)
    ]
    return "\n".join(f"- {line}" for line in [*lines, *more])


def table_with_legend(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *more: str) -> str:
    """A Markdown table and, below it, the legend of its columns and the lines `more`."""
    shown = [
        column
        for column in columns
        if any(row.get(column) not in ((None, 1) if column == "runs" else (None,)) for row in rows)
    ]
    return "\n\n".join(filter(None, [table(rows, columns), legend(shown, *more)]))
