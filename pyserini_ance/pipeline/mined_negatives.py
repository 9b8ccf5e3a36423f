"""Mined negatives, and how they leave: as texts, a dataset, or the files of other trainers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.collection_files import tevatron_records, write_lines
from pyserini_ance.encoders.cross_encoder_model import record_text
from pyserini_ance.evaluation.tables import table_with_legend
from pyserini_ance.negatives.filters.base import PROMOTED
from pyserini_ance.negatives.table import PADDING, NegativeTable

if TYPE_CHECKING:
    from datasets import Dataset

JsonlFormat = Literal["sentence-transformers", "tevatron"]
JSONL_FORMATS: tuple[JsonlFormat, ...] = ("sentence-transformers", "tevatron")


@dataclass(frozen=True, eq=False)
class MinedNegatives:
    """The negatives of all queries of a split.

    split: the split that was mined for. What a filter promoted is relevant in it.
    table: all candidates that the source found and the filters kept, for each query in rank order. rows: (A,
    n) int32 document rows, the negatives chosen for each of `table.anchors`; PADDING (-1) at the end of a
    query with fewer. num_short: queries with fewer candidates than negatives were asked for. seconds: time by
    part (encode_documents, encode_queries, build, search); empty if nothing was encoded.
    """

    collection: Collection
    split: Split
    table: NegativeTable
    rows: np.ndarray
    num_short: int
    seconds: Mapping[str, float]

    def __repr__(self) -> str:
        chosen = int((self.rows != PADDING).sum())
        of = f"{self.split.name!r} from {self.table.source!r}"
        return f"MinedNegatives({of}: {len(self):,} queries, {chosen:,} negatives)"

    @property
    def dropped(self) -> dict[str, int]:
        """Candidates that each filter removed, known positives included."""
        return self.table.dropped

    def __len__(self) -> int:
        return len(self.table.anchors)

    def describe(self) -> str:
        """Counts as a Markdown table, what each filter removed, and the seconds."""
        counts, chosen = self.table.counts, (self.rows != PADDING).sum(1)
        row = {
            "source": self.table.source,
            "queries": len(self),
            "candidates per query": f"{counts.mean():.1f} ({counts.min()}-{counts.max()})",
            "negatives per query": f"{chosen.mean():.1f} ({chosen.min()}-{chosen.max()})",
            "filled at random": self.num_short,
        }
        filters = [{"filter": name, "candidates removed": count} for name, count in self.dropped.items()]
        if self.table.promoted is not None:
            filters.append({"filter": PROMOTED, "candidates removed": len(self.table.promoted)})
        seconds = ", ".join(f"{part} {value:.1f}" for part, value in self.seconds.items())
        parts = [table_with_legend([row], list(row))]
        parts += [table_with_legend(filters, list(filters[0]))] if filters else []
        return "\n\n".join([*parts, f"seconds: {seconds}"] if seconds else parts)

    def to_texts(self) -> list[dict[str, Any]]:
        """One dict per query and positive: `query` and `positive` are texts, `negatives` is a list of texts.

        The text of a document is all its fields, joined by blanks.
        """
        return list(self._texts())

    def to_dataset(self) -> "Dataset":
        """A `datasets.Dataset` for sentence-transformers: columns anchor, positive, negative_1, ...,
        negative_n.

        Raises ValueError if queries have different numbers of negatives.
        """
        from datasets import Dataset

        return Dataset.from_list(list(self._tuples()))

    def to_jsonl(self, path: str | Path, format: JsonlFormat = "sentence-transformers") -> None:
        """Write a JSONL file, compressed if it is named .gz, which appears when it is complete.

        `sentence-transformers`: the columns of `to_dataset`, one line per query and positive. `tevatron`: one
        line per query with `positive_passages` and `negative_passages`. Raises ValueError for another format,
        and as `to_dataset` does.
        """
        if format not in JSONL_FORMATS:
            raise ValueError(f"unknown format {format!r}; formats: {', '.join(JSONL_FORMATS)}")
        write_lines(Path(path), self._tuples() if format == "sentence-transformers" else self._tevatron())

    def _texts(self) -> Iterator[dict[str, Any]]:
        """Texts for every relevant pair of a query and a document."""
        queries, documents = self.split.queries, self.collection.documents
        for query, rows in zip(self.table.anchors.tolist(), self.rows, strict=True):
            for positive in self.split.qrels.relevant(query).tolist():
                yield {
                    "query": queries.columns["text"][query],
                    "positive": record_text(documents[positive]),
                    "negatives": [record_text(documents[row]) for row in rows[rows != PADDING].tolist()],
                }

    def _tuples(self) -> Iterator[dict[str, str]]:
        counts = (self.rows != PADDING).sum(1)
        if len(set(counts.tolist())) > 1:
            number = counts.min() or max(1, int(np.median(counts)))
            raise ValueError(
                f"queries have {counts.min()} to {counts.max()} negatives, but sentence-transformers needs "
                f"equally many. Mine again with a number, such as num_negatives={number}; random "
                f"documents fill up fewer candidates, or min_candidates: {number} in the source leaves such "
                "queries out. The format tevatron needs no equal numbers."
            )
        for record in self._texts():
            negatives = {f"negative_{n}": text for n, text in enumerate(record["negatives"], start=1)}
            yield {"anchor": record["query"], "positive": record["positive"], **negatives}

    def _tevatron(self) -> Iterator[dict[str, Any]]:
        rows = zip(self.table.anchors.tolist(), self.rows, strict=True)
        chosen = {query: negatives[negatives != PADDING].tolist() for query, negatives in rows}
        records = tevatron_records(self.split, self.collection.documents, lambda query: chosen.get(query, []))
        return (record for query, record in enumerate(records) if query in chosen)
