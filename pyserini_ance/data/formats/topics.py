"""A corpus with topics and TREC qrels: what MS MARCO's files and Pyserini's have in common."""

from collections.abc import Iterator
from pathlib import Path

from pyserini_ance.data.formats.builder import Entry, json_entry, tsv_entries
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line, extension, find_file, read_lines
from pyserini_ance.data.trec import trec_judgments
from pyserini_ance.recipe.components import Settings


class Topics(Settings):
    """The topics and TREC qrels of a split.

    Topics are lines `qid TAB text` (.tsv, .txt) or {"id", "title"} (.jsonl, .ndjson), where questions have
    "answers". Questions with answers need no qrels; such a split can be evaluated by the answers that
    passages contain (Success@k). For kind `pyserini_index`, both may be names that Pyserini knows
    (msmarco-passage-dev-subset, dl19-passage, dpr-nq-test).
    """

    topics: Path
    """The topics file."""
    qrels: Path | None = None
    """The TREC qrels file; null: none."""


class CorpusFormat(Format):
    """A corpus with a document in each line, and topics and qrels for each split."""

    corpus: Path
    """The file of documents; of JSONL also a folder of files."""
    splits: dict[str, Topics] = {}  # noqa: RUF012  pydantic copies defaults
    """The files of each split."""

    def document(self, line: Line) -> Entry:
        """The document of a line. Every adapter implements this."""
        raise NotImplementedError(f"{type(self).__name__}.document")

    def corpus_files(self) -> list[Path]:
        return [find_file(self.corpus, "data.corpus")]

    def raw_data(self) -> RawData:
        corpus = self.corpus_files()
        splits = {}
        for name, files in self.splits.items():
            topics = topic_entries(files.topics, f"data.splits.{name}.topics")
            qrels = find_file(files.qrels, f"data.splits.{name}.qrels") if files.qrels else None
            splits[name] = topics, trec_judgments(qrels) if qrels else None
        return RawData((self.document(line) for path in corpus for line in read_lines(path)), splits)


def topic_entries(file: Path, key: str) -> Iterator[Entry]:
    """The topics of a file, whose extension decides how it is read; `key` is its recipe key."""
    path = find_file(file, key)
    if extension(path) in (".tsv", ".txt"):
        return tsv_entries(path)
    if extension(path) in (".jsonl", ".ndjson"):
        return (
            json_entry(line, line.json(), ["id"], {"text": "title"}, ["answers", "answer"])
            for line in read_lines(path)
        )
    expected = ".tsv, .txt, .jsonl or .ndjson, plain or .gz"
    raise ValueError(
        f"topics {path}: extension {extension(path)!r}; expected {expected}; set `{key}` to such a file"
    )
