"""The data of an adaptation in BEIR's layout: documents, queries, and for each split judgments, or what
stands for them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pyserini_ance.adapt.documents import ABOUT, TOKENS, WORDS, Reading, counted, files_of, read_passages
from pyserini_ance.adapt.queries import (
    LEAST_TEST,
    LEAST_TRAIN,
    Queries,
    extract_queries,
    hash_of,
    keep_known,
    read_queries,
    split,
)
from pyserini_ance.adapt.questions import PROMPT_FILE, PROMPTS, copy_prompt, texts_to_send, write_questions
from pyserini_ance.adapt.ranking import StartRanker
from pyserini_ance.adapt.recipe_file import COMPARED, checked_text, recipe_text
from pyserini_ance.data.collection_files import write_judgments, write_lines
from pyserini_ance.data.formats.format import Format
from pyserini_ance.data.formats.lines import names_of_file
from pyserini_ance.data.texts import text_key
from pyserini_ance.data.trec import Qrels
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.llm import Server, announcement
from pyserini_ance.pipeline.mining import read_data
from pyserini_ance.pipeline.preparation import recipe_data
from pyserini_ance.recipe.models import Bm25, cache_folder
from pyserini_ance.runs.any_encoder import encoder_settings
from pyserini_ance.runs.rundir import RECIPE, RunDir, load_recipe
from pyserini_ance.storage.files import copy_whole, read_json_object, sha256_json, write_json, write_whole
from pyserini_ance.storage.publish import whole_folder

MOST_COMPARED = 100
MAX_PASSAGES = 4  # of a judged document that is too long for one
LONG_SHARE = 0.1  # of judged documents that do not fit one passage, from which on they are read as several
MOST_ASKED = 5_000  # passages that a language model reads
PROMPT = "any-question"  # of the folder prompts
KEPT = {"ignore_identical_ids", "instruction"}  # of the `data:` section of a recipe
SETTINGS = "settings (KEY=VALUE) of the encoder or BM25"
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

    @cached_property
    def format(self) -> Format | None:
        """Of a YAML file with the `data:` section of a recipe."""
        return read_data(self.source) if self.source.suffix in (".yaml", ".yml") else None

    @property
    def others(self) -> set[Path]:
        """Files and folders that are no documents, wherever they are."""
        return {path.resolve() for path in (self.output, self.queries, self.judgments) if path}

    def identity(self) -> dict[str, Any]:
        """What the data in the folder is made of."""
        documents = [*files_of(self.source, self.others)] if self.source.is_dir() else [self.source]
        if data := self.format:
            # Packages that are installed again have other times.
            for _, path in [] if data.kind == "docstrings" else data.files():
                documents += files_of(path, self.others) if path.is_dir() else names_of_file(path)
        named = str(self.source.resolve()) if self.source.exists() else self.documents
        model = str(Path(self.model).resolve()) if Path(self.model).is_dir() else self.model
        made_of: dict[str, Any] = {"documents": named, "model": model}
        files: dict[str, Sequence[Path | None]]
        files = {"files of documents": documents, "queries": [self.queries], "judgments": [self.judgments]}
        for name, paths in files.items():
            some = [path for path in paths if path and path.is_file()]
            states = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in some]
            made_of[name] = sha256_json(states)
        if self.server:
            prompt = self.output / PROMPT_FILE
            asked = (prompt if prompt.exists() else PROMPTS / f"{PROMPT}.txt").read_bytes().hex()
            made_of |= {"llm": [*self.server[:2]], "budget": [*self.server[2:]], "prompt": sha256_json(asked)}
        return made_of


class OnlyAnnounced(Exception):
    """A plan ends here: what would be sent to a language model is said, and nothing is sent."""


def prepare(request: Request, overrides: Sequence[str], plans: bool = False) -> str:
    """Write the recipe and the folder `data` unless they are there; returns what there is to say about them.

    Raises ValueError if the folder was made of something else, FileExistsError if adapt did not make it,
    ValueError for documents without any text; ConnectionError as `llm.ask` does; OnlyAnnounced instead of
    asking a language model if it only `plans`.
    """
    output = request.output
    data, recipe_file = output / "data", output / RECIPE
    made_of, cure = request.identity(), "pass another --output"
    if (answers := output / "questions").exists():
        cure += f", and copy {answers} into it to keep the answers"
    if about := read_json_object(data / ABOUT):
        made_of[SETTINGS] = _settings(data / RECIPE, overrides)
        before = {SETTINGS: made_of[SETTINGS], **about["made of"]}
        if changed := [name for name in {**before, **made_of} if before.get(name) != made_of.get(name)]:
            raise ValueError(f"{output} was made with other {', '.join(changed)}; {cure}")
        log.info("%s: continues with the data that is there", output)
    elif {path.name for path in output.glob("[!.]*")} - {PROMPT_FILE, "questions", "run"}:
        raise FileExistsError(f"{output} is no adaptation: it lacks {data / ABOUT}; pass another --output")
    else:
        with whole_folder(data) as new:
            text = _write_data(request, data, new, overrides, plans)
            made_of[SETTINGS] = _settings(new / RECIPE, overrides)
            write_json(new / ABOUT, about := {"made of": made_of, "text": text})
    if not recipe_file.exists():
        copy_whole(data / RECIPE, recipe_file)
    return str(about["text"])


def _settings(recipe_file: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The settings that the data depends on: the scale of all losses on whether vectors are normalised,
    documents that stand for judgments on the rankings of the encoder and BM25, too."""
    # Others may be of an edited recipe.yaml.
    ours = ("encoder", "bm25.k1", "bm25.b=", "bm25.index", "bm25=", "data.ignore_identical_ids")
    recipe = load_recipe(recipe_file, *[one for one in overrides if one.startswith(ours)])
    if recipe.train_name == "train":
        return recipe.encoder.model_dump(mode="json", include={"model", "normalize"})
    settings = recipe.encoder.model_dump(mode="json", exclude={"dropout"}, exclude_defaults=True)
    settings |= recipe.data.model_dump(include={"ignore_identical_ids"}, exclude_defaults=True)
    return {**settings, "bm25": (recipe.bm25 or Bm25()).model_dump(include={"k1", "b", "index"})}


def _write_data(request: Request, data: Path, new: Path, overrides: Sequence[str], plans: bool) -> str:
    """Write documents, queries, judgments and the recipe into `new`, which becomes `data`."""
    encoder, is_local = encoder_settings(request.model), Path(request.model).is_dir()
    encoder["model"] = str(Path(encoder["model"]).absolute()) if is_local else request.model
    section = {"kind": "beir", "folder": str(data.absolute())}
    section |= request.format.model_dump(include=KEPT, exclude_defaults=True) if request.format else {}
    write_whole(new / RECIPE, checked_text(section, encoder))
    recipe = load_recipe(new / RECIPE, *overrides)
    scale = 20 if initial_encoder(recipe.encoder, recipe.seed).towers.documents.normalizes else 1
    queries = read_queries(request.queries, request.judgments, request.source, cache_folder())
    reading, cuts = Reading(), not queries.judgments
    passages = read_passages(request.documents, reading, cuts, request.others)
    corpus = ({"_id": id, "title": title, "text": text} for id, title, text in passages)
    write_lines(new / "corpus.jsonl", corpus)
    if not reading.titles:
        raise ValueError(f"{request.documents}: no document with a text\n{reading.as_text()}")
    keep_known(queries, reading.titles)
    split(queries)
    supervision = queries.supervision()
    if supervision == "extracted" and request.server:
        supervision = "generated"
    judged = {name: {id: queries.judgments[id] for id in of} for name, of in queries.splits.items() if of}
    whole = [] if cuts else reading.words
    num_long = sum(words > WORDS for words in whole)
    max_passages = MAX_PASSAGES if num_long > LONG_SHARE * len(whole) else None
    held_out = {name: judged[name] for name in ("dev", "test")} if judged.keys() >= {"dev", "test"} else {}
    names = [*judged] if supervision == "judged" else [supervision, *(held_out or [COMPARED])]
    write_whole(new / RECIPE, recipe_text(section, encoder, supervision, names, max_passages, scale))
    recipe = load_recipe(new / RECIPE, *overrides)
    recipe_data(recipe)  # checks the names of splits
    read = recipe.encoder.tokenization.document
    num_read = read.length_tokens * read.passages * WORDS // TOKENS
    lines = [reading.as_text(), _describe(queries, judged, supervision, request)]
    if unread := sum(words > num_read for words in whole):
        lines.append(f"{counted(unread, 'documents')}: the encoder reads about {num_read} words of each")
    log.info("\n".join(lines))
    texts, splits = dict(queries.texts), judged
    if supervision != "judged":
        ranker = StartRanker(new, recipe, RunDir(request.output / "run").scratch)
        made, firsts, line = _pseudo_positives(supervision, queries, request, ranker, lines, plans)
        texts |= made
        order = sorted(firsts, key=hash_of)
        parts = {supervision: order}
        if not held_out:
            num_compared = min(MOST_COMPARED, len(order) // 2)
            parts = {supervision: order[num_compared:], COMPARED: order[:num_compared]}
            line += f"; {num_compared:,} of these do not train: rankings are compared on them"
        lines.append(line)
        splits = {name: {id: {firsts[id]: 1} for id in ids} for name, ids in parts.items()} | held_out
    asked = ({"_id": id, "text": text.replace("\0", " ")} for id, text in texts.items())
    write_lines(new / "queries.jsonl", asked)
    write_judgments(new, splits)
    return "\n".join(lines)


def _describe(queries: Queries, judged: Mapping[str, Qrels], supervision: str, request: Request) -> str:
    held = ", ".join(f"{name} {len(of):,}" for name, of in judged.items()) or "none"
    others = "".join(f"; {counted(count, what)}" for what, count in queries.counts.items() if count)
    unused = "; those without judgments do not" if queries.unjudged and supervision != "unjudged" else ""
    unused += f" (fewer than {LEAST_TRAIN})" if unused and supervision != "judged" else ""
    unused += "; the language model is not asked" if request.server and supervision != "generated" else ""
    num_test = len(judged.get("test", ()))
    tested = counted(num_test, "test queries")
    more = -(-3 * (LEAST_TEST - num_test) // 2)  # of fewer than about 100, two of three are for the test
    cure = "add some to that split, or leave it out" if queries.has_test else f"judge about {more} more"
    too_few = f"\n{tested}: too few for a verdict ({LEAST_TEST}); {cure}"
    return (
        f"judged queries: {held}; without judgments: {len(queries.unjudged):,}{others}\n"
        f"what teaches: {supervision} queries{unused}{too_few if more > 0 else ''}"
    )


def _pseudo_positives(
    supervision: str, queries: Queries, request: Request, ranker: StartRanker, lines: list[str], plans: bool
) -> tuple[dict[str, str], dict[str, str], str]:
    """The texts of queries that are made, the document that stands for each query's positive, and a line on
    them.

    No made query has the text of a held-out one. Raises ValueError if too few are left; OnlyAnnounced before
    the first request to a language model if it only plans.
    """
    made: dict[str, str] = {}
    if supervision == "unjudged":
        asked = {id: queries.texts[id] for id in queries.unjudged}
        firsts, agreed = ranker.pseudo_judgments(asked)
        line = f"BM25 and the encoder find the same document first for {agreed:,} of {len(asked):,}"
    elif supervision == "generated":
        made, firsts, line = _generated(request, ranker, lines, plans)
    else:
        made, firsts = extract_queries(ranker.passages())
        line = f"made of the documents: {len(made):,} titles and crops"
    held_out = queries.held_out
    known = {id for id, text in made.items() if text_key(text) in held_out}
    firsts = {id: document for id, document in firsts.items() if id not in known}
    if known:
        line += f"; {len(known):,} with the text of a held-out query left out"
    if len(firsts) < LEAST_TRAIN:
        raise ValueError("\n".join([*lines, line, f"fewer than {LEAST_TRAIN} queries teach nothing"]))
    return made, firsts, line


def _generated(
    request: Request, ranker: StartRanker, lines: Sequence[str], plans: bool
) -> tuple[dict[str, str], dict[str, str], str]:
    """The texts of questions by id, the document of each, and a line on them. Raises OnlyAnnounced before the
    first request if it only plans."""
    assert request.server is not None
    prompt = copy_prompt(PROMPT, request.output)
    passages = sorted(ranker.passages(), key=lambda one: hash_of(one.id))[:MOST_ASKED]
    if plans:
        announced = announcement(request.server, texts_to_send(passages, prompt), "passages")
        raise OnlyAnnounced("\n".join([*lines, f"{announced}; edit {prompt}, if need be, before that"]))
    rank = partial(ranker.first, k=ROUND_TRIP)
    found = write_questions(passages, request.server, prompt, request.output / "questions", rank)
    ids = {f"generated-{number}": pair for number, pair in enumerate(found.kept, start=1)}
    answers, asked = found.answers, len(passages)
    line = (
        f"{counted(len(found.kept), 'questions')} for {asked - answers.texts.count(None):,} of "
        f"{counted(asked, 'passages')}; left out: {found.lost:,} whose passage is not among the first "
        f"{ROUND_TRIP}, {found.repeated:,} repeated, {counted(found.garbage, 'answers without one')}, "
        f"{counted(answers.failed, 'requests without an answer')}; spent: "
        f"{counted(answers.requests, 'requests')}, {counted(answers.tokens, 'tokens')}"
    )
    return {id: text for id, (_, text) in ids.items()}, {id: one for id, (one, _) in ids.items()}, line
