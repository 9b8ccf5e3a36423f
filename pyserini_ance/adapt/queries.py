"""What supervises: queries with judgments, cut into splits by text before anything else, and queries without.

A query is judged once it has a relevant document. Queries of one text stay together, whatever their ids.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyserini_ance.adapt.documents import Passage, beir_file, without_blanks
from pyserini_ance.adapt.tables import Names, found_columns, read_table
from pyserini_ance.data.formats.lines import Line, extension, grade_of, read_lines, shown
from pyserini_ance.data.formats.records import EXTENSIONS
from pyserini_ance.data.made_splits import DocumentQueries, split_words
from pyserini_ance.data.texts import text_key
from pyserini_ance.data.trec import Qrels, read_qrels
from pyserini_ance.pipeline.mining import load_collection

LEAST_TEST, MOST_TEST = 30, 500  # with fewer test queries nothing can be told
LEAST_DEV, MOST_DEV = 15, 200
LEAST_TRAIN = 50
MOST_MADE = 10_000  # queries without judgments
QUERY_COLUMNS = {
    "id": "id qid queryid topicid questionid",
    "text": "query text question search title contents",
}
JUDGMENT_COLUMNS = {
    "query": "queryid qid query question topic id",
    "document": "corpusid docid documentid docno document pid passageid passage path",
    "grade": "score grade relevance label rel",
}


@dataclass
class Queries:
    """Queries by id, with the judged ones by split; `counts` says what was set aside."""

    texts: dict[str, str] = field(default_factory=dict)
    judgments: Qrels = field(default_factory=dict)
    splits: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add_split(self, name: str, texts: Mapping[str, str], qrels: Qrels) -> None:
        """Add a split that is given: its judged queries, of `texts`."""
        judged = {
            id: {without_blanks(document): grade for document, grade in grades.items()}
            for id, grades in _judged(qrels).items()
            if id in texts
        }
        self.counts["judged queries without a text"] += len(_judged(qrels)) - len(judged)
        self.texts |= {id: texts[id] for id in judged}
        self.judgments |= judged
        self.splits[name] = list(judged)

    @property
    def held_out(self) -> set[str]:
        """The keys of the texts of dev and test."""
        return {text_key(self.texts[id]) for name in ("dev", "test") for id in self.splits.get(name, ())}

    @property
    def unjudged(self) -> list[str]:
        """The queries without a relevant document, one of each text, and of none that is held out; of many, a
        random part."""
        by_text = {text_key(text): id for id, text in self.texts.items() if id not in self.judgments}
        left = [id for text, id in by_text.items() if text not in self.held_out]
        return left if len(left) <= MOST_MADE else sorted(left, key=hash_of)[:MOST_MADE]

    def supervision(self) -> str:
        """The best that there is enough of: `judged`, `unjudged` or `extracted` queries."""
        if len(self.splits.get("train", ())) >= LEAST_TRAIN:
            return "judged"
        return "unjudged" if len(self.unjudged) >= LEAST_TRAIN else "extracted"


def read_queries(queries: Path | None, judgments: Path | None, source: Path, cache: Path) -> Queries:
    """Read what there is: a file of queries, judgments by their ids or texts, and those that come with the
    documents: a folder in BEIR's layout, or a YAML file with the `data:` section of a recipe.

    Raises ValueError for judgments of a query that is neither the id nor the text of one.
    """
    found = Queries()
    if queries:
        found.texts = _query_file(queries)
    elif source.suffix in (".yaml", ".yml"):
        collection = load_collection(source, cache)
        for name, split in collection.splits.items():
            texts = dict(zip(split.queries.ids, split.queries.columns["text"], strict=True))
            found.add_split(name, texts, collection.judgments(name))
    elif source.is_dir() and (of_beir := beir_file(source, "queries.jsonl")):
        texts = _query_file(of_beir)
        found.texts |= texts
        for name in ("train", "dev", "test"):
            if path := beir_file(source, f"qrels/{name}.tsv"):
                found.add_split(name, texts, read_qrels(path))
    if judgments:
        _add_judgments(found, judgments)
    return found


def hash_of(text: str) -> bytes:
    """A random order that is the same everywhere."""
    return hashlib.sha256(text.encode(errors="replace")).digest()


def _judged(qrels: Qrels) -> Qrels:
    return {query: grades for query, grades in qrels.items() if max(grades.values()) > 0}


def _query_file(path: Path) -> dict[str, str]:
    """The text of each query by its id. Lines of .txt and of .tsv without a header are `text` or `id TAB
    text`.

    Raises ValueError for two texts with one id.
    """
    texts: dict[str, str] = {}
    pairs: Iterable[Sequence[str]]
    if _is_table(path, QUERY_COLUMNS):
        records = read_table(path, QUERY_COLUMNS, ["text"], "--queries")
        pairs = ((record.get("id", ""), record["text"]) for record in records)
    else:
        lines = read_lines(path)
        pairs = (line.cells(("id", "text")) if "\t" in line.text else ("", line.text) for line in lines)
    for number, (id, text) in enumerate(pairs, start=1):
        id, text = without_blanks(id) or f"q{number}", " ".join(text.split())
        if text and texts.setdefault(id, text) != text:
            raise ValueError(
                f"{path}: query id {shown(id)} has two texts, {shown(texts[id])} and {shown(text)}; expected "
                "an id for each text; rename one, or leave ids out"
            )
    return texts


def _is_table(path: Path, names: Names) -> bool:
    """Whether the columns of a file have names; those of .tsv may have none."""
    kind = extension(path)
    if kind == ".tsv":
        return bool(found_columns(next(read_lines(path), Line(path, 1, "")).text.split("\t"), names))
    return kind in EXTENSIONS


def _add_judgments(found: Queries, path: Path) -> None:
    """Add the judgments of a file: TREC's or BEIR's qrels, or a table; queries by id, or else by text."""
    if _is_table(path, JUDGMENT_COLUMNS):
        names = JUDGMENT_COLUMNS if found.texts else {**JUDGMENT_COLUMNS, "query": "query question"}
        table = list(read_table(path, names, ["query", "document"], "--judgments"))
        judged = [(number, row) for number, row in enumerate(table, start=1) if row.get("grade", "1").strip()]
        found.counts["judgments without a grade"] += len(table) - len(judged)
        rows = [
            (number, row["query"], row["document"], grade_of(_row(path, number), row.get("grade", "1")))
            for number, row in judged
        ]
    else:
        qrels = read_qrels(path)
        rows = [(0, query, document, grade) for query, of in qrels.items() for document, grade in of.items()]
    by_text = {text_key(text): id for id, text in found.texts.items()}
    only_texts = not found.texts and any(" " in query.strip() for _, query, _, _ in rows)
    for number, query, document, grade in rows:
        named = without_blanks(query)
        id = named if named in found.texts else by_text.get(text_key(query))
        if id is None and only_texts:
            id = by_text[text_key(query)] = f"q{len(by_text) + 1}"
            found.texts[id] = " ".join(query.split())
        if id is None:
            raise ValueError(
                f"{path}: query {shown(query)} is neither the id nor the text of one of {len(found.texts):,} "
                "queries; pass the file that these judgments are of with --queries"
            )
        of_query, document = found.judgments.setdefault(id, {}), without_blanks(document)
        if of_query.setdefault(document, grade) != grade:
            problem = f"query {shown(query)} and document {shown(document)} have the grade {grade}"
            expected = f"one grade, as before: {of_query[document]}"
            raise _row(path, number).error(problem, expected, "keep one of the two")
    judged_ids = _judged(found.judgments)
    found.counts["judged queries without a relevant document"] += len(found.judgments) - len(judged_ids)
    found.judgments = judged_ids


def _row(path: Path, number: int) -> Line:
    return Line(path, number, "", "judgment")


def keep_known(found: Queries, documents: Collection[str]) -> None:
    """Leave out judgments of documents that are not there, and count them.

    Raises ValueError if none is left.
    """
    judged = {
        query: {whole: grade for d, grade in of.items() if (whole := _whole(d, documents)) in documents}
        for query, of in found.judgments.items()
    }
    unknown = sum(map(len, found.judgments.values())) - sum(map(len, judged.values()))
    if found.judgments and not any(judged.values()):
        example = next(iter(next(iter(found.judgments.values()))))
        raise ValueError(
            f"none of the {len(documents):,} documents is judged: judgments have {shown(example)}, documents "
            f"{shown(next(iter(documents), ''))}; in a folder of files, a document is its path in it"
        )
    found.counts["judgments of unknown documents"] = unknown
    found.judgments = _judged({query: of for query, of in judged.items() if of})
    kept = {name: [id for id in ids if id in found.judgments] for name, ids in found.splits.items()}
    found.splits = {name: ids for name, ids in kept.items() if ids}


def _whole(document: str, documents: Collection[str]) -> str:
    """A document by its id, or by that of one of its passages, as an adaptation without judgments has it."""
    return document if document in documents else re.sub(r"#\d+$", "", document)


def split(found: Queries) -> None:
    """Hold dev and test out of the judged queries, unless they are given; and no text is on two sides."""
    given = {id for ids in found.splits.values() for id in ids}
    pool = [*found.splits.get("train", ()), *(id for id in found.judgments if id not in given)]
    groups: dict[str, list[str]] = defaultdict(list)
    for id in pool:
        groups[text_key(found.texts[id])].append(id)
    taken = {text_key(found.texts[id]) for name in ("dev", "test") for id in found.splits.get(name, ())}
    order = sorted(groups.keys() - taken, key=hash_of)
    found.counts["training queries with the text of a held-out one"] = len(groups.keys() & taken)
    for name, wanted in sizes(len(order), found.splits).items():
        found.splits[name] = [_one_of(found, groups[text]) for text in order[:wanted]]
        order = order[wanted:]
    held_out = {name: found.splits.get(name, []) for name in ("dev", "test")}
    found.splits = {"train": [id for text in order for id in groups[text]], **held_out}


def _one_of(found: Queries, ids: Sequence[str]) -> str:
    """The first of several ids of one text, with the judgments of all: one question is one observation."""
    merged: dict[str, int] = {}
    for id in ids:
        merged = {**found.judgments[id], **merged}
    found.judgments[ids[0]] = merged
    return ids[0]


def sizes(judged: int, given: Collection[str]) -> dict[str, int]:
    """How many of the judged queries become the splits that are not `given`: test, then dev.

    What is left trains; if it is too little, all are held out.
    """
    test = 0 if "test" in given else min(MOST_TEST, max(LEAST_TEST, 3 * judged // 10))
    dev = 0 if "dev" in given else min(MOST_DEV, max(LEAST_DEV, judged // 5))
    if judged - test - dev < LEAST_TRAIN:
        test = (2 * judged // 3 if dev else judged) if test else 0
        dev = judged - test if dev else 0
    wanted = {"test": min(test, judged), "dev": min(dev, max(judged - test, 0))}
    return {name: count for name, count in wanted.items() if name not in given}


def extract_queries(passages: Iterable[Passage]) -> tuple[dict[str, str], dict[str, str]]:
    """Titles of three words or more, and crops, as queries: the text and the document of each, by id."""
    crops = DocumentQueries(**{"from": "crops"})
    made: dict[str, tuple[str, str]] = {}
    seen: set[str] = set()
    for passage in passages:
        found = [("crop", text) for text in crops.of_text(passage.id, passage.text)]
        if len(split_words(passage.title)) >= 3:
            found.append(("title", passage.title))
        for kind, text in found:
            if text_key(text) not in seen:
                seen.add(text_key(text))
                made[f"{kind}-{passage.id}"] = (" ".join(text.split()), passage.id)
    chosen = sorted(made, key=hash_of)[:MOST_MADE]
    return {id: made[id][0] for id in chosen}, {id: made[id][1] for id in chosen}
