"""Which stock class of Pyserini reproduces a checkpoint: decided for each checkpoint and side, exactly or not at all.

Read in Pyserini 2.3.0: `encode/_ance.py`, `encode/_auto.py`, `encode/_dpr.py`, and the two functions `init_encoder`, `init_query_encoder`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.checkpoint import TOWERS
from pyserini_ance.encoders.dpr import is_dpr
from pyserini_ance.encoders.tokenization import SideTokenization, Tokenization
from pyserini_ance.pyserini_bridge.register import ENCODER_CLASS
from pyserini_ance.pyserini_bridge.stock_tokens import StockTokens

STOCK_CLASSES = {"roberta_ance": "ance", "transformer": "auto"}  # of an encoder kind; towers in DPR's form have class `dpr`
ANCE_DIMENSION = 768
PAIR_FLAGS = {"auto": " (--add-sep)", "dpr": ""}
PREFIX_FLAGS: dict[Side, str] = {"query": "--query-prefix", "document": "--prefix"}
# Parts of a path at which Pyserini passes further keywords, although the class is named: a constructor fails, ...
UNKNOWN_TO_MOST = ("contriever", "sentence-transformers", "clip", "dse")
FAILING_DOCUMENT_WORDS = {"ance": UNKNOWN_TO_MOST, "auto": ("clip", "dse"), "dpr": UNKNOWN_TO_MOST}
# ... or normalisation is switched on. Stock `ance` and `dpr` ignore them all for queries.
NORMALISING_QUERY_WORDS = ("clip", "dse")


@dataclass(frozen=True)
class StockChoice:
    """Values of `--encoder` and `--encoder-class` for searching and for encoding, what speaks against a stock class, flags beside it.

    `passages`: in how many a document is read at most; no class of Pyserini cuts it. `query_tokens`: up to how many the stock class
    reproduces a query; None for any number.
    """

    query_folder: Path
    document_folder: Path
    query_class: str
    document_class: str
    why: tuple[str, ...]
    flags: tuple[str, ...]
    document_flags: tuple[str, ...]
    passages: int
    query_tokens: int | None

    @property
    def reproduces_exactly(self) -> bool:
        """Whether stock search over our index gives our ranking."""
        return self.query_class != ENCODER_CLASS

    def describe(self) -> list[str]:
        """A line for each side that a stock class reproduces, and one for each reason against."""
        sides = {"queries": self.query_class, "documents": self.document_class}
        exact = [f"{side}: Pyserini's stock class `{name}` encodes them exactly as here" for side, name in sides.items() if name != ENCODER_CLASS]
        if self.query_tokens is not None:
            exact[0] += f", up to {self.query_tokens} tokens: it cuts no query"
        if self.passages > 1:
            cut = f"documents: in up to {self.passages} passages, which `python -m pyserini_ance.encode` cuts and Pyserini's own encode does not"
            exact = [*(line for line in exact if not line.startswith("documents")), cut]
        return [*exact, *(f"{words}; hence our class `{ENCODER_CLASS}`" for words in self.why)]


def stock_class(side_file: dict[str, Any], model_folder: Path, asked: Sequence[str] = ()) -> StockChoice:
    """Weigh a checkpoint, `side_file` being its side file, under the path by which Pyserini will be given it.

    `asked`: the queries that it will be searched with, where they are known.
    """
    tokenization = Tokenization.model_validate(side_file["tokenization"])
    folders = [Path(model_folder) if side_file.get("tied", True) else Path(model_folder) / name for name in TOWERS.values()]
    stock = "dpr" if all(map(is_dpr, folders)) else STOCK_CLASSES.get(side_file["kind"])
    model = [_against_model(side_file, stock, side, folder) for side, folder in zip(TOWERS, folders, strict=True)]
    queries = model[0] or _against_queries(StockTokens(stock, tokenization, folders[0]), _on(side_file, "l2", "query"), folders[0], asked)
    documents = model[1] or _against_documents(StockTokens(stock, tokenization, folders[1]), folders[1])
    query_class, document_class = (ENCODER_CLASS if reasons else stock for reasons in (queries, documents))
    return StockChoice(
        *folders,
        query_class,
        document_class,
        why=tuple(_said(model, queries, documents)),
        flags=_auto_flags(query_class, side_file, "query", tokenization.query),
        document_flags=_document_flags(document_class, side_file, tokenization.document),
        passages=tokenization.document.passages,
        query_tokens=tokenization.query.length_tokens if query_class == "dpr" else None,
    )


def _said(model: list[list[str]], queries: list[str], documents: list[str]) -> list[str]:
    """Once what holds for both sides, else with the side that it is about."""
    if model[0] and model[0] == model[1]:
        return model[0]
    return [f"queries: {words}" for words in queries] + [f"documents: {words}" for words in documents]


def _on(side_file: dict[str, Any], switch: str, side: Side, default: bool = False) -> bool:
    value = side_file.get(switch, default)
    return value[side] if isinstance(value, dict) else value


def _against_model(side_file: dict[str, Any], stock: str | None, side: Side, folder: Path) -> list[str]:
    if stock is None:
        return [f"no stock class computes what encoder kind {side_file['kind']!r} does"]
    reasons = []
    if stock == "ance" and side_file["dimension"] != ANCE_DIMENSION:
        reasons.append(f"the head of stock `ance` gives {ANCE_DIMENSION} numbers, this one {side_file['dimension']}")
    if stock == "ance" and _on(side_file, "l2", side):
        reasons.append("stock `ance` does not normalise vectors, this checkpoint does (l2)")
    if stock == "ance" and not _on(side_file, "layer_norm", side, default=True):
        reasons.append("stock `ance` applies its LayerNorm, this checkpoint does not (layer_norm)")
    if stock == "auto" and side_file.get("projection"):
        reasons.append(f"stock `auto` has no linear layer, this checkpoint projects to {side_file['projection']} numbers (projection)")
    if stock == "ance" and not (folder / "pytorch_model.bin").exists():
        reasons.append(f"stock `ance` reads pytorch_model.bin, which {folder} lacks")
    return reasons


def _against_queries(tokens: StockTokens, l2: bool, folder: Path, asked: Sequence[str]) -> list[str]:
    stock, settings = tokens.stock, tokens.tokenization.query
    reasons = []
    if not _writes(stock, settings.template):
        reasons.append(f"stock `{stock}` cannot write a query as {settings.template!r}")
    if settings.length_tokens != tokens.query_cap:
        cap = f"{tokens.query_cap} tokens" + (" (model_max_length of its tokenizer)" if stock == "auto" else "")
        reasons.append(f"stock `{stock}` cuts queries at {cap}, this checkpoint at {settings.length_tokens}")
    if stock == "auto" and not l2 and (words := _words_in(folder, NORMALISING_QUERY_WORDS)):
        reasons.append(f"Pyserini normalises vectors since the path contains {words}: {folder.absolute()}")
    if not reasons and (difference := tokens.difference("query")):
        reasons.append(difference)
    if stock == "dpr" and not reasons and (longer := tokens.uncut(asked)):
        reasons.append(f"stock `dpr` cuts no query, and {longer:,} of {len(asked):,} are longer than is read here, {settings.length_tokens} tokens")
    return reasons


def _against_documents(tokens: StockTokens, folder: Path) -> list[str]:
    stock, template = tokens.stock, tokens.tokenization.document.template
    reasons = []
    if stock in PAIR_FLAGS and template == f"{{title}} {tokens.separator} {{text}}":
        flag = PAIR_FLAGS[stock]
        reasons.append(f"stock `{stock}` writes title and text as a pair{flag}, but shortens the longer of the two, here it is the end")
    elif not _writes(stock, template) and (stock == "dpr" or template != "{title} {text}"):
        reasons.append(f"stock `{stock}` cannot write a document as {template!r}")
    if words := _words_in(folder, FAILING_DOCUMENT_WORDS[stock]):
        reasons.append(f"stock `{stock}` fails since the path contains {words}: {folder.absolute()}")
    if not reasons and (difference := tokens.difference("document")):
        reasons.append(difference)
    return reasons


def _writes(stock: str, template: str) -> bool:
    """All classes can write the text alone; `auto` also writes a prefix and one blank before it."""
    return template == "{text}" or (stock == "auto" and _prefix(template) is not None)


def _prefix(template: str) -> str | None:
    prefix = template.removesuffix(" {text}")
    return None if prefix in (template, "") or "{" in prefix or prefix != prefix.strip() else prefix


def _words_in(folder: Path, words: tuple[str, ...]) -> str:
    path = str(folder.absolute()).lower()
    return ", ".join(word for word in words if word in path)


def _auto_flags(name: str, side_file: dict[str, Any], side: Side, settings: SideTokenization) -> tuple[str, ...]:
    if name != "auto":
        return ()
    prefix = _prefix(settings.template)
    normalise = ("--l2-norm",) if _on(side_file, "l2", side) else ()
    return ("--pooling", side_file["pooling"], *normalise, *((PREFIX_FLAGS[side], prefix) if prefix else ()))


def _document_flags(name: str, side_file: dict[str, Any], settings: SideTokenization) -> tuple[str, ...]:
    fields = re.findall(r"\{(\w+)\}", settings.template)
    sizes = ("--max-length", str(settings.length_tokens), "--dimension", str(side_file["dimension"]))
    return ("--fields", *fields, *sizes, *_auto_flags(name, side_file, "document", settings))
