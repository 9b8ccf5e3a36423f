"""What supervises: queries with judgments, cut into splits by text before anything else, and queries without.

A query is judged once it has a relevant document. Queries of one text stay together, whatever their ids.
"""

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyserini_ance.adapt.documents import Passage, beir_file, without_blanks
from pyserini_ance.data.formats.lines import Line, extension, grade_of, read_lines, shown
from pyserini_ance.data.formats.records import EXTENSIONS, Names, found_columns, read_table
from pyserini_ance.data.made_splits import DocumentQueries, split_words
from pyserini_ance.data.texts import text_key
from pyserini_ance.data.trec import Qrels, read_qrels
from pyserini_ance.pipeline.mining import load_collection

LEAST_TEST, MOST_TEST = 30, 500  # with fewer test queries nothing can be told
LEAST_DEV, MOST_DEV = 15, 200
LEAST_TRAIN = 50
MOST_MADE = 10_000  # queries without judgments
MOST_UNKNOWN = 0.1  # of the judgments; with more, documents are called by other names than here
QUERY_TEXT = "question querytext searchterm searchquery"
QUERY_COLUMNS = {
    "id": "id qid queryid topicid questionid",
    "text": f"query text {QUERY_TEXT} search title contents",
}
JUDGMENT_COLUMNS = {
    "query": f"queryid qid query {QUERY_TEXT} topic id",
    "document": "corpusid docid documentid docno document doc pid passageid passage path file filename url "
    "uid title",
    "grade": "score grade relevance relevant label rel rating judgment judgement",
}


@dataclass
class Queries:
    """Queries by id, the judged ones by split, what was set aside, and where documents are judged first."""

    texts: dict[str, str] = field(default_factory=dict)
    judgments: Qrels = field(default_factory=dict)
    splits: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, str] = field(default_factory=dict)
    has_test: bool = False  # a given one, not cut from the judged queries

    def add_split(self, name: str, texts: Mapping[str, str], qrels: Qrels) -> None:
        """Add a split that is given: its judged queries, of `texts`."""
        judged = {id: grades for id, grades in _judged(qrels).items() if id in texts}
        self.counts["judged queries without a text"] += len(_judged(qrels)) - len(judged)
        self.counts["queries with answers, but no judged document"] += sum(not of for of in qrels.values())
        self.texts |= {id: texts[id] for id in judged}
        self.judgments |= judged
        self.splits |= {name: list(judged)} if judged else {}

    @property
    def held_out(self) -> set[str]:
        """The keys of the texts of dev and test."""
        return {text_key(self.texts[id]) for name in ("dev", "test") for id in self.splits.get(name, ())}

    @property
    def unjudged(self) -> list[str]:
        """The queries without a relevant document, one of each text, and of none that is held out; of many, a
        random part."""
        by_text = {text_key(text): id for id, text in self.texts.items() if id not in self.judgments}
        held_out = self.held_out
        left = [id for text, id in by_text.items() if text not in held_out]
        return left if len(left) <= MOST_MADE else sorted(left, key=hash_of)[:MOST_MADE]

    def supervision(self) -> str:
        """The best that there is enough of: `judged`, `unjudged` or `extracted` queries."""
        if len(self.splits.get("train", ())) >= LEAST_TRAIN:
            return "judged"
        return "unjudged" if len(self.unjudged) >= LEAST_TRAIN else "extracted"


def read_queries(queries: Path | None, judgments: Path | None, source: Path, cache: Path) -> Queries:
    """Read what there is: a file of queries, judgments by their ids or texts, and those that come with the
    documents: a folder in BEIR's layout, or a YAML file with the `data:` section of a recipe.

    Raises ValueError for judgments of a query that is neither the id nor the text of one, and for a file
    without a query or a relevant document.
    """
    found = Queries()
    if source.suffix in (".yaml", ".yml"):
        collection = load_collection(source, cache=cache)
        splits = []
        for name, split in collection.splits.items():
            texts = dict(zip(split.queries.ids, split.queries.columns["text"], strict=True))
            least, grades = split.qrels.threshold, collection.judgments(name).items()
            graded = {id: {one: grade * (grade >= least) for one, grade in of.items()} for id, of in grades}
            splits.append((name, texts, graded))
        told = {
            (id, text, frozenset(of[id].items())) for _, texts, of in splits for id, text in texts.items()
        }
        clash = len(told) > len({id for id, *_ in told})  # some files number the queries of each split
        for name, texts, graded in splits:
            before = f"{name}:" * clash
            named = {before + id: text for id, text in texts.items()}
            found.add_split(name, named, {before + id: of for id, of in graded.items()})
    elif source.is_dir() and (of_beir := beir_file(source, "queries.jsonl")):
        _add_queries(found, of_beir)
        for name in ("train", "dev", "test"):
            if path := beir_file(source, f"qrels/{name}.tsv"):
                found.add_split(name, found.texts, read_qrels(path))
    if queries and not _add_queries(found, queries):
        raise ValueError(f"{queries}: no query; expected one a row; pass a file with rows")
    if judgments:
        _add_judgments(found, judgments)
    if judgments and not found.judgments:
        raise ValueError(f"{judgments}: no relevant document; expected a grade above 0; judge some queries")
    num_texts = len(set(map(text_key, found.texts.values())))
    found.counts["queries with the text of another"] = len(found.texts) - num_texts
    return found


def hash_of(text: str) -> bytes:
    """A random order that is the same everywhere."""
    return hashlib.sha256(text.encode(errors="replace")).digest()


def _judged(qrels: Qrels) -> Qrels:
    return {query: grades for query, grades in qrels.items() if max(grades.values(), default=0) > 0}


def _add_queries(found: Queries, path: Path) -> bool:
    """Add the texts of a file; return whether there are any.

    Lines of .txt and of .tsv without a header are `text` or `id TAB text`. Columns that are not read, such as
    the counts of a log, are counted.

    Raises ValueError for two texts with one id, and for a second column of numbers without names.
    """
    unread: set[str] = set()
    pairs: Sequence[Sequence[str]]
    if _is_table(path, QUERY_COLUMNS):
        records = read_table(path, QUERY_COLUMNS, ["text"], "--queries", unread)
        pairs = [(record.get("id", ""), record["text"]) for _, record in records]
    else:
        lines = read_lines(path)
        pairs = [line.cells(("id", "text")) if "\t" in line.text else ("", line.text) for line in lines]
        if (second := "".join(text for id, text in pairs if id)) and not any(map(str.isalpha, second)):
            expected = "texts; name the columns in a first line, such as query and count"
            raise ValueError(f"{path}: the second column is numbers, {shown(second)}; expected {expected}")
    taken, number = {*found.texts, *(without_blanks(id) for id, _ in pairs)}, len(found.texts) + 1
    for id, text in pairs:
        while f"q{number}" in taken:
            number += 1
        id, text, number = without_blanks(id) or f"q{number}", " ".join(text.split()), number + 1
        if text and (before := found.texts.setdefault(id, text)) != text:
            problem = f"{path}: query id {shown(id)} has two texts, {shown(before)} and {shown(text)}"
            raise ValueError(f"{problem}; expected an id for each text; rename one, or leave ids out")
    found.counts[f"columns of {path.name} not read ({', '.join(sorted(unread))})"] = len(unread)
    return any(text.strip() for _, text in pairs)


def _is_table(path: Path, names: Names) -> bool:
    """Whether the columns of a file have names; those of .tsv may have none, and spreadsheets also write
    tables as .txt."""
    if (kind := extension(path)) not in (".tsv", ".txt"):
        return kind in EXTENSIONS
    header = next(read_lines(path), Line(path, 1, "")).text.split("\t")
    return (kind == ".tsv" or len(header) > 1) and bool(found_columns(header, names))


def _add_judgments(found: Queries, path: Path) -> None:
    """Add the judgments of a file: TREC's or BEIR's qrels, or a table; queries by id, or else by text."""
    if _is_table(path, JUDGMENT_COLUMNS):
        names, unread = dict(JUDGMENT_COLUMNS), set[str]()
        if not found.texts:  # texts before ids
            names["query"] = f"query {QUERY_TEXT} {names['query']}"
        table = list(read_table(path, names, ["query", "document"], "--judgments", unread))
        found.counts[f"columns of {path.name} not read ({', '.join(sorted(unread))})"] = len(unread)
        judged = [(line, row) for line, row in table if row.setdefault("grade", "1").strip()]
        found.counts["judgments without a grade"] += len(table) - len(judged)
        rows = [(at, row["query"], row["document"], grade_of(at, row["grade"])) for at, row in judged]
    else:
        line, qrels = Line(path, 0, ""), read_qrels(path)
        rows = [(line, query, one, grade) for query, of in qrels.items() for one, grade in of.items()]
    by_text = {text_key(text): id for id, text in found.texts.items()}
    only_texts = not found.texts and any(" " in query.strip() for _, query, _, _ in rows)
    for line, query, document, grade in rows:
        if not (named := without_blanks(query)):
            raise line.error("an empty query", "an id or a text", "write it, or delete the row")
        id = named if named in found.texts else by_text.get(text_key(query))
        if id is None and only_texts:
            id = by_text[text_key(query)] = f"q{len(by_text) + 1}"
            found.texts[id] = " ".join(query.split())
        if id is None:
            neither = f"neither the id nor the text of one of {len(found.texts):,} queries"
            cure = "pass the file that these judgments are of with --queries"
            raise ValueError(f"{line.place}: query {shown(query)} is {neither}; {cure}")
        of_query = found.judgments.setdefault(id, {})
        if of_query.setdefault(document, grade) != grade:
            problem = f"query {shown(query)} and document {shown(document)} have the grade {grade}"
            raise line.error(problem, f"one grade, as before: {of_query[document]}", "keep one of the two")
        found.places.setdefault(document, line.place)
    judged_ids = _judged(found.judgments)
    found.counts["judged queries without a relevant document"] += len(found.judgments) - len(judged_ids)
    found.judgments = judged_ids


def keep_known(found: Queries, titles: Mapping[str, str]) -> None:
    """Call judged documents by their ids; count and leave out judgments of documents that are not there.

    titles: of all documents, by id. Raises ValueError for more than MOST_UNKNOWN such judgments.
    """
    names = [document for of in found.judgments.values() for document in of]
    ids = _ids_of(set(names), titles)
    judged: Qrels = {}
    for query, grades in found.judgments.items():
        for id, grade in ((ids[name], grade) for name, grade in grades.items() if name in ids):
            of = judged.setdefault(query, {})
            of[id] = max(grade, of.get(id, grade))
    if unknown := [name for name in names if name not in ids]:
        first = [*dict.fromkeys(unknown)][:3]
        rows = "; ".join(f"{found.places.get(name, 'qrels')}: {shown(name)}" for name in first)
        example = next((id for id in titles if "/" in id), next(iter(titles)))
        what = (
            f"judgments of unknown documents ({rows}; expected an id, in a folder the path below it, such as "
            f"{example}, or a file name or title that no other document has)"
        )
        if len(unknown) > MOST_UNKNOWN * len(names):
            raise ValueError(f"{len(unknown):,} of {len(names):,} {what}; correct or delete these rows")
        found.counts[what] = len(unknown)
    found.judgments = _judged(judged)
    kept = ((name, [id for id in ids if id in found.judgments]) for name, ids in found.splits.items())
    found.splits = {name: ids for name, ids in kept if ids}


def _ids_of(names: Collection[str], titles: Mapping[str, str]) -> dict[str, str]:
    """The id of each document by the name it has in judgments: its id, that of one of its passages, as an
    adaptation without judgments has it, or its file name or title, if no other document has that."""
    known = {name: {id} for name in names if (id := without_blanks(name)) in titles}
    whole = {name: re.sub(r"#\d+$", "", name) for name in names if name not in known}
    called: dict[str, set[str]] = {_key(name): set() for pair in whole.items() for name in pair}
    for id, title in titles.items() if called else ():
        for key in called.keys() & {_key(id), _key(Path(id).name), _key(title)} - {""}:
            called[key].add(id)
    for name, one in whole.items():
        known[name] = called[_key(name)] or {without_blanks(one)} & titles.keys() or called[_key(one)]
    return {name: next(iter(ids)) for name, ids in known.items() if len(ids) == 1}


def _key(name: str) -> str:
    """Equal for names that look the same: in ids blanks are `_`, and some systems write accents apart."""
    return text_key(unicodedata.normalize("NFC", name.replace("_", " ")))


def split(found: Queries) -> None:
    """Hold dev and test out of the judged queries, unless they are given; and no text is on two sides. Other
    given splits become both if one of the two is missing and no other query is judged."""
    given = dict.fromkeys(id for ids in found.splits.values() for id in ids)
    pool = [*found.splits.get("train", ()), *(id for id in found.judgments if id not in given)]
    if is_held_out := not pool and not found.splits.keys() >= {"dev", "test"}:
        pool, found.splits = [*given], {}
    found.has_test = "test" in found.splits
    groups: dict[str, list[str]] = defaultdict(list)
    for id in pool:
        groups[text_key(found.texts[id])].append(id)
    order = sorted(groups.keys() - found.held_out, key=hash_of)
    found.counts["training queries with the text of a held-out one"] = len(groups) - len(order)
    for name, wanted in sizes(len(order), found.splits, trains=not is_held_out).items():
        found.splits[name] = [groups[text][0] for text in order[:wanted]]
        for ids in (groups[text] for text in order[:wanted]):  # one question is one observation
            merged = [pair for id in reversed(ids) for pair in found.judgments[id].items()]
            found.judgments[ids[0]] = dict(merged)
        order = order[wanted:]
    held_out = {name: found.splits.get(name, []) for name in ("dev", "test")}
    unused = (len(ids) for name, ids in found.splits.items() if name not in ("train", *held_out))
    found.counts["judged queries of splits but train, dev and test, not used"] = sum(unused)
    found.splits = {"train": [id for text in order for id in groups[text]], **held_out}


def sizes(judged: int, given: Collection[str], trains: bool = True) -> dict[str, int]:
    """How many of the judged queries become the splits that are not `given`: test, then dev.

    What is left trains; if none may, or it is too little, all are held out.
    """
    test = 0 if "test" in given else min(MOST_TEST, max(LEAST_TEST, 3 * judged // 10))
    dev = 0 if "dev" in given else min(MOST_DEV, max(LEAST_DEV, judged // 5))
    if not trains or judged - test - dev < LEAST_TRAIN:
        test = (2 * judged // 3 if dev else judged) if test else 0
        dev = judged - test if dev else 0
    return {name: count for name, count in (("test", test), ("dev", dev)) if name not in given}


def extract_queries(passages: Iterable[Passage]) -> tuple[dict[str, str], dict[str, str]]:
    """Titles of three words or more, and crops, as queries: the text and the document of each, by id."""
    crops = DocumentQueries(**{"from": "crops"})
    made: dict[str, tuple[str, str, str]] = {}
    for passage in passages:
        found = [("crop", text) for text in crops.of_text(passage.id, passage.text)]
        if len(split_words(passage.title)) >= 3:
            found.append(("title", passage.title))
        for kind, text in found:
            made.setdefault(text_key(text), (f"{kind}-{passage.id}", " ".join(text.split()), passage.id))
    chosen = sorted(made.values(), key=lambda one: hash_of(one[0]))[:MOST_MADE]
    return {id: text for id, text, _ in chosen}, {id: document for id, _, document in chosen}
