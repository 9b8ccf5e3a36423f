"""Documents as people have them, a folder of files or one file of records, as passages with a title.

Markdown is the form between: markitdown makes it of HTML, PDF and office files, and headings and blank lines
say where a long document may be cut.
"""

import os
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from itertools import batched, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pyserini_ance.data.formats.lines import extension, names_of_file, open_bytes
from pyserini_ance.data.formats.records import EXTENSIONS, read_table
from pyserini_ance.data.made_splits import SENTENCE_END, split_words
from pyserini_ance.data.texts import text_key
from pyserini_ance.encoders.hub import is_local
from pyserini_ance.pipeline.mining import read_data
from pyserini_ance.recipe.yaml_text import read_yaml

MARKDOWN = (".md", ".markdown")
PLAIN = (".txt", ".text", ".rst", *MARKDOWN)
CONVERTED = {  # by markitdown
    ".html": "HtmlConverter",
    ".htm": "HtmlConverter",
    ".pdf": "PdfConverter",
    ".docx": "DocxConverter",
    ".epub": "EpubConverter",
}
LARGEST_BYTES = 32 << 20  # of a plain or converted file; a larger one is a log or a dump, not a document
WORDS, TOKENS = 200, 256  # of a passage: so many words are about so many tokens
LEAST_WORDS = 40  # a section with fewer shares its passage with the next
ALONE = 0.8  # of the bytes beyond ASCII: in Western Europe's languages they seldom follow each other
NEAR = 0.9  # Jaccard similarity of the five-word sequences of near duplicates
SHINGLE = 5
COLUMNS = {
    "id": "id docid docno documentid corpusid pid passageid uid url path",
    "title": "title heading headline name subject question",
    "text": "text contents content body passage document abstract description answer",
}
ABOUT = "adapt.json"  # in `data` of an adaptation
HUB_TABLES = {"documents": "corpus", "queries": "queries"}  # as BEIR's
_COPY = re.compile(r"\bcopy\b|\(\d+\)", re.IGNORECASE)  # in the name of a copy: "copy of x", "x (1)"
_FRONT = re.compile(r"(---|\+\+\+)[ \t\r]*\n(.*?\n)\1[ \t\r]*(?:\n|$)", re.DOTALL)  # of Markdown
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class Passage(NamedTuple):
    """A document, or a part of one."""

    id: str
    title: str
    text: str


@dataclass
class Reading:
    """What was read, and what was set aside and why; `skipped` has a reason for each file, `repeats` for each
    passage. `titles` are those of what was read, by id, and `words` how many each has; `unread`: columns."""

    titles: dict[str, str] = field(default_factory=dict)
    words: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, str] = field(default_factory=dict)
    repeats: dict[str, str] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)

    def as_text(self) -> str:
        """One line of counts, and one for each of the first skipped files and repeats."""
        lines = [", ".join(counted(count, what) for what, count in self.counts.items() if count)]
        for reasons, most in ((self.skipped, 10), (self.repeats, 3)):
            lines += [f"  {name}: {reason}" for name, reason in islice(reasons.items(), most)]
            lines += [f"  ... and {len(reasons) - most:,} more"] if len(reasons) > most else []
        return "\n".join(lines)


def counted(number: int, what: str) -> str:
    """`1 query of them`, `2,000 queries of them`, for the phrase `queries of them`."""
    singular = re.sub(r"(ie)?s\b", lambda end: "y" if end[1] else "", what, count=1)
    return f"{number:,} {singular if number == 1 else what}"


def read_passages(
    source: str, reading: Reading, cuts: bool, skipped: Collection[Path] = ()
) -> Iterator[Passage]:
    """The passages of `source`, without empty ones and repeats, which are counted in `reading`.

    source: a folder of files, a folder in BEIR's layout, of JSONL or with a Lucene index, a file of records,
    a YAML file with the `data:` section of a recipe, or the name of a data set on the hub. cuts: whether
    documents of more than WORDS words are cut and repeats are left out: not if judgments may name them.
    skipped: resolved files and folders that are none of the documents, although they may be among them.

    Raises FileNotFoundError if there is no such source, ValueError for records without a text, and for two
    with one id.
    """
    repeats = Repeats()
    for document in _documents(source, reading, skipped):
        reading.counts["documents"] += 1
        document = Passage(without_blanks(document.id), *(text.replace("\0", " ") for text in document[1:]))
        for passage in (cut(document) if cuts else []) or [document]:
            if not f"{passage.title}{passage.text}".strip():
                reading.counts["empty"] += 1
            elif passage.id in reading.titles:
                titles = f"{reading.titles[passage.id]!r} and {passage.title!r}"
                raise ValueError(f"two documents, {titles}, have the id {passage.id!r}; rename one")
            elif cuts and (found := repeats.find(passage)):
                reading.counts[f"{found[0]} passages left out"] += 1
                reading.repeats[passage.id] = ", as in ".join(found)
            else:
                reading.counts["passages" if cuts else "kept whole"] += 1
                reading.titles[passage.id] = passage.title
                reading.words.append(len(split_words(passage.text)))
                yield passage
    if reading.unread:
        reading.counts[f"columns not read ({', '.join(sorted(reading.unread))})"] = len(reading.unread)


def without_blanks(id: str) -> str:
    """An id that files of rankings can hold: their columns are separated by blanks."""
    return re.sub(r"\s", "_", id.strip())


def _documents(source: str, reading: Reading, skipped: Collection[Path]) -> Iterator[Passage]:
    path = Path(source).expanduser()
    if not path.exists():
        problem = f"no file or folder {source} (from {Path.cwd()})"
        if _HUB_NAME.fullmatch(source) and not is_local(source):
            tables = {name: {"path": source, "name": part} for name, part in HUB_TABLES.items()}
            splits = {"test": {"path": f"{source}-qrels"}}  # which is not read
            try:
                return _of_format({"kind": "datasets", **tables, "splits": splits})
            except ValueError as error:
                raise ValueError(f"{problem}, nor such a data set of the hub: {error}") from error
        kinds = f"a folder of documents, a file of records ({', '.join(EXTENSIONS)})"
        hub = "the name of a data set on the hub, `owner/name`"
        raise FileNotFoundError(f"{problem}; expected {kinds}, or {hub}")
    if path.suffix in (".yaml", ".yml"):
        return _of_format(path)
    if path.is_file():
        return _records(path, reading) if extension(path) in EXTENSIONS else _file(path, path.name, reading)
    if corpus := beir_file(path, "corpus.jsonl"):
        return _records(corpus, reading)
    if next(path.glob("segments_*"), None):
        return _of_format({"kind": "pyserini_index", "index": str(path.resolve())})
    # Copies come last: of repeats, the first is kept.
    files = sorted(files_of(path, skipped), key=lambda file: bool(_COPY.search(file.stem)))
    names = (os.fsencode(file.relative_to(path)).decode(errors="backslashreplace") for file in files)
    return (one for file, name in zip(files, names, strict=True) for one in _file(file, name, reading))


def beir_file(folder: Path, name: str) -> Path | None:
    """A file of a folder in BEIR's layout, plain or .gz; None if it is missing."""
    return next((path for path in names_of_file(folder / name) if path.is_file()), None)


def _of_format(settings: dict[str, Any] | Path) -> Iterator[Passage]:
    entries = read_data(settings).of_splits([]).raw_data().documents
    records = ((entry.id, dict(entry.fields)) for entry in entries)
    return (Passage(id, own.pop("title", ""), "\n".join(filter(None, own.values()))) for id, own in records)


def files_of(folder: Path, skipped: Collection[Path] = ()) -> Iterator[Path]:
    """All files in the order of their names, but hidden ones, those of an adaptation, and those that are, or
    are in, one of `skipped`. Links to folders, which are not followed, and closed folders are among them."""
    closed: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=lambda error: closed.append(Path(error.filename))):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if Path(parent).resolve() in skipped or Path(parent, "data", ABOUT).is_file():
            folders.clear()
            continue
        links = (name for name in folders if Path(parent, name).is_symlink())
        paths = (Path(parent, name) for name in sorted([*names, *links]) if not name.startswith("."))
        yield from (path for path in paths if Path(os.path.realpath(path)) not in skipped)
    yield from closed


def _file(path: Path, name: str, reading: Reading) -> Iterator[Passage]:
    """The documents of a file of a folder; one that cannot be read is skipped with its reason."""
    kind = extension(path)
    try:
        if path.is_dir():
            raise ValueError("a link to a folder, or one that cannot be read; put the folder itself there")
        if kind in EXTENSIONS:
            found = list(_records(path, reading, f"{name}:"))
        elif path.suffix.lower() not in (*PLAIN, *CONVERTED):
            raise ValueError(f"no document: {path.suffix or 'no extension'}")
        elif (size := path.stat().st_size) > LARGEST_BYTES:
            raise ValueError(f"{size >> 20} MiB; split it, or write its records as .jsonl")
        else:
            with open_bytes(path) as file:
                title, text = (_plain if kind in PLAIN else _converted)(kind, file.read())
            stem = path.stem.replace("_", " ") * bool(text.strip())
            found = [Passage(name, title or stem, text)]
    except Exception as error:  # whatever a broken file does to its reader
        reading.skipped[name] = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        reading.counts["files skipped"] += 1
        return
    yield from found


def _plain(kind: str, raw: bytes) -> tuple[str, str]:
    """Title and text; the title of Markdown is that of its front matter, which is no text, or else the first
    heading of level 1 in its first 100 lines."""
    if b"\0" in raw[: 1 << 16]:
        raise ValueError("binary")
    text = _decoded(raw)
    if kind in MARKDOWN and (front := _FRONT.match(text)):
        with suppress(ValueError):
            found = tomllib.loads(front[2]) if front[1] == "+++" else read_yaml(front[2], "front matter")
            if isinstance(found, dict):
                text = text[front.end() :]
                if isinstance(title := found.get("title"), str) and title.strip():
                    return " ".join(title.split()), text
    blocks = _blocks("\n".join(text.split("\n")[:100])) if kind in MARKDOWN else ()
    return next((heading for level, heading, *_ in blocks if level == 1), ""), text


def _decoded(raw: bytes) -> str:
    """UTF-8, or what the bytes look like. Raises ValueError for bytes in no known encoding."""
    from charset_normalizer import from_bytes

    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        runs = re.findall(rb"[\x80-\xff]+", raw)
    # Of 26 English texts with umlauts the library takes 6 for Chinese or Japanese, and French for Polish.
    if sum(len(run) == 1 for run in runs) > ALONE * sum(map(len, runs)):
        return raw.decode("cp1252", errors="replace")
    if best := from_bytes(raw).best():
        return str(best)
    raise ValueError("in no known encoding")


def _converted(kind: str, raw: bytes) -> tuple[str, str]:
    """Title and Markdown. Not by `MarkItDown` itself, which reads what it cannot convert as plain text."""
    from bs4.dammit import EncodingDetector
    from markitdown import StreamInfo, converters

    if CONVERTED[kind] == "HtmlConverter" and not EncodingDetector.find_declared_encoding(raw, is_html=True):
        raw = _decoded(raw).encode()
    result = getattr(converters, CONVERTED[kind])().convert(BytesIO(raw), StreamInfo(extension=kind))
    return " ".join((result.title or "").split()), result.markdown


def _records(path: Path, reading: Reading, prefix: str = "") -> Iterator[Passage]:
    """The records of a file; one without an id has its number, after `prefix`."""
    records = read_table(path, COLUMNS, ["text"], "DOCUMENTS", reading.unread)
    for number, (_, record) in enumerate(records, start=1):
        yield Passage(record.get("id") or f"{prefix}{number}", record.get("title", ""), record["text"])


def cut(document: Passage) -> list[Passage]:
    """The document as passages of at most WORDS words, and the headings in them; none of an empty one.

    It is cut before headings, between paragraphs, and in a longer paragraph between sentences. Passages keep
    the document's title, with the heading of the section that they begin in; other headings stay in the text.
    """
    passages: list[tuple[str, list[str]]] = []
    heading, size = "", 0
    for found, part in _parts(document.text):
        words = len(split_words(part))
        is_new_section = found != heading and size >= LEAST_WORDS
        if not passages or is_new_section or size + words > WORDS:
            passages.append((found, []))
            size = 0
        elif found not in (heading, part):
            passages[-1][1].append(found)
        heading, size = found, size + words
        passages[-1][1].append(part)
    whole = len(passages) < 2
    return [
        Passage(
            document.id if whole else f"{document.id}#{number}",
            ": ".join(dict.fromkeys(filter(None, (document.title, heading)))),
            "\n\n".join(parts),
        )
        for number, (heading, parts) in enumerate(passages, start=1)
    ]


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """The blocks of Markdown, at most WORDS words at a time, each with the heading above it; one without a
    block is a block itself."""
    lines = re.sub("\r\n?", "\n", text).split("\n")
    heading, is_used = "", True
    # What follows a block and is none, such as the address of a link, stays with it.
    blocks = [*_blocks(text), (0, "", len(lines), 0)]
    for (level, named, start, end), (_, _, following, _) in pairwise(blocks):
        if level:
            if not is_used:
                yield heading, heading
            heading, is_used, start = named, not named, end
        if block := "\n".join(lines[start:following]).strip():
            is_used = True
            yield from ((heading, piece) for piece in _pieces(block))
    if not is_used:
        yield heading, heading


def _blocks(text: str) -> Iterator[tuple[int, str, int, int]]:
    """The blocks of Markdown: a heading's level and text, 0 and "" of others, and the lines from and to."""
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").disable("inline").parse(text)
    for one, following in pairwise([*tokens, *tokens[:1]]):
        if one.level == 0 and one.map:
            level = int(one.tag[1]) if one.type == "heading_open" else 0
            yield level, " ".join(following.content.split()) if level else "", one.map[0], one.map[1]


def _pieces(paragraph: str) -> Iterator[str]:
    """The paragraph, or, if it has too many words, its sentences put together as far as they fit."""
    if len(split_words(paragraph)) <= WORDS:
        yield paragraph
        return
    ends = [match.end() for match in SENTENCE_END.finditer(paragraph)]
    piece: list[str] = []
    for start, end in pairwise([0, *ends]):
        for words in batched(split_words(paragraph[start:end]), WORDS):  # of a sentence, or of a part of it
            if len(piece) + len(words) > WORDS:
                yield "".join(piece).strip()
                piece = []
            piece += words
    yield "".join(piece).strip()


class Repeats:
    """Passages that were seen before, but for case and blanks, or for a few words."""

    def __init__(self) -> None:
        from datasketch import MinHashLSH

        self._seen: dict[str, str] = {}  # ids by texts
        self._near = MinHashLSH(threshold=NEAR, num_perm=64)

    def find(self, passage: Passage) -> tuple[str, str] | None:
        """`repeated` or `nearly repeated`, and the id of the first passage; None for a new one."""
        from datasketch import MinHash

        key = text_key(f"{passage.title} {passage.text}")
        if (first := self._seen.setdefault(key, passage.id)) != passage.id:
            return "repeated", first
        words = key.split()
        if len(words) < 4 * SHINGLE:
            return None
        hashed = MinHash(num_perm=64)
        shingles = zip(*(words[start:] for start in range(SHINGLE)), strict=False)
        hashed.update_batch(" ".join(one).encode(errors="replace") for one in shingles)
        if firsts := self._near.query(hashed):
            return "nearly repeated", min(firsts)
        self._near.insert(passage.id, hashed)
        return None
