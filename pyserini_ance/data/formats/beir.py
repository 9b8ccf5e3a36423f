"""The BEIR layout: corpus.jsonl, queries.jsonl, and a qrels table per split."""

from pathlib import Path

from pyserini_ance.data.formats.builder import judged_only
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import find_file, read_lines
from pyserini_ance.data.formats.records import TEXT, Record
from pyserini_ance.data.trec import beir_judgments


class Beir(Format):
    """A folder in BEIR's layout; `splits` maps split names to qrels files in it.

    Questions may have `answers`, a list of strings.

    Source: Thakur et al. 2021, arXiv:2104.08663.
    """

    kind: str = "beir"
    folder: Path
    """The folder with corpus.jsonl and queries.jsonl."""
    splits: dict[str, Path] = {  # noqa: RUF012  pydantic copies defaults
        name: Path(f"qrels/{name}.tsv") for name in ("train", "dev", "test")
    }
    """The qrels file of each split, relative to the folder."""
    nested_paths = frozenset({"splits"})

    def files(self) -> list[tuple[str, Path]]:
        qrels = [(f"data.splits.{name}", self.folder / path) for name, path in self.splits.items()]
        return [
            ("data.folder", self.folder / "corpus.jsonl"),
            # A folder of documents alone needs no queries: `train_queries` makes some.
            *([("data.folder", self.folder / "queries.jsonl")] if qrels else []),
            *qrels,
        ]

    def raw_data(self) -> RawData:
        corpus, *files = (find_file(path, key) for key, path in self.files())
        queries, qrels = files[:1], files[1:]
        entries = [
            record.entry(record.id("_id"), TEXT, ["answers"])
            for path in queries
            for record in map(Record.of, read_lines(path))
        ]
        splits = {
            name: judged_only(entries, list(beir_judgments(path)))
            for name, path in zip(self.splits, qrels, strict=True)
        }
        records = map(Record.of, read_lines(corpus))
        return RawData((record.entry(record.id("_id")) for record in records), splits)
