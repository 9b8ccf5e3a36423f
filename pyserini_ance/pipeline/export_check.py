"""Proof of an export: from its folder, other libraries compute the vectors of the checkpoint."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pyserini_ance.data.collection import PLURALS, SIDES, Side, Texts
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.encoders.config import at, tower_folder
from pyserini_ance.encoders.dpr import is_dpr
from pyserini_ance.encoders.load_save import load_unmerged
from pyserini_ance.encoders.tokenization import SideTokenization, fill_template, stripped
from pyserini_ance.encoders.weights import quiet_transformers
from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS
from pyserini_ance.pyserini_bridge.export import encode_by_stock, stock_class
from pyserini_ance.recipe.components import SettingError

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
    fields = {name: f"A {name}" for name in re.findall(r"\{(\w+)\}", settings.template)}
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
        quiet_transformers()
        try:
            with torch.no_grad(), warnings.catch_warnings(action="ignore"):
                differences = np.linalg.norm(encode(side, records) - expected, axis=1)
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
        model = cache(lambda: SentenceTransformer(str(folder), device="cpu"))

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
        if pool is None or more or is_dpr(tower_folder(folder, "query")):
            return None
        load = cache(lambda tower: [each.from_pretrained(tower) for each in (AutoTokenizer, AutoModel)])

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
        commands are those of a stock class if it computes the same vectors, else of ours."""
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
            if not difference.is_small:
                stock = stock._replace(name=ENCODER_CLASS, settings={})
            exported[PLURALS[side]] = stock.flags(side)
        notes = [f"{name}: {difference}" for name, difference in found.items() if difference]
        if unread := self.config.unread_by_sentence_transformers:
            unread = f"encoder.tokenization.{unread}"
            notes.append(f"{SENTENCE_TRANSFORMERS} takes whole texts, and does not know {unread}")
        differences = {name: one and one._asdict() for name, one in found.items()}
        return {**exported, "differences": differences, "notes": notes}
