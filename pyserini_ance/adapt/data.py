"""The data of an adaptation in BEIR's layout: documents, queries, and for each split judgments, or what
stands for them."""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyserini_ance.adapt.documents import WORDS, Passage, Reading, files_of, read_passages
from pyserini_ance.adapt.queries import LEAST_TRAIN, Queries, keep_known, read_queries, split, synthetic
from pyserini_ance.adapt.questions import announcement, copy_prompt, write_questions
from pyserini_ance.adapt.ranking import StartRanker
from pyserini_ance.adapt.recipe_file import COMPARED, recipe_text
from pyserini_ance.data.made_splits import split_words
from pyserini_ance.data.trec import Qrels
from pyserini_ance.distributed.process_group import device_of
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.llm import Server
from pyserini_ance.pipeline.mining import load_collection
from pyserini_ance.recipe.models import DEFAULT_CACHE, Recipe
from pyserini_ance.runs.any_encoder import encoder_settings, load_any_encoder
from pyserini_ance.runs.rundir import RECIPE, load_recipe
from pyserini_ance.storage.files import file_state, read_json_object, sha256_json, write_json, write_whole
from pyserini_ance.storage.publish import whole_folder

MOST_COMPARED = 100
MAX_PASSAGES = 4  # of a judged document that is too long for one
LONG_SHARE = 0.1  # of documents of more than two passages, from which on they are read as passages
ABOUT = "adapt.json"
PROMPT = "any-question"
MOST_ASKED = 5_000  # passages that a language model reads
ROUND_TRIP = 10  # a question must find its passage among so many
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """What the user has: documents, perhaps queries and judgments, an encoder to start from, and perhaps a
    language model that may read the documents."""

    documents: str
    output: Path
    model: str
    queries: Path | None = None
    judgments: Path | None = None
    server: Server | None = None

    @property
    def source(self) -> Path:
        return Path(self.documents).expanduser()

    def identity(self) -> dict[str, Any]:
        """What the data in the folder is made of."""
        given = [path for path in (self.source, self.queries, self.judgments) if path and path.exists()]
        paths = [one for path in given for one in (files_of(path) if path.is_dir() else [path])]
        states = sha256_json([[str(path.absolute()), *file_state(path)] for path in paths])
        made_of = {"documents": self.documents, "files": states, "model": self.model}
        return made_of | ({"llm": [*self.server[:2]]} if self.server else {})


class OnlyAnnounced(Exception):
    """A plan ends here: what would be sent to a language model is said, and nothing is sent."""


def prepare(request: Request, overrides: Sequence[str], plans: bool = False) -> str:
    """Write the recipe and the folder `data` unless they are there; returns what there is to say about them.

    Raises ValueError if the folder was made of something else, and for documents without any text;
    ConnectionError as `llm.ask` does; OnlyAnnounced instead of asking a language model if it only `plans`.
    """
    data, recipe_file = request.output / "data", request.output / RECIPE
    if about := read_json_object(data / ABOUT):
        if about["made of"] != request.identity():
            raise ValueError(
                f"{request.output} was made of other documents, queries, judgments or of another model than "
                "these; pass another --output, or remove the folder"
            )
        return str(about["text"])
    is_normalized = load_any_encoder(request.model).config.normalize
    queries = read_queries(
        request.queries, request.judgments, request.source, Recipe.expand_home(DEFAULT_CACHE)
    )
    reading, cuts = Reading(), not queries.judgments
    with whole_folder(data) as new:
        ids, are_long = _write_corpus(new, read_passages(request.documents, reading, cuts))
        if not ids:
            raise ValueError(f"{request.documents}: no document with a text\n{reading.as_text()}")
        keep_known(queries, ids)
        split(queries)
        supervision = queries.supervision()
        if supervision == "synthetic" and request.server:
            supervision = "written"
        judged = {name: {id: queries.judgments[id] for id in of} for name, of in queries.splits.items() if of}
        lines = [reading.as_text(), _describe(queries, judged, supervision)]
        log.info("\n".join(lines))
        held_out = (
            {name: judged[name] for name in ("dev", "test")} if judged.keys() >= {"dev", "test"} else {}
        )
        names = [*judged] if supervision == "judged" else [supervision, *(held_out or [COMPARED])]
        if not recipe_file.exists():
            encoder = encoder_settings(request.model)
            if not Path(request.model, RECIPE).is_file():  # the model of a run has a folder of its own
                encoder["model"] = request.model
            max_passages = MAX_PASSAGES if are_long and not cuts else None
            scale = 20 if is_normalized else 1
            write_whole(recipe_file, recipe_text(data, encoder, supervision, names, max_passages, scale))
        texts, splits = dict(queries.texts), judged
        if supervision != "judged":
            recipe = load_recipe(recipe_file, *overrides).recipe
            documents = Documents(new, recipe)
            if supervision == "unjudged":
                made: dict[str, str] = {}
                asked = {id: queries.texts[id] for id in queries.unjudged}
                firsts, agreed = documents.ranker.pseudo_judgments(asked)
                line = f"BM25 and the encoder find the same document first for {agreed:,} of {len(asked):,}"
            elif supervision == "written":
                made, firsts, line = _written(request, documents, lines, plans)
            else:
                made, firsts = synthetic(documents.passages())
                line = f"made of the documents: {len(made):,} titles and crops"
            if len(firsts) < LEAST_TRAIN:
                raise ValueError("\n".join([*lines, line, f"fewer than {LEAST_TRAIN} queries teach nothing"]))
            lines.append(line)
            texts |= made
            splits = {name: _stand_ins(name, firsts, bool(held_out)) for name in names} | held_out
        _write_lines(new / "queries.jsonl", ({"_id": id, "text": text} for id, text in texts.items()))
        (new / "qrels").mkdir()
        for name, qrels in splits.items():
            with open(new / "qrels" / f"{name}.tsv", "w", encoding="utf-8") as file:
                file.write("query-id\tcorpus-id\tscore\n")
                for query, grades in qrels.items():
                    file.writelines(f"{query}\t{document}\t{grade}\n" for document, grade in grades.items())
        write_json(new / ABOUT, {"made of": request.identity(), "text": "\n".join(lines)})
    return "\n".join(lines)


def _write_corpus(folder: Path, passages: Iterable[Passage]) -> tuple[set[str], bool]:
    """Write the documents; returns their ids, and whether many are longer than a passage."""
    ids: set[str] = set()
    num_long = 0

    def records() -> Iterable[dict[str, str]]:
        nonlocal num_long
        for passage in passages:
            if passage.id in ids:
                raise ValueError(
                    f"two documents have the id {passage.id!r}; expected an id for each (files of records "
                    "have their own); rename one"
                )
            ids.add(passage.id)
            num_long += len(split_words(passage.text)) > 2 * WORDS
            yield {"_id": passage.id, "title": passage.title, "text": passage.text}

    _write_lines(folder / "corpus.jsonl", records())
    return ids, num_long > LONG_SHARE * len(ids)


def _describe(queries: Queries, judged: Mapping[str, Qrels], supervision: str) -> str:
    held = ", ".join(f"{name} {len(of):,}" for name, of in judged.items()) or "none"
    counted = "".join(f"; {count:,} {what}" for what, count in queries.counts.items() if count)
    unused = "; those without judgments are not used" if supervision == "judged" and queries.unjudged else ""
    return (
        f"judged queries: {held}; without judgments: {len(queries.unjudged):,}{counted}\n"
        f"what teaches: {supervision} queries{unused}"
    )


class Documents:
    """The documents that were written, and the start's ranking of them."""

    def __init__(self, folder: Path, recipe: Recipe):
        settings = {"kind": "beir", "folder": str(folder), "splits": {}}
        self.collection, self.recipe = load_collection(settings, recipe.cache), recipe

    @cached_property
    def ranker(self) -> StartRanker:
        encoder = initial_encoder(self.recipe.encoder, self.recipe.seed, device_of(self.recipe.device))
        return StartRanker(encoder, self.collection, self.recipe)

    def passages(self) -> Iterator[Passage]:
        documents = self.collection.documents
        return (Passage(id, **documents[row]) for row, id in enumerate(documents.ids))


def _written(
    request: Request, documents: Documents, lines: Sequence[str], plans: bool
) -> tuple[dict[str, str], dict[str, str], str]:
    """The texts of questions by id, the document of each, and a line on them.

    Raises OnlyAnnounced before the first request if it only plans.
    """
    assert request.server is not None
    prompt = copy_prompt(PROMPT, request.output)
    passages = sorted(documents.passages(), key=lambda one: _hash(one.id))[:MOST_ASKED]
    announced = announcement(request.server, passages, prompt)
    if plans:
        raise OnlyAnnounced("\n".join([*lines, f"{announced}; edit {prompt}, if need be, before that"]))
    log.info("%s", announced)

    def rank(questions: list[str]) -> list[list[str]]:
        return documents.ranker.first(questions, ROUND_TRIP)

    found = write_questions(passages, request.server, prompt, request.output / "questions", rank)
    ids = {f"written-{number}": pair for number, pair in enumerate(found.kept, start=1)}
    line = (
        f"{len(found.kept):,} questions for {found.answered:,} of {found.asked:,} passages; left out: "
        f"{found.lost:,} that do not find their passage, {found.repeated:,} repeated, {found.garbage:,} "
        f"answers without one; spent: {found.requests:,} requests, {found.tokens:,} tokens"
    )
    return {id: text for id, (_, text) in ids.items()}, {id: one for id, (one, _) in ids.items()}, line


def _stand_ins(name: str, firsts: Mapping[str, str], is_judged: bool) -> Qrels:
    """Of the documents that stand for positives, those of a split: without judged queries, a few queries do
    not train, and rankings are compared on them."""
    compared = 0 if is_judged else min(MOST_COMPARED, len(firsts) // 2)
    order = sorted(firsts, key=_hash)
    chosen = order[:compared] if name == COMPARED else order[compared:]
    return {id: {firsts[id]: 1} for id in chosen}


def _hash(id: str) -> bytes:
    return hashlib.sha256(id.encode()).digest()


def _write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
