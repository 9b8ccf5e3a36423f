"""`report.html` of an adaptation: the verdict, and a search box over what the held-out queries find."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pyserini_ance.adapt.verdict import ADAPTED, BASE, Verdict, rankings
from pyserini_ance.data.collection import Collection
from pyserini_ance.data.trec import best_first
from pyserini_ance.evaluation.tables import cell_text
from pyserini_ance.reports.report import render
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_whole

MOST_QUERIES, HITS, PAIRS = 500, 5, 20
SHOWN_CHARACTERS = 240


def write_page(
    path: Path,
    found: Verdict,
    said: str,
    commands: Sequence[str],
    run: RunDir,
    collection: Collection,
    split: str,
) -> None:
    """Write the page; `said` is what was read, `split` the one that the verdict is about."""
    of_split, judged = collection.split(split), collection.judgments(split)
    by_name = rankings(run, split)
    other = found.chosen if found.chosen != BASE else ADAPTED
    texts = dict(zip(of_split.queries.ids, of_split.queries.columns["text"], strict=True))
    shown: list[dict[str, Any]] = [
        {
            "query": text,
            "lists": {name: best_first(by_name[name].get(id, {}))[:HITS] for name in (BASE, other)},
            "relevant": [d for d, grade in judged.get(id, {}).items() if grade > 0],
        }
        for id, text in islice(texts.items(), MOST_QUERIES)
    ]
    # Queries whose first document differs: what a person who compares both would look at first.
    shown.sort(key=lambda one: len({str(hits[:1]) for hits in one["lists"].values()}) == 1)
    found_ids = sorted({id for one in shown for hits in one["lists"].values() for id in hits})
    found_texts = collection.documents.take(collection.documents.rows_of(found_ids).tolist())
    documents = {
        id: " ".join(filter(None, one.values()))[:SHOWN_CHARACTERS]
        for id, one in zip(found_ids, found_texts, strict=True)
    }
    cells = [[cell_text(value, name) for name, value in row.items()] for row in found.rows]
    write_whole(
        path,
        render(
            "adapt.html.j2",
            sentence=found.sentence,
            columns=list(found.rows[0]),
            rows=cells,
            said=said.splitlines(),
            commands=commands,
            names=[BASE, other],
            queries=shown,
            documents=documents,
            first=PAIRS,
        ),
    )
