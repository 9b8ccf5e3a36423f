"""A reference implementation of reading a run file: sorted lines, without code of the package."""

import gzip
from itertools import groupby
from pathlib import Path


def ranking_of(path: Path) -> dict[str, list[str]]:
    """The documents of each query by score, ties by descending id as in trec_eval.

    RepLLaMA's scores have three decimals and many ties.
    """
    lines = sorted(
        (line.split() for line in gzip.open(path, "rt")),
        key=lambda fields: (fields[0], float(fields[4]), fields[2]),
        reverse=True,
    )
    return {
        query: [fields[2] for fields in group]
        for query, group in groupby(lines, key=lambda fields: fields[0])
    }
