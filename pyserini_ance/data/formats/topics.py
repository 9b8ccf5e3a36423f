"""A corpus with topics and TREC qrels: MS MARCO's files as distributed, without headers, and those that
Pyserini encodes and searches."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import JSON, Line, extension, files_in, find_file, read_lines, shown
from pyserini_ance.data.formats.records import Entry, Record
from pyserini_ance.data.trec import trec_judgments
from pyserini_ance.recipe.components import Settings

log = logging.getLogger(__name__)
ID_KEYS = ("id", "_id", "docid")


class Topics(Settings):
    """The topics and TREC qrels of a split.

    Topics are lines `qid TAB text` (.tsv, .txt) or {"id", "title"} (.jsonl, .ndjson), where questions have
    "answers". Questions with answers need no qrels; such a split can be evaluated by the answers that
    passages contain (Success@k). For kind `pyserini_index`, both may be names that Pyserini knows.
    """

    topics: Path
    """The topics file."""
    qrels: Path | None = None
    """The TREC qrels file; null: none."""

    names_or_paths = frozenset({"topics", "qrels"})


class CorpusFormat(Format):
    """A corpus with a document in each line, and topics and qrels for each split."""

    corpus: Path
    """The file of documents; of JSONL also a folder of files."""
    splits: dict[str, Topics] = {}  # noqa: RUF012  pydantic copies defaults
    """The files of each split."""

    def document(self, line: Line) -> Entry:
        """The document of a line: in a table `id TAB text`, unless the adapter has another form."""
        return tsv_entry(line)

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


def tsv_entry(line: Line) -> Entry:
    """The entry of a line of a table without header: id and text, separated by one tab."""
    id, text = line.cells(("id", "text"))  # which may be empty is the same for all formats
    return Entry(line, id, {"text": text})


def topic_entries(file: Path, key: str) -> Iterator[Entry]:
    """The topics of a file, whose extension decides how it is read; `key` is its recipe key."""
    path = find_file(file, key)
    if extension(path) in (".tsv", ".txt"):
        return map(tsv_entry, read_lines(path))
    if extension(path) in (".jsonl", ".ndjson"):
        return (
            record.entry(record.id("id"), {"text": "title"}, ["answers", "answer"])
            for record in map(Record.of, read_lines(path))
        )
    expected = ".tsv, .txt, .jsonl or .ndjson, plain or .gz"
    raise ValueError(
        f"topics {path}: extension {extension(path)!r}; expected {expected}; set `{key}` to such a file"
    )


class MsmarcoPassage(CorpusFormat):
    """MS MARCO passages; `corpus` is collection.tsv, a table `pid TAB text`.

    Source: Bajaj et al. 2016, arXiv:1611.09268.
    """

    kind: str = "msmarco_passage"


class MsmarcoDoc(CorpusFormat):
    """MS MARCO documents; `corpus` is msmarco-docs.tsv: `docid TAB url TAB title TAB body`.

    The fields are url, title and text; the encoder's template selects among them. A document may lack its
    body or its title. Double quotes are ordinary characters, as in microsoft/ANCE.

    Source: Craswell et al. 2020, arXiv:2003.07820.
    """

    kind: str = "msmarco_doc"

    def document(self, line: Line) -> Entry:
        id, url, title, text = line.cells(("docid", "url", "title", "body"))
        return Entry(line, id, {"url": url, "title": title, "text": text})


class PyseriniJsonl(CorpusFormat):
    """A JSONL corpus: one file, or a folder whose .jsonl, .ndjson and .json files are read in order of their
    names, also those of its folders.

    Hidden files of a folder are read too, as in Anserini, but not queries.jsonl if there is a corpus.jsonl.

    A record has its id under `id`, `_id` or `docid`, and `text` with or without `title`, or `contents`. For
    other records, set `fields`, like `--fields` of `pyserini.encode`: keys of the record, or names for the
    lines of its `contents`, the last of which takes all remaining lines. MS MARCO's documents have [url,
    title, text].
    """

    kind: str = "pyserini_jsonl"
    fields: tuple[str, ...] = ()
    """Keys of a record, or names for the lines of its `contents`; empty: recognized by its keys."""

    def document(self, line: Line) -> Entry:
        record = Record.of(line)
        return Entry(record.line, record.id(*ID_KEYS), fields_of(record, self.fields))

    def corpus_files(self) -> list[Path]:
        folder = self.corpus.expanduser()
        if not folder.is_dir():
            return super().corpus_files()
        all_files = files_in(folder)
        files = [path for path in all_files if extension(path) in JSON]
        if any(path.name.startswith("corpus.jsonl") for path in files):
            files = [path for path in files if not path.name.startswith("queries.jsonl")]
        others = sorted({*all_files} - {*files})
        if not files:
            raise FileNotFoundError(
                f"no {', '.join(JSON)} file, plain or .gz, in {folder}; set `data.corpus` to another folder"
            )
        if others:
            left_out = f"{len(others)} files are left out, such as {others[0].relative_to(folder)}"
            kinds = f"files that end in {', '.join(JSON)}, plain or .gz, but BEIR's queries.jsonl"
            log.warning(f"{folder}: {left_out}; documents are in {kinds}")
        return files


def fields_of(record: Record, fields: Sequence[str]) -> dict[str, str]:
    """The fields of a record. As in Pyserini's own reader, separate keys take precedence over `contents`.

    Raises ValueError for a record whose text is under none of these keys.
    """
    absent = {*fields} - record.values.keys()
    if fields and (not absent or (absent == {"title"} != {*fields} and "contents" not in record.values)):
        return {name: record.text(name, required=name != "title") for name in fields}
    if not fields and "text" in record.values:
        return {name: record.text(name, required=name == "text") for name in ("title", "text")}
    if "contents" not in record.values:
        keys = ", ".join(f"`{name}`" for name in fields) or "`text`"
        raise record.without_text(f"{keys} or `contents`", "in a recipe, name the keys in `data.fields`")
    contents = record.text("contents")
    if not fields:
        return {"title": "", "text": contents}
    values = contents.split("\n", len(fields) - 1)  # the last field takes all remaining lines
    if len(values) < len(fields):
        problem = f"contents of {len(values)} lines: {shown(contents)}"
        expected = f"a line each for {', '.join(fields)}"
        raise record.line.error(problem, expected, "add what is missing, or correct `data.fields`")
    return dict(zip(fields, values, strict=True))
