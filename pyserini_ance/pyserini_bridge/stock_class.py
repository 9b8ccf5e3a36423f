"""Choose the stock class of Pyserini that reproduces a checkpoint exactly, for each side, if there is one.

The rules follow Pyserini 2.3.0: `encode/_ance.py`, `encode/_auto.py`, `encode/_dpr.py`, and the functions
`init_encoder` and `init_query_encoder`. Tokenization is compared on some difficult records.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.dpr_export import is_dpr
from pyserini_ance.encoders.load_save import TOWERS
from pyserini_ance.encoders.tokenization import SideTokenization, TextTokenizer, Tokenization
from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS

# Capitals, accents, a final sigma (Python and tokenizers lower-case it differently), and more tokens than
# any limit. Not compared: [PAD] as a word of a text, which `dpr` treats as padding.
HARD_TEXTS = (
    "Capitals and ÜMLAUTS, Straße ΟΔΟΣ 東京 (x_y)  1,000.5!",
    "Retrieval with NEGATIVES mined anew. " * 200,
)
TITLE = "A Title"
ANCE_QUERY_TOKENS = 64  # in `AnceQueryEncoder.encode`
NO_LIMIT = 1 << 31  # transformers writes 1e30 for no limit


class StockTokens:
    """The tokenizer of stock `ance`, `auto` or `dpr`, compared with the checkpoint's own."""

    def __init__(self, stock: str, tokenization: Tokenization, folder: Path):
        from transformers import AutoTokenizer, DPRContextEncoderTokenizer, RobertaTokenizer

        self.stock, self.tokenization = stock, tokenization
        self.own_tokenizer = TextTokenizer(AutoTokenizer.from_pretrained(str(folder)), tokenization)
        # DPR's tokenizer of questions is the same under another name.
        classes: dict[str, Any] = {
            "ance": RobertaTokenizer,
            "auto": AutoTokenizer,
            "dpr": DPRContextEncoderTokenizer,
        }
        self.stock_tokenizer = classes[stock].from_pretrained(str(folder))

    @property
    def query_limit(self) -> int | None:
        """The length at which stock search truncates queries: for `auto`, the tokenizer's limit.

        `dpr` does not truncate queries; it is compared up to the checkpoint's limit.
        """
        if self.stock == "ance":
            return ANCE_QUERY_TOKENS
        if self.stock == "dpr":
            return self.tokenization.query.length_tokens
        limit: int = self.stock_tokenizer.model_max_length
        return limit if limit < NO_LIMIT else None

    @property
    def separator(self) -> str | None:
        """The separator token of the stock tokenizer."""
        token: str | None = self.stock_tokenizer.sep_token
        return token

    def difference(self, side: Side) -> str | None:
        """Why the two tokenizers give different ids for texts of a side; None if they do not."""
        if self.stock == "dpr" and not self.stock_tokenizer.do_lower_case:
            return "stock `dpr` tokenizes texts in its own way if the tokenizer keeps capitals"
        titled = "{title}" in self.tokenization.side(side).template
        records = _records(titled)
        pairs = zip(
            records, self._own_ids(side, records), self._stock_ids(side, records, titled), strict=True
        )
        differing = [record for record, own_ids, stock_ids in pairs if own_ids != stock_ids]
        if not differing:
            return None
        if titled and not any(record["title"] and record["text"] for record in differing):
            return (
                f"stock `{self.stock}` keeps the blank next to an empty title or text, "
                "which is a token for this tokenizer"
            )
        if self.tokenization.lowercase:
            return (
                f"this checkpoint lower-cases texts; stock `{self.stock}` relies on a tokenizer "
                "that does not do the same"
            )
        return f"the tokenizer of stock `{self.stock}` gives other ids for {differing[0]['text'][:40]!r}"

    def count_truncated(self, queries: Sequence[str]) -> int:
        """The number of queries that the checkpoint truncates and `dpr` does not."""
        whole = self.stock_tokenizer(list(queries), verbose=False)["input_ids"] if queries else []
        own = self._own_ids("query", [{"text": query} for query in queries])
        return sum(ids != whole_ids for ids, whole_ids in zip(own, whole, strict=True))

    def _own_ids(self, side: Side, records: list[dict[str, str]]) -> list[list[int]]:
        before, after, _ = self.own_tokenizer.specials
        length = self.tokenization.side(side).length_tokens - len(before) - len(after)
        return [[*before, *ids[:length], *after] for ids in self.own_tokenizer.ids(side, records)]

    def _stock_ids(self, side: Side, records: list[dict[str, str]], titled: bool) -> list[list[int]]:
        settings = self.tokenization.side(side)
        if titled:
            texts = [f"{record['title']} {record['text']}" for record in records]
        else:
            texts = [settings.template.replace("{text}", record["text"]) for record in records]
        limit = self.query_limit if side == "query" else settings.length_tokens
        return [
            self.stock_tokenizer(text, max_length=limit, truncation=limit is not None)["input_ids"]
            for text in texts
        ]


def _records(titled: bool) -> list[dict[str, str]]:
    full = [{"title": TITLE, "text": text} for text in HARD_TEXTS]
    return [*full, {"title": "", "text": HARD_TEXTS[0]}, {"title": TITLE, "text": ""}] if titled else full


# The stock class of each encoder kind; towers in DPR's format have the class `dpr`.
STOCK_CLASSES = {"roberta_ance": "ance", "transformer": "auto"}
ANCE_DIMENSION = 768
PAIR_FLAGS = {"auto": " (--add-sep)", "dpr": ""}
PREFIX_FLAGS: dict[Side, str] = {"query": "--query-prefix", "document": "--prefix"}
# Words in a path for which Pyserini passes further keywords, even if the class is given: constructors fail,
# ...
UNKNOWN_TO_MOST = ("contriever", "sentence-transformers", "clip", "dse")
FAILING_DOCUMENT_WORDS = {"ance": UNKNOWN_TO_MOST, "auto": ("clip", "dse"), "dpr": UNKNOWN_TO_MOST}
# ... or normalization is switched on. For queries, stock `ance` and `dpr` ignore all of them.
NORMALISING_QUERY_WORDS = ("clip", "dse")


@dataclass(frozen=True)
class StockChoice:
    """The values of `--encoder` and `--encoder-class` for searching and encoding, with their further flags.

    reasons: why a stock class does not reproduce the checkpoint; empty if one does for both sides.
    passages: the maximum number of passages of a document; no class of Pyserini splits documents.
    query_tokens: the length up to which the stock class reproduces queries; None for any length.
    """

    query_folder: Path
    document_folder: Path
    query_class: str
    document_class: str
    reasons: tuple[str, ...]
    flags: tuple[str, ...]
    document_flags: tuple[str, ...]
    passages: int
    query_tokens: int | None

    @property
    def reproduces_exactly(self) -> bool:
        """Whether Pyserini's stock search over the exported index gives the same ranking."""
        return self.query_class != ENCODER_CLASS

    def describe(self) -> list[str]:
        """One line for each side that a stock class reproduces, and one for each reason against one."""
        sides = {"queries": self.query_class, "documents": self.document_class}
        exact = [
            f"{side}: Pyserini's stock class `{name}` computes the same vectors"
            for side, name in sides.items()
            if name != ENCODER_CLASS
        ]
        if self.query_tokens is not None:
            exact[0] += f", up to {self.query_tokens} tokens: it does not truncate queries"
        if self.passages > 1:
            split = (
                f"documents: split into up to {self.passages} passages by `pyserini-ance encode`, "
                "but not by Pyserini's own encode"
            )
            exact = [*(line for line in exact if not line.startswith("documents")), split]
        return [*exact, *(f"{reason}; use the class `{ENCODER_CLASS}`" for reason in self.reasons)]


def stock_class(side_file: dict[str, Any], model_folder: Path, queries: Sequence[str] = ()) -> StockChoice:
    """Choose Pyserini's classes for a checkpoint.

    side_file: the settings of the checkpoint. model_folder: the path that Pyserini will get, because
    Pyserini reacts to words in it. queries: the queries of later searches, if known.
    """
    tokenization = Tokenization.model_validate(side_file["tokenization"])
    folders = [
        Path(model_folder) if side_file.get("tied", True) else Path(model_folder) / name
        for name in TOWERS.values()
    ]
    stock = "dpr" if all(map(is_dpr, folders)) else STOCK_CLASSES.get(side_file["kind"], "")
    model = [
        _against_model(side_file, stock, side, folder) for side, folder in zip(TOWERS, folders, strict=True)
    ]
    against_queries = model[0] or _against_queries(
        StockTokens(stock, tokenization, folders[0]),
        _on(side_file, "normalize", "query"),
        folders[0],
        queries,
    )
    against_documents = model[1] or _against_documents(
        StockTokens(stock, tokenization, folders[1]), folders[1]
    )
    query_class = ENCODER_CLASS if against_queries else stock
    document_class = ENCODER_CLASS if against_documents else stock
    return StockChoice(
        folders[0],
        folders[1],
        query_class,
        document_class,
        reasons=tuple(_by_side(model, against_queries, against_documents)),
        flags=auto_flags(side_file, "query") if query_class == "auto" else (),
        document_flags=_document_flags(document_class, side_file, tokenization.document),
        passages=tokenization.document.passages,
        query_tokens=tokenization.query.length_tokens if query_class == "dpr" else None,
    )


def _by_side(model: list[list[str]], queries: list[str], documents: list[str]) -> list[str]:
    """The reasons, each with its side, unless the same reasons hold for both sides."""
    if model[0] and model[0] == model[1]:
        return model[0]
    return [f"queries: {words}" for words in queries] + [f"documents: {words}" for words in documents]


def _on(side_file: dict[str, Any], switch: str, side: Side, default: bool = False) -> bool:
    value = side_file.get(switch, default)
    return value[side] if isinstance(value, dict) else value


def _against_model(side_file: dict[str, Any], stock: str, side: Side, folder: Path) -> list[str]:
    """Why the stock class computes other vectors from the same tokens."""
    if not stock:
        return [f"no stock class computes what encoder kind {side_file['kind']!r} does"]
    reasons = []
    if stock == "ance" and side_file["dimension"] != ANCE_DIMENSION:
        reasons.append(
            f"the head of stock `ance` gives {ANCE_DIMENSION} numbers, this one {side_file['dimension']}"
        )
    if stock == "ance" and _on(side_file, "normalize", side):
        reasons.append("stock `ance` does not normalize vectors, this checkpoint does (normalize)")
    if stock == "ance" and not _on(side_file, "layer_norm", side, default=True):
        reasons.append("stock `ance` applies its LayerNorm, this checkpoint does not (layer_norm)")
    if stock == "auto" and side_file.get("projection"):
        reasons.append(
            f"stock `auto` has no linear layer, this checkpoint projects to {side_file['projection']} "
            "numbers (projection)"
        )
    if stock == "ance" and not (folder / "pytorch_model.bin").exists():
        reasons.append(f"stock `ance` reads pytorch_model.bin, which {folder} lacks")
    return reasons


def _against_queries(tokens: StockTokens, normalize: bool, folder: Path, queries: Sequence[str]) -> list[str]:
    """Why the stock class gives other vectors of queries."""
    stock, settings = tokens.stock, tokens.tokenization.query
    reasons = []
    if not _can_build(stock, settings.template):
        reasons.append(f"stock `{stock}` cannot build the text of a query as {settings.template!r}")
    if settings.length_tokens != tokens.query_limit:
        limit = f"{tokens.query_limit} tokens" + (
            " (model_max_length of its tokenizer)" if stock == "auto" else ""
        )
        reasons.append(
            f"stock `{stock}` truncates queries at {limit}, this checkpoint at {settings.length_tokens}"
        )
    if stock == "auto" and not normalize and (words := _words_in(folder, NORMALISING_QUERY_WORDS)):
        reasons.append(f"Pyserini normalizes vectors because the path contains {words}: {folder.absolute()}")
    if not reasons and (difference := tokens.difference("query")):
        reasons.append(difference)
    if stock == "dpr" and not reasons and (longer := tokens.count_truncated(queries)):
        reasons.append(
            f"stock `dpr` does not truncate queries, and {longer:,} of {len(queries):,} are longer than "
            f"this checkpoint's {settings.length_tokens} tokens"
        )
    return reasons


def _against_documents(tokens: StockTokens, folder: Path) -> list[str]:
    """Why the stock class gives other vectors of documents."""
    stock, template = tokens.stock, tokens.tokenization.document.template
    reasons = []
    if stock in PAIR_FLAGS and template == f"{{title}} {tokens.separator} {{text}}":
        flag = PAIR_FLAGS[stock]
        reasons.append(
            f"stock `{stock}` encodes title and text as a pair{flag}, but truncates the longer of the two; "
            "this checkpoint truncates the end"
        )
    elif not _can_build(stock, template) and (stock == "dpr" or template != "{title} {text}"):
        reasons.append(f"stock `{stock}` cannot build the text of a document as {template!r}")
    if words := _words_in(folder, FAILING_DOCUMENT_WORDS[stock]):
        reasons.append(f"stock `{stock}` fails because the path contains {words}: {folder.absolute()}")
    if not reasons and (difference := tokens.difference("document")):
        reasons.append(difference)
    return reasons


def _can_build(stock: str, template: str) -> bool:
    """Whether the stock class builds this template: the text alone or, for `auto`, a prefix and one blank."""
    return template == "{text}" or (stock == "auto" and _prefix(template) is not None)


def _prefix(template: str) -> str | None:
    prefix = template.removesuffix(" {text}")
    return None if prefix in (template, "") or "{" in prefix or prefix != prefix.strip() else prefix


def _words_in(folder: Path, words: tuple[str, ...]) -> str:
    path = str(folder.absolute()).lower()
    return ", ".join(word for word in words if word in path)


def auto_flags(side_file: dict[str, Any], side: Side) -> tuple[str, ...]:
    """The flags with which stock `auto` computes a side's vectors, if it can."""
    prefix = _prefix(side_file["tokenization"][side]["template"])
    normalize = ("--l2-norm",) if _on(side_file, "normalize", side) else ()
    return ("--pooling", side_file["pooling"], *normalize, *((PREFIX_FLAGS[side], prefix) if prefix else ()))


def _document_flags(name: str, side_file: dict[str, Any], settings: SideTokenization) -> tuple[str, ...]:
    fields = re.findall(r"\{(\w+)\}", settings.template)
    sizes = ("--max-length", str(settings.length_tokens), "--dimension", str(side_file["dimension"]))
    return ("--fields", *fields, *sizes, *(auto_flags(side_file, "document") if name == "auto" else ()))
