"""The export of a run: the model with the proof that, from its folder, other libraries compute the vectors of
the checkpoint; the index, and the command that searches with them."""

import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pyserini_ance.data.collection import PLURALS, SIDES, Side, Texts
from pyserini_ance.data.passages import passage_ids
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.encoders.adapters import adapters_of
from pyserini_ance.encoders.ance import write_ance
from pyserini_ance.encoders.config import TOWERS, at, tower_folder
from pyserini_ance.encoders.dpr import is_dpr, to_dpr
from pyserini_ance.encoders.hub import resolve_model
from pyserini_ance.encoders.load_save import load_encoder, load_unmerged, save_as_peft, save_encoder
from pyserini_ance.encoders.tokenization import SideTokenization, fill_template, stripped
from pyserini_ance.encoders.weights import quiet_loading
from pyserini_ance.evaluation.tables import BM25
from pyserini_ance.pipeline.final_evaluator import FinalEvaluator
from pyserini_ance.pipeline.first_pass import feedback, first_pass_encoder
from pyserini_ance.pipeline.initial_weights import INITIAL
from pyserini_ance.pyserini_bridge import vector_files
from pyserini_ance.pyserini_bridge.bm25 import index_documents
from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS
from pyserini_ance.pyserini_bridge.export import encode_by_stock, search_command, stock_class, write_topics
from pyserini_ance.recipe.components import SettingError, absolute
from pyserini_ance.runs.checkpoint import Checkpoint, document_weights_of
from pyserini_ance.storage.files import copy_whole, utf8_path
from pyserini_ance.storage.publish import whole_folder

TEXTS = 32  # of each side
BOUND = 1e-4  # of a vector's length
SENTENCE_TRANSFORMERS = "sentence-transformers"
# A final sigma, which Python and tokenizers lower-case differently; capitals, accents and signs; a sentence
# of 6 tokens or more, which is repeated beyond the limit of tokens, if that is below 1,000.
HARD_TEXTS = ("ΟΔΟΣ", "Capitals and ÜMLAUTS", "Straße ΟΔΟΣ 東京", "(x_y)  1,000.5!")
REPEATED_TEXT = "Retrieval with NEGATIVES mined anew. "

Record = Mapping[str, str]
Encode = Callable[[Side, list[Record]], np.ndarray]


class Difference(NamedTuple):
    """The largest difference between two vectors of a text, as a share of the vector's length."""

    share: float
    side: Side
    text: str
    error: str = ""  # instead of vectors

    @property
    def is_small(self) -> bool:
        return self.share <= BOUND

    def __str__(self) -> str:
        if self.is_small:
            return f"the same vectors, to {self.share:.0e} of their length"
        where = f"{self.side} {self.text[:80]!r}"
        return self.error or f"vectors that differ by {self.share:.1e} of their length ({where})"

    def check(self, folder: Path) -> None:
        """Raise SettingError if sentence-transformers computes other vectors from a folder."""
        if not self.is_small:
            raise SettingError(
                f"the export is wrong: {SENTENCE_TRANSFORMERS}, from {folder}: {self}; expected at most "
                f"{BOUND:.0e}. Only the class `{ENCODER_CLASS}` reads it as training does: do not "
                "publish it, and train another `encoder:`"
            )


def some_records(data: PreparedData, splits: Sequence[str]) -> dict[Side, list[Record]]:
    """Up to `TEXTS` documents and queries of each split, from all of it, and its longest query."""

    def some(texts: Texts, *more: int) -> list[Record]:
        rows = {*np.linspace(0, len(texts) - 1, TEXTS).astype(int).tolist(), *more}
        return [stripped(texts[row]) for row in sorted(rows)]

    records: dict[Side, list[Record]] = {"query": [], "document": some(data.collection.documents)}
    for split in splits:
        longest = int(np.diff(data.queries[split].offsets).argmax())
        records["query"] += some(data.collection.split(split).queries, longest)
    return records


def hard_records(settings: SideTokenization) -> list[Record]:
    """Texts, and pairs of title and text, that libraries may read differently; without titles, the last is
    longer than the limit."""
    long = (REPEATED_TEXT * min(settings.length_tokens // 5 + 1, 200)).strip()
    fields = {name: f"A {name}" for name in settings.fields}
    pairs = [(fields.get("title", ""), text) for text in (*HARD_TEXTS, long)]
    if "title" in fields:  # the longer of a pair is truncated
        pairs += [("", HARD_TEXTS[1]), (long, HARD_TEXTS[1]), ("A", ""), (long, long)]
    return [{**fields, "title": title, "text": text} for title, text in pairs]


class Proof:
    """A checkpoint's vectors of texts of the run and hard ones, as trained: adapters are not merged. They are
    compared with those of other libraries."""

    def __init__(self, trained: Path, records: Mapping[Side, Sequence[Record]]):
        encoder = load_unmerged(trained)
        self.config = encoder.config
        hard = {side: hard_records(self.config.tokenization.side(side)) for side in SIDES}
        self.records = {side: [*records[side], *hard[side]] for side in SIDES}
        self.vectors = {side: encoder.encode(self.records[side], side) for side in SIDES}
        # sentence-transformers cuts normalized vectors last, and compares them by cosine.
        cuts = bool(self.config.truncate_dim)
        self.is_scaled = {side: cuts and encoder.towers.tower(side).normalizes for side in SIDES}

    def difference(self, side: Side, encode: Encode, without: Sequence[Record] = ()) -> Difference:
        """The largest difference from the vectors (N, D) of `encode`, or the error that it raises."""
        rows = [row for row, record in enumerate(self.records[side]) if record not in without]
        records, expected = [self.records[side][row] for row in rows], self.vectors[side][rows]
        quiet_loading()
        try:
            with torch.no_grad(), warnings.catch_warnings(action="ignore"):
                vectors = encode(side, records)
                if vectors.shape != expected.shape:
                    raise ValueError(f"vectors of {vectors.shape[1]} numbers, not {expected.shape[1]}")
                differences = np.linalg.norm(vectors - expected, axis=1)
        except Exception as error:  # of whatever the folder makes a library do
            return Difference(1.0, side, "", f"{type(error).__name__}: {error}".partition("\n")[0])
        shares = np.nan_to_num(differences / np.maximum(np.linalg.norm(expected, axis=1), 1e-9), nan=1.0)
        worst = int(shares.argmax())
        return Difference(float(shares[worst]), side, " ".join(records[worst].values()).strip())

    def by_sentence_transformers(self, folder: Path) -> Difference | None:
        """None: sentence-transformers does not make the encoder's texts of records."""
        from sentence_transformers import SentenceTransformer

        settings = self.config.tokenization
        if self.config.unread_by_sentence_transformers:
            return None

        @cache
        def model() -> SentenceTransformer:
            with utf8_path(folder) as path:
                return SentenceTransformer(str(path), device="cpu")

        def encode(side: Side, records: list[Record]) -> Any:
            template = settings.side(side).template.removeprefix(settings.prompts()[side])
            texts = [fill_template(template, record) for record in records]
            scaled = {"normalize_embeddings": self.is_scaled[side]}
            return getattr(model(), f"encode_{side}")(texts, show_progress_bar=False, **scaled)

        # Python lower-cases a final sigma otherwise than tokenizers.
        both = [*self.records["query"], *self.records["document"]]
        sigmas = [one for one in both if settings.lowercase and "Σ" in "".join(one.values())]
        return max(self.difference(side, encode, sigmas) for side in SIDES)

    def by_transformers(self, folder: Path) -> Difference | None:
        """By AutoModel and AutoTokenizer. None: the encoder is more than a Transformer and its pooling."""
        from transformers import AutoModel, AutoTokenizer

        config = self.config
        pools = {"cls": lambda states: states[0], "mean": lambda states: states.mean(0)}
        pool = {**pools, "lasttoken": lambda states: states[-1]}.get(config.pooling or "")
        more = config.projection or config.layer_norm or config.truncate_dim
        first_documents = config.tokenization.query.first_documents
        if pool is None or more or first_documents or is_dpr(tower_folder(folder, "query")):
            return None

        @cache
        def load(tower: Path) -> list[Any]:
            with utf8_path(tower) as path:
                return [each.from_pretrained(path) for each in (AutoTokenizer, AutoModel)]

        def encode(side: Side, records: list[Record]) -> np.ndarray:
            tokenizer, model = load(tower_folder(folder, side))
            cut = {"max_length": config.tokenization.side(side).length_tokens, "truncation": True}
            texts = [config.tokenization.text(side, record) for record in records]
            tokens = [tokenizer(text, return_tensors="pt", **cut) for text in texts]
            vectors = torch.stack([pool(model(**each).last_hidden_state[0]) for each in tokens])
            return (torch.nn.functional.normalize(vectors) if at(side, config.normalize) else vectors).numpy()

        return max(self.difference(side, encode) for side in SIDES)

    def of_export(self, folder: Path) -> dict[str, Any]:
        """Compare an exported encoder in all libraries; what `measures.json` says. The flags of Pyserini's
        commands are a stock class's if its vectors are the same and its prefix is one line, else ours."""
        tokenization, exported = self.config.tokenization, dict[str, Any]()
        found: dict[str, Difference | None] = {
            SENTENCE_TRANSFORMERS: self.by_sentence_transformers(folder),
            "transformers": self.by_transformers(folder),
        }
        for side in SIDES:
            stock, without = stock_class(folder, side), list[Record]()
            name = f"Pyserini's class {stock.name}, {PLURALS[side]}"
            if (stock.name, side) == ("dpr", "query"):  # it truncates none, and the run may have none so long
                name += f" of up to {tokenization.query.length_tokens} tokens"
                without = self.records[side][-1:]
            if side == "document" and tokenization.document.passages > 1:
                name += " of one passage (`pyserini-ance encode` splits longer ones)"
            found[name] = difference = self.difference(side, partial(encode_by_stock, stock), without)
            if not difference.is_small or f"{stock.settings.get('prefix')}.".splitlines()[1:]:
                stock = stock._replace(name=ENCODER_CLASS, settings={})
            exported[PLURALS[side]] = stock.flags(side)
        notes = [f"{name}: {difference}" for name, difference in found.items() if difference]
        if unread := self.config.unread_by_sentence_transformers:
            unread = f"encoder.tokenization.{unread}"
            notes.append(f"{SENTENCE_TRANSFORMERS} takes whole texts, and does not know {unread}")
        differences = {name: one and one._asdict() for name, one in found.items()}
        return {**exported, "differences": differences, "notes": notes}


def check_form(untrained: Path, data: PreparedData, splits: Sequence[str]) -> None:
    """Raise SettingError if sentence-transformers would not compute an export's vectors as training does."""
    if found := Proof(untrained, some_records(data, splits)).by_sentence_transformers(untrained):
        found.check(untrained)


def export(
    row: str, checkpoint: Checkpoint, evaluator: FinalEvaluator, seconds: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write `model/`, `index/`, and the final run and the topics of each test split.

    Returns the record of `row`, with `seconds` added, and how to search with the model. The measured rankings
    were searched over exactly the vectors that the index holds. Called by all processes; the main process
    writes.
    """
    record, snapshot = evaluator.evaluate(row, checkpoint, **seconds)
    vectors = snapshot.document_vectors
    run, data, test = evaluator.run, evaluator.data, evaluator.recipe.final_evaluation

    def write() -> dict[str, Any]:
        proof = Proof(checkpoint.encoder, some_records(data, test.split))
        exported = _write_model(checkpoint.encoder, run.model, proof)
        base = absolute(evaluator.recipe).encoder.model
        _write_adapter(checkpoint.encoder, run.adapter, base, proof, exported)
        # Of the exported model, in which adapters are merged.
        about = {"encoder": "../model", "document_weights": document_weights_of(run.model)}
        about |= {"weights": checkpoint.weights, "precision": snapshot.precision}
        shutil.rmtree(run.index, ignore_errors=True)
        ids = passage_ids(data.collection.documents.ids, data.passages)
        vector_files.write_index(vectors, ids, run.index, about)
        max_passages = data.passages.max_passages if data.passages else 1
        without_query = data.collection.ignore_identical_ids
        if without_query and max_passages > 1:
            exported["notes"].append(
                "Pyserini's --remove-query compares the ids of passages: it does not remove the query's own"
            )
        if evaluator.recipe.first_pass is not None:
            exported["queries"] = _write_first_pass(evaluator, exported["queries"])
        commands = []
        for split in test.split:
            queries = data.collection.split(split).queries
            copy_whole(run.ranking(row, split), run.final_run(split))
            pairs = list(zip(queries.ids, queries.columns["text"], strict=True))
            topics = write_topics(pairs, run.folder, split)
            name = "run.pyserini.txt" if len(test.split) == 1 else f"run.pyserini.{split}.txt"
            searched = topics, run.index, run.folder / name, exported["queries"]
            commands.append(search_command(*searched, test.hits, max_passages, without_query))
        return {**exported, "command": "\n".join(commands), "folder": str(run.folder)}

    return record, evaluator.world.on_main(write)


def _write_model(encoder: Path, folder: Path, proof: Proof) -> dict[str, Any]:
    """Copy an encoder; return what `Proof.of_export` does.

    A pair of towers whose texts sentence-transformers does not make has DPR's form if stock `dpr` then gives
    the queries' vectors.
    """
    for has_dpr_form in (True, False):
        shutil.rmtree(folder, ignore_errors=True)
        with whole_folder(folder) as temporary:
            if adapters_of(encoder):  # merged
                save_encoder(load_encoder(encoder), temporary)
            else:
                shutil.copytree(encoder, temporary, dirs_exist_ok=True)
            # One tower for both sides has the file of queries, which come last.
            for tower, side in {tower_folder(temporary, side): side for side in reversed(SIDES)}.items():
                write_ance(tower, side)
            if has_dpr_form and proof.config.unread_by_sentence_transformers:
                to_dpr(temporary)
        exported = proof.of_export(folder)
        if "dpr" in exported["queries"] or not is_dpr(folder / TOWERS["query"]):
            break
    return exported


def _write_first_pass(evaluator: FinalEvaluator, flags: list[str]) -> list[str]:
    """Write the encoder of the first pass, and into the cache a Lucene index of the documents' feedback.

    Returns the flags of Pyserini's ANCE-PRF, with its own class if this computes the vectors of both
    encoders. flags: those of an encoder that reads queries with their first documents.
    """
    recipe, run, data = evaluator.recipe, evaluator.run, evaluator.data
    assert recipe.first_pass is not None
    start = next(iter(recipe.external_starts), INITIAL.stage)
    records = some_records(data, recipe.final_evaluation.split)
    with tempfile.TemporaryDirectory(prefix="pyserini_ance.") as temporary:
        encoder = first_pass_encoder(recipe, Checkpoint.open(run.checkpoint(start, 0), verify=False).encoder)
        save_encoder(encoder, Path(temporary))
        first = _write_model(Path(temporary), run.first_pass, Proof(Path(temporary), records))["queries"]
    documents, words = data.collection.documents, recipe.first_pass.words
    lucene = recipe.cache / BM25 / f"{documents.digest}-raw{words or ''}"
    if not lucene.exists():
        with suppress(FileExistsError), whole_folder(lucene) as folder:  # another run may have made it
            index_documents(feedback(recipe.first_pass, documents), folder, ["-storeRaw"], len(documents))
    name = "ance" if "ance" in flags and "ance" in first else ENCODER_CLASS
    given = {"--encoder": first[1], "--encoder-class": name, "--prf-method": "ance-prf"}
    given["--prf-depth"] = str(len(recipe.encoder.tokenization.query.first_documents))
    given |= {"--ance-prf-encoder": flags[1], "--sparse-index": str(lucene)}
    return [*chain.from_iterable(given.items())]


def _write_adapter(encoder: Path, folder: Path, base: str, proof: Proof, exported: dict[str, Any]) -> None:
    """Write adapters of one tower in peft's form, if sentence-transformers then computes the vectors as
    trained, with the recipe's model `base`; `exported` says so."""
    shutil.rmtree(folder, ignore_errors=True)
    if adapters_of(encoder) is None or not proof.config.tied:
        return
    with whole_folder(folder) as temporary:
        save_as_peft(encoder, temporary, resolve_model(base))
    difference = proof.by_sentence_transformers(folder)
    if difference is None or not difference.is_small:  # the base is another model than the recipe's
        shutil.rmtree(folder)
        return
    name = f"sentence-transformers, from {folder.name}/"
    exported["differences"][name] = difference._asdict()
    exported["notes"].append(f"{name}: {difference}")
