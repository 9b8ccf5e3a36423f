"""What supervises: queries with judgments, cut into splits by text before anything else, and queries without.

A query is judged once it has a relevant document. Queries of one text stay together, whatever their ids.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyserini_ance.adapt.documents import Passage, beir_file, without_blanks
from pyserini_ance.adapt.tables import read_table
from pyserini_ance.data.formats.lines import Line, extension, grade_of, read_lines, shown
from pyserini_ance.data.formats.records import EXTENSIONS
from pyserini_ance.data.made_splits import DocumentQueries, split_words
from pyserini_ance.data.texts import text_key
from pyserini_ance.data.trec import Qrels, read_qrels
from pyserini_ance.pipeline.mining import load_collection

LEAST_TEST, MOST_TEST = 30, 500  # with fewer test queries nothing can be told
LEAST_DEV, MOST_DEV = 15, 200
LEAST_TRAIN = 50
MOST_SYNTHETIC = 10_000
QUERY_COLUMNS = {
    "id": ("id", "qid", "queryid", "topicid", "questionid"),
    "text": ("query", "text", "question", "search", "title", "contents"),
}
JUDGMENT_COLUMNS = {
    "query": ("queryid", "qid", "query", "question", "topic", "id"),
    "document": (
        "corpusid",
        "docid",
        "documentid",
        "docno",
        "document",
        "pid",
        "passageid",
        "passage",
        "path",
    ),
    "grade": ("score", "grade", "relevance", "label", "rel"),
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
    def unjudged(self) -> list[str]:
        """The queries without a relevant document, one of each text, and of none that is held out."""
        held_out = {text_key(self.texts[id]) for name in ("dev", "test") for id in self.splits.get(name, ())}
        by_text = {text_key(text): id for id, text in self.texts.items() if id not in self.judgments}
        return [id for text, id in by_text.items() if text not in held_out]

    def supervision(self) -> str:
        """The best that there is enough of: `judged`, `unjudged` or `synthetic` queries."""
        if len(self.splits.get("train", ())) >= LEAST_TRAIN:
            return "judged"
        return "unjudged" if len(self.unjudged) >= LEAST_TRAIN else "synthetic"


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


def _judged(qrels: Qrels) -> Qrels:
    return {query: grades for query, grades in qrels.items() if max(grades.values()) > 0}


def _query_file(path: Path) -> dict[str, str]:
    """The text of each query by its id. Lines of .txt and of .tsv without a header are `text` or `id TAB
    text`.

    Raises ValueError for two texts with one id.
    """
    texts: dict[str, str] = {}
    if is_table := _is_table(path):
        records = read_table(path, QUERY_COLUMNS, ["text"], "--queries")
        pairs = ((record.get("id", ""), record["text"]) for record in records)
    else:
        cells = (line.text.rpartition("\t")[::2] for line in read_lines(path))
    for number, (id, text) in enumerate(pairs if is_table else cells, start=1):
        id, text = without_blanks(id) or f"q{number}", " ".join(text.split())
        if text and texts.setdefault(id, text) != text:
            raise ValueError(
                f"{path}: query id {shown(id)} has two texts, {shown(texts[id])} and {shown(text)}; expected "
                "an id for each text; rename one, or leave ids out"
            )
    return texts


def _is_table(path: Path) -> bool:
    """Whether the columns of a file have names."""
    kind = extension(path)
    return kind in EXTENSIONS and (kind != ".tsv" or next(read_lines(path), Line(path, 1, "")).is_header())


def _add_judgments(found: Queries, path: Path) -> None:
    """Add the judgments of a file: TREC's or BEIR's qrels, or a table; queries by id, or else by text."""
    if _is_table(path):
        table = read_table(path, JUDGMENT_COLUMNS, ["query", "document"], "--judgments")
        rows = [
            (row["query"], row["document"], grade_of(Line(path, number, ""), row.get("grade") or 1))
            for number, row in enumerate(table, start=1)
        ]
    else:
        qrels = read_qrels(path)
        rows = [(query, document, grade) for query, of in qrels.items() for document, grade in of.items()]
    by_text = {text_key(text): id for id, text in found.texts.items()}
    only_texts = not found.texts and any(" " in query.strip() for query, _, _ in rows)
    for query, document, grade in rows:
        id = query if query in found.texts else by_text.get(text_key(query))
        if id is None and only_texts:
            id = by_text[text_key(query)] = f"q{len(by_text) + 1}"
            found.texts[id] = " ".join(query.split())
        if id is None:
            raise ValueError(
                f"{path}: query {shown(query)} is neither the id nor the text of one of {len(found.texts):,} "
                "queries; pass the file that these judgments are of with --queries"
            )
        found.judgments.setdefault(id, {})[without_blanks(document)] = grade
    found.judgments = _judged(found.judgments)


def keep_known(found: Queries, documents: Collection[str]) -> None:
    """Leave out judgments of documents that are not there, and count them.

    Raises ValueError if none is left.
    """
    judged = {query: {d: g for d, g in of.items() if d in documents} for query, of in found.judgments.items()}
    unknown = sum(map(len, found.judgments.values())) - sum(map(len, judged.values()))
    if found.judgments and not any(judged.values()):
        example = next(iter(next(iter(found.judgments.values()))))
        raise ValueError(
            f"none of the {len(documents):,} documents is judged: judgments have {shown(example)}, documents "
            f"{shown(next(iter(documents), ''))}; in a folder of files, a document is its path in it"
        )
    found.counts["judgments of unknown documents"] = unknown
    found.judgments = _judged({query: of for query, of in judged.items() if of})
    found.splits = {name: [id for id in ids if id in found.judgments] for name, ids in found.splits.items()}


def split(found: Queries) -> None:
    """Hold dev and test out of the judged queries, unless they are given; and no text is on two sides."""
    given = {id for ids in found.splits.values() for id in ids}
    pool = [*found.splits.get("train", ()), *(id for id in found.judgments if id not in given)]
    groups: dict[str, list[str]] = defaultdict(list)
    for id in pool:
        groups[text_key(found.texts[id])].append(id)
    taken = {text_key(found.texts[id]) for name in ("dev", "test") for id in found.splits.get(name, ())}
    order = sorted(groups.keys() - taken, key=lambda text: hashlib.sha256(text.encode()).digest())
    found.counts["training queries with the text of a held-out one"] = len(groups.keys() & taken)
    for name, wanted in sizes(len(order), found.splits).items():
        found.splits[name] = [id for text in order[:wanted] for id in groups[text]]
        order = order[wanted:]
    held_out = {name: found.splits[name] for name in ("dev", "test")}
    found.splits = {"train": [id for text in order for id in groups[text]], **held_out}


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


def synthetic(passages: Iterable[Passage]) -> tuple[dict[str, str], dict[str, str]]:
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
    chosen = sorted(made, key=lambda id: hashlib.sha256(id.encode()).digest())[:MOST_SYNTHETIC]
    return {id: made[id][0] for id in chosen}, {id: made[id][1] for id in chosen}
