"""BM25 by Anserini's own commands, in processes of Java: no Java runs in a training process."""

import json
import logging
import re
import shutil
import subprocess
import tempfile
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyserini_ance.data.formats.lines import shown
from pyserini_ance.encoders.hardware import usable_cores
from pyserini_ance.pyserini_bridge.java import java_command
from pyserini_ance.recipe.models import Bm25
from pyserini_ance.storage.files import whole_file
from pyserini_ance.storage.progress import progress_bar
from pyserini_ance.storage.publish import whole_folder

log = logging.getLogger(__name__)
INDEX, SEARCH = "io.anserini.index.IndexCollection", "io.anserini.search.SearchCollection"
TAG = "bm25"
DIGITS = 10  # of a topic's number; as many for all, so that topics keep their order
TAIL_LINES = 20
PROGRESS = re.compile(r" - .*?([\d,]+ (?:documents indexed|queries processed).*)")
COUNTER = re.compile(r" - (indexed|empty): +([\d,]+)$")
MAX_TERMS = 1024  # of a query of Lucene; Anserini leaves out longer ones without a word
CJK = r"\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # a term each
WORD, PIECE = re.compile(rf"[{CJK}]|[^\s{CJK}]+"), re.compile(r"\w+")


class Bm25Job(NamedTuple):
    """A TREC run to write: the best `hits` documents of each query (id, text), by BM25 or by BM25 and RM3.

    With `ignore_identical_ids`, without the document that has the query's id.
    """

    queries: list[tuple[str, str]]
    hits: int
    output: Path
    rm3: bool = False
    ignore_identical_ids: bool = False


def retrieve(
    documents: Iterable[tuple[str, str]],
    rankings: Sequence[Bm25Job],
    settings: Bm25,
    index: Path,
    total: int | None = None,
) -> None:
    """Write the runs, each atomically; a query without hits has no lines.

    documents: (id, contents), read only if `settings.index` is `build` and `index` does not exist.
    index: the index that the settings name, or the folder of the one that is built. It appears when it is
        complete; for RM3 it has document vectors.
    total: the number of documents, for the progress bar.
    Raises RuntimeError with the end of the output if Java or Anserini fails, ValueError for a ranking without
    any hit.
    """
    if settings.index == "build" and not index.exists():
        # Another process may have made the same index in the meantime.
        with suppress(FileExistsError), whole_folder(index) as temporary:
            # RM3 takes terms from document vectors, which BM25 does not need.
            more = ["-storeDocvectors"] if any(ranking.rm3 for ranking in rankings) else []
            index_documents(documents, temporary, more, total)
    _search(index, rankings, settings)


def index_documents(
    documents: Iterable[tuple[str, str]], folder: Path, more: Sequence[str], total: int | None = None
) -> None:
    """Index documents (id, contents) into `folder`, which is empty, with `more` flags of Anserini's.

    Raises RuntimeError if Lucene lost some of them.
    """
    received = 0
    texts = folder / "documents"
    texts.mkdir()
    progress = progress_bar(iterable=documents, total=total, desc="BM25 documents", unit=" documents")
    with ExitStack() as stack:
        # A thread of Anserini reads a file. ASCII, so that no text depends on Java's encoding.
        paths = [texts / f"{number}.jsonl" for number in range(usable_cores())]
        files = [stack.enter_context(open(path, "w", encoding="ascii")) for path in paths]
        for id, contents in progress:
            files[received % len(files)].write(json.dumps({"id": id, "contents": contents}) + "\n")
            received += 1
    kinds = ["-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator"]
    places = ["-input", texts, "-index", folder, "-threads", usable_cores()]
    output = _run(INDEX, *kinds, *places, *more)
    shutil.rmtree(texts)
    counts = {found[1]: int(found[2].replace(",", "")) for found in map(COUNTER.search, output) if found}
    if sum(counts.values()) < received:  # Anserini skips blank documents, and does not report errors
        indexed, given = counts.get("indexed", 0), received - counts.get("empty", 0)
        raise RuntimeError(
            f"Lucene indexed {indexed:,} of {given:,} documents that are not blank; is the disk full?"
        )


def _search(index: Path, rankings: Sequence[Bm25Job], settings: Bm25) -> None:
    """Write the rankings. Topics go by their numbers, so that ids never pass through Java."""
    shared = ["-index", index, "-topicReader", "TsvString", "-threads", usable_cores()]
    shared += ["-bm25", "-bm25.k1", settings.k1, "-bm25.b", settings.b]
    with tempfile.TemporaryDirectory(prefix="pyserini_ance.") as name:
        topics, run = Path(name) / "topics.tsv", Path(name) / "run"
        for ranking in rankings:
            cut = 0
            with open(topics, "w", encoding="utf-8", errors="replace") as file:
                for number, (_, text) in enumerate(ranking.queries):
                    read = _readable(text)
                    cut += len(read) < len(text)
                    if line := " ".join(read.split()):
                        file.write(f"{number:0{DIGITS}d}\t{line}\n")
            if cut:
                log.warning(f"BM25 reads only the first {MAX_TERMS:,} different words of {cut:,} queries")
            more: list[Any] = ["-runtag", f"{TAG}+rm3" if ranking.rm3 else TAG]
            if ranking.rm3:
                more.append("-rm3")
            run.unlink(missing_ok=True)
            hits = ranking.hits + ranking.ignore_identical_ids
            output = _run(SEARCH, *shared, "-topics", topics, "-output", run, "-hits", hits, *more)
            # Anserini reports a wrong index and returns. RM3 without document vectors finds nothing.
            is_empty = not run.exists() or (ranking.rm3 and not run.stat().st_size)
            if is_empty and settings.index != "build":
                raise RuntimeError(
                    f"Anserini wrote no ranking with bm25.index {settings.index!r}; expected `build`, the "
                    "folder of a Lucene index (for RM3 one with -storeDocvectors), or a name like "
                    f"`msmarco-v1-passage`:\n{''.join(list(output)[-TAIL_LINES:])}"
                )
            ranking.output.parent.mkdir(parents=True, exist_ok=True)
            with open(run, encoding="utf-8") as lines, whole_file(ranking.output) as whole:
                ranks: Counter[str] = Counter()
                for line in lines:
                    if not line.endswith("\n"):  # Java says nothing of it
                        raise OSError(f"BM25's ranking in {name} is cut short; is the disk full?")
                    key, rest = line.split(" ", 1)
                    query = ranking.queries[int(key)][0]
                    if ranking.ignore_identical_ids:
                        q0, document, _, scored = rest.split(" ", 3)
                        if document == query or ranks[key] == ranking.hits:
                            continue
                        ranks[key] += 1
                        rest = f"{q0} {document} {ranks[key]} {scored}"
                    whole.write(f"{query} {rest}".encode())
                if not whole.tell():
                    raise ValueError(
                        f"BM25 finds no document for any of the {len(ranking.queries):,} queries, such as "
                        f"{shown(ranking.queries[0][1])}: the documents have none of their words. If these "
                        "are in another language, translate them, or train a recipe with `bm25: null`"
                    )


def _readable(text: str) -> str:
    """The beginning of a query's text that surely has no more different terms than Lucene takes.

    Lucene keeps some words with a mark within whole, such as 3.14, and splits others.
    """
    seen, terms = set[tuple[str, ...]](), 0
    for word in WORD.finditer(text) if len(text) > MAX_TERMS else ():
        pieces = tuple(PIECE.findall(word[0].lower()))
        terms += len(pieces) * (pieces not in seen)
        if terms > MAX_TERMS:
            return text[: word.start()]
        seen.add(pieces)
    return text


def _run(program: str, *flags: object) -> Sequence[str]:
    """Run a command of Anserini, log its progress, and return the end of its output."""
    tail: deque[str] = deque(maxlen=10 * TAIL_LINES)
    with subprocess.Popen(
        [*java_command(), program, *map(str, flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                tail.append(line)
                if progress := PROGRESS.search(line):
                    log.info("BM25: %s", progress[1])
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        shown = "".join(list(tail)[-TAIL_LINES:])
        raise RuntimeError(f"{program} failed (exit status {process.returncode}):\n{shown}")
    return tail
