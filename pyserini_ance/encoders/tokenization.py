"""Tokenisation as a property of a checkpoint: how a record becomes one text, and a text becomes ids."""

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import PositiveInt, field_validator, model_validator

from pyserini_ance.data.collection import Side
from pyserini_ance.data.token_store import Specials
from pyserini_ance.recipe.parts import Settings
from pyserini_ance.storage.files import sha256_json

SPECIAL = re.compile(r"(\[(?:CLS|SEP|PAD|UNK)\])")


class SideTokenization(Settings):
    """One side's cap (special tokens included) and its template over the record's fields, such as `{title} {text}`."""

    length_tokens: PositiveInt
    template: str

    @field_validator("template")
    @classmethod
    def names_a_field(cls, template: str) -> str:
        if not re.search(r"\{\w+\}", template):
            raise ValueError("a template names at least one field, for example '{text}' or 'query: {text}'")
        return template


class QueryTokenization(SideTokenization):
    length_tokens: PositiveInt = 64
    template: str = "{text}"


class DocumentTokenization(SideTokenization):
    """A document longer than `length_tokens` is cut there (FirstP), or read in up to `passages` pieces of that length, each
    with a vector of its own; its score is that of the best ("MaxP", Xiong et al. 2021, arXiv:2007.00808, Section 5).

    Of the other two keys, the second choices are microsoft/ANCE's. `special_tokens` stand around each passage, or around the
    document before it is cut, so that only its first passage begins with one. A document with text for fewer passages has
    fewer, or the index is filled up with empty ones, padding only: then a search may find an empty passage best, while
    training takes the maximum over the others.
    """

    passages: PositiveInt = 1
    special_tokens: Literal["passage", "document"] = "passage"
    empty_passages: Literal["drop", "index"] = "drop"
    length_tokens: PositiveInt = 256
    template: str = "{title} {text}"

    @model_validator(mode="after")
    def choices_are_about_passages(self):
        chosen = [key for key in ("special_tokens", "empty_passages") if getattr(self, key) != type(self).model_fields[key].default]
        if self.passages == 1 and chosen:
            raise ValueError(f"{chosen[0]} is {getattr(self, chosen[0])}, but documents have one passage; set passages, or leave {chosen[0]} out")
        return self


class Tokenization(Settings):
    """Lower-casing is done here, on the text: transformers 5 ignores `do_lower_case` of RoBERTa tokenizers.

    `prefix_space` overrides the tokenizer's own setting (ANCE: none, STAR and ADORE: one), None leaves it.
    """

    lowercase: bool = False
    prefix_space: bool | None = None
    max_characters: PositiveInt = 10_000
    query: QueryTokenization = QueryTokenization()
    document: DocumentTokenization = DocumentTokenization()

    def side(self, side: Side) -> SideTokenization:
        return self.query if side == "query" else self.document

    def without_lengths(self) -> dict:
        of_document = {"length_tokens", "passages", "special_tokens", "empty_passages"}
        return self.model_dump(exclude={"query": {"length_tokens"}, "document": of_document})

    def text(self, side: Side, record: dict[str, str]) -> str:
        """The one text of a record."""
        template = self.side(side).template
        text = filled(template, record)[: self.max_characters]
        return _lowered(text, SPECIAL.search(template) is not None) if self.lowercase else text


def _lowered(text: str, special: bool) -> str:
    """`special`: the text has BERT's special tokens, which have no other case (as in microsoft/ANCE's SEEDTokenizer)."""
    return "".join(part if SPECIAL.fullmatch(part) else part.lower() for part in SPECIAL.split(text)) if special else text.lower()


def filled(template: str, record: Mapping[str, str]) -> str:
    """A field that the record lacks is blank; blanks at the ends go."""
    return re.sub(r"\{(\w+)\}", lambda field: record.get(field[1], ""), template).strip()


class TextTokenizer:
    """A Hugging Face fast tokenizer under our settings: records in, ids without special tokens out."""

    def __init__(self, tokenizer, settings: Tokenization):
        if settings.prefix_space is not None:
            _set_prefix_space(tokenizer, settings.prefix_space)
        self.tokenizer, self.settings = tokenizer, settings
        self.specials = _specials(tokenizer)

    def ids(self, side: Side, records: list[dict[str, str]]) -> list[list[int]]:
        texts = [self.settings.text(side, record) for record in records]
        return self.tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)["input_ids"] if texts else []

    def key(self, side: Side) -> str:
        """A digest of everything that decides `ids`: the settings but the length, the tokenizer, the library's version."""
        import tokenizers

        settings = self.settings
        parts = [settings.lowercase, settings.prefix_space, settings.max_characters, settings.side(side).template]
        parts += ["special tokens keep their case"] if settings.lowercase and SPECIAL.search(settings.side(side).template) else []
        return sha256_json([*parts, self.tokenizer.backend_tokenizer.to_str(), tokenizers.__version__])


def _set_prefix_space(tokenizer, wanted: bool) -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    splitter = tokenizer.backend_tokenizer.pre_tokenizer
    if not isinstance(splitter, ByteLevel):
        raise ValueError("tokenization.prefix_space is for byte-level tokenizers (RoBERTa, GPT-2); leave it null for this one")
    splitter.add_prefix_space = wanted
    tokenizer.backend_tokenizer.pre_tokenizer = splitter
    tokenizer.add_prefix_space = wanted


def _specials(tokenizer) -> Specials:
    with_specials = tokenizer("a")["input_ids"]
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    starts = [i for i in range(len(with_specials)) if with_specials[i : i + len(plain)] == plain]
    if not plain or len(starts) != 1:
        raise ValueError(f"cannot tell which special tokens {type(tokenizer).__name__} puts around a text")
    start = starts[0]
    pad = tokenizer.pad_token_id
    return Specials(tuple(with_specials[:start]), tuple(with_specials[start + len(plain) :]), 0 if pad is None else pad)
