"""Splits that are made here: training queries from documents alone, and a dev split cut from the training
queries.

Queries are crops, titles or first sentences, without a language model: a retriever is adapted to documents
that nobody has asked for yet. Source: Lin et al. 2023, arXiv:2302.07452 (DRAGON, cropped sentences as
queries); Izacard et al. 2022, arXiv:2112.09118 (Contriever, random crops).
"""

import hashlib
import logging
import re
from collections import defaultdict
from typing import Literal, Self

import numpy as np
import regex
from pydantic import ConfigDict, Field, PositiveInt, model_validator

from pyserini_ance.data.collection import Qrels, Split, Texts
from pyserini_ance.data.texts import text_key
from pyserini_ance.recipe.components import Settings

log = logging.getLogger(__name__)

# The end of a sentence: a mark (also of Devanagari and Arabic), perhaps closing quotes, and then no
# lower-case word ("wrt. the", "e.g. a"); after a mark of Chinese, Japanese, Burmese or Khmer anything.
SENTENCE_END = re.compile(r"""[.!?।؟]["'`)\]*]*(?=\s+[^\sa-z]|\Z)|[。！？｡．။។៕]["'`)\]*」』）”’]*|\Z""")  # noqa: RUF001

# Scripts that put no blank between words, and the mark of long vowels, which Hiragana and Katakana share.
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}ー]"
_CHARACTER = regex.compile(_UNSPACED)
_LETTER = regex.compile(r"\w")
# A character with its marks and the punctuation after it, or a word of another script.
_WORD = regex.compile(rf"(?={_UNSPACED})\X[^\w\s]*|(?:(?!{_UNSPACED})\S)+")


class DocumentQueries(Settings):
    """Queries made from the documents; the document of a query is its positive.

    `crops`: consecutive words at a random place, of a length drawn evenly from the two numbers of `words`.
    `titles`: the title. `first_sentences`: as many whole sentences from the beginning as have the first
    number. Titles and sentences end after the second. The words of a query stay in its document, so that BM25
    finds the document trivially: its rank says nothing, and BM25 negatives are documents that share words
    with it.

    Documents with the same title, or the same first sentences, share one query, and all are its positives.
    A document with too few words gives no query. A crop that a document has given before is left out. Both
    are counted. Crops depend on the document's id and words alone.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    source: Literal["crops", "titles", "first_sentences"] = Field(alias="from")
    """The part of a document that becomes a query."""
    words: tuple[PositiveInt, PositiveInt] = (4, 16)
    """The minimum and the maximum number of words, which blanks separate; in texts that are mostly Chinese,
    Japanese, Thai or of another script without blanks, of characters."""
    per_document: PositiveInt = 1
    """The number of crops of a document; a document has one title, and one beginning."""
    split: str = "train"
    """The split that the queries become, in place of the data's own of this name."""

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        if self.words[0] > self.words[1]:
            raise ValueError(f"words is {list(self.words)}; expected [minimum, maximum]; swap them")
        if self.per_document > 1 and self.source != "crops":
            raise ValueError(
                f"per_document is {self.per_document}, but a document gives one query from: {self.source}; "
                "remove per_document, or set `from: crops`"
            )
        return self

    def make_split(self, documents: Texts, grade: int, skipped: dict[str, int]) -> Split:
        """Make the split: queries in the documents' order, each with its document at `grade`.

        grade: also the lowest grade that is relevant. skipped: receives the numbers of documents that give no
        query and of repeated crops. Raises ValueError if documents lack the field, and if none gives a query.
        """
        name = "title" if self.source == "titles" else "text"
        if name not in documents.columns:
            raise ValueError(
                f"data.train_queries is from: {self.source}, but documents have no field {name!r}; fields: "
                f"{', '.join(documents.columns)}; use another `from`"
            )
        ids: list[str] = []
        texts: list[str] = []
        pairs: list[tuple[int, int]] = []  # of a query and a document
        shared: dict[str, int] = {}  # the query of a title, or of first sentences
        num_short = num_repeated = 0
        for row, (id, text) in enumerate(zip(documents.ids, documents.columns[name], strict=True)):
            found = self.of_text(id, text)
            distinct = dict.fromkeys(found)
            num_short += not found
            num_repeated += len(found) - len(distinct)
            for number, words in enumerate(distinct):
                query = len(ids) if self.source == "crops" else shared.setdefault(words, len(ids))
                pairs.append((query, row))
                if query == len(ids):
                    ids.append(f"{self.source}-{id}-{number}")
                    texts.append(words)
        if not ids:
            raise ValueError(
                f"data.train_queries: none of {len(documents)} documents has {self.words[0]} words in "
                f"{name!r}; lower the first of `words`"
            )
        skipped[f"{self.split} documents with fewer than {self.words[0]} words in {name}"] = num_short
        skipped[f"{self.split} crops that repeat another of their document"] = num_repeated
        queries, rows = np.array(pairs).T
        qrels = Qrels.of(queries, rows, np.full(len(rows), grade), len(ids), grade)
        return Split(self.split, Texts(ids, {"text": texts}), qrels)

    def of_text(self, id: str, text: str) -> list[str]:
        """The queries that a document gives, repeated ones included; none if it has too few words."""
        words = split_words(text)
        least, most = self.words
        if len(words) < least:
            return []
        if self.source == "crops":
            return [self._crop(id, number, words) for number in range(self.per_document)]
        if self.source == "first_sentences":
            # The fewest sentences that have enough words together: an abbreviation is no sentence.
            sentences = (split_words(text[: match.end()]) for match in SENTENCE_END.finditer(text))
            words = next((one for one in sentences if len(one) >= least), words)
        return ["".join(words[:most]).rstrip()]

    def _crop(self, id: str, number: int, words: list[str]) -> str:
        # "0 " was the default of a seed: the crops stay those of runs with it.
        digest = hashlib.sha256(f"0 {number} {id}".encode()).digest()
        first, second = (int.from_bytes(digest[part]) for part in (slice(0, 8), slice(8, 16)))
        least, most = self.words
        length = least + first % (min(most, len(words)) - least + 1)
        start = second % (len(words) - length + 1)
        return "".join(words[start : start + length]).rstrip()


def split_words(text: str) -> list[str]:
    """The words of a text, each with a blank if one is between it and the next word.

    A text of which more than half the letters are of scripts without blanks has a word for each of these.
    """
    words = text.split()
    if not text.isascii() and 2 * len(_CHARACTER.findall(text)) > len(_LETTER.findall(text)):
        split = (_WORD.findall(word) for word in words)
        return [piece for *pieces, last in split for piece in (*pieces, f"{last} ")]
    return [f"{word} " for word in words]


def cut_dev(splits: dict[str, Split], count: int, documents: Texts) -> dict[str, Split]:
    """`splits` with `count` judged queries cut from `train`, and the split `dev` of them after it.

    Queries with the same relevant document stay together, and so do those with the same text, but for case
    and blanks. Of several relevant documents, that with the smallest hash of its id counts, since many
    documents would link all queries. Whole groups are cut in the order of these hashes, as many as `count`
    has room for: the choice depends neither on the order of the files nor on the machine.

    Raises ValueError if `train` does not exist, has no judgments or too few queries, and if each group has
    more than `count` queries.
    """
    whole = splits.get("train")
    judged = len(whole.qrels.positives.anchors) if whole else 0
    if whole is None or count >= judged:
        raise ValueError(
            f"data.hold_out is {count}, but split 'train' has {judged} queries with a relevant document; "
            f"splits: {', '.join(splits) or 'none'}; lower it, or name the split that it is cut from 'train'"
        )
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows_by_hash: list[tuple[bytes, int, int]] = []  # with the document's row
    for row in whole.qrels.positives.anchors.tolist():
        relevant = whole.qrels.relevant(row).tolist()
        hashed = ((hashlib.sha256(f"0 {documents.ids[one]}".encode()).digest(), one) for one in relevant)
        of_document, document = min(hashed)
        rows_by_hash.append((of_document, row, document))
    rows_by_hash.sort()
    hashes, rows, chosen = zip(*rows_by_hash, strict=True)
    # A query links its document, by the hash, the document's copies and its text.
    keys = [text_key(text) for text in whole.queries.columns["text"]]
    copies, texts = documents.same.first_of(np.array(chosen)).tolist(), [keys[row] for row in rows]
    nodes = {node: number for number, node in enumerate(dict.fromkeys([*hashes, *copies, *texts]))}
    ends = [nodes[node] for node in (*hashes, *hashes)], [nodes[node] for node in (*copies, *texts)]
    links = coo_array((np.ones(len(ends[0])), ends), shape=(len(nodes), len(nodes)))
    group_of = connected_components(links, directed=False)[1]
    groups: dict[int, list[int]] = defaultdict(list)
    for of_document, row, _ in rows_by_hash:
        groups[int(group_of[nodes[of_document]])].append(row)
    held_out: list[int] = []
    for group in groups.values():
        if len(held_out) + len(group) <= count:
            held_out += group
    if not held_out:
        fewest = min(len(group) for group in groups.values())
        raise ValueError(
            f"data.hold_out is {count}, but each document or text of split 'train' has {fewest} queries or "
            f"more, which stay together; set it to {fewest} or more"
        )
    held = {keys[row] for row in held_out}  # also of queries without judgments
    parts = {"train": np.array([key not in held for key in keys]).nonzero()[0], "dev": np.sort(held_out)}
    log.info("held out %d of %d queries of split train as dev", len(held_out), len(whole.queries))
    cut = {one: Split(one, whole.queries.subset(own), whole.qrels.subset(own)) for one, own in parts.items()}
    new: dict[str, Split] = {}
    for name, split in splits.items():
        new |= cut if name == "train" else {name: split}
    return new
