"""Tokenization as a property of a checkpoint: how a record becomes a text, and a text becomes token ids."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from pyserini_ance.data.collection import SIDES, Side, Texts
from pyserini_ance.data.passages import Passages, pad_passages, split_passages
from pyserini_ance.data.texts import ROWS_PER_BATCH
from pyserini_ance.data.token_store import Specials, TokenStore, open_or_build
from pyserini_ance.recipe.components import Settings, expected
from pyserini_ance.storage.files import sha256_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROMPT = re.compile(r"([^{}]*)(\{title\} )?\{text\}")  # a title comes as part of the text
Template = Annotated[str, Field(pattern=r"\{\w+\}"), expected("a text with a field, such as '{text}'")]
SPECIAL = re.compile(r"(\[(?:CLS|SEP|PAD|UNK)\])")


class SideTokenization(Settings):
    """The tokenization of one side; the defaults are those of queries."""

    length_tokens: PositiveInt = 64
    """The maximum length, special tokens included."""
    template: Template = "{text}"
    """The text of a record, with its fields in braces. If it begins with the tokenizer's first special token,
    as in `[CLS]{text}[SEP]`, it has them all, and none is added."""

    @property
    def fields(self) -> list[str]:
        """The fields that the template names."""
        return list(dict.fromkeys(re.findall(r"\{(\w+)\}", self.template)))

    @property
    def first_documents(self) -> list[str]:
        """The fields of a query that a recipe's `first_pass` fills, as far as the template needs them."""
        numbers = map(int, re.findall(r"\{first_([1-9]\d*)\}", self.template))
        return [f"first_{rank}" for rank in range(1, max(numbers, default=0) + 1)]


class DocumentTokenization(SideTokenization):
    """The tokenization of documents.

    A document longer than `length_tokens` is truncated (FirstP), or split into up to `passages` passages of
    that length, each with a vector of its own. The document scores as its best passage (MaxP, Xiong et al.
    2021, arXiv:2007.00808, Section 5). `special_tokens: per_document` and `pad_passages: true` are the
    choices of microsoft/ANCE.
    """

    passages: PositiveInt = 1
    """The maximum number of passages of a document."""
    special_tokens: Literal["per_passage", "per_document"] = "per_passage"
    """Add special tokens to each passage, or to the document before it is split."""
    pad_passages: bool = False
    """Index empty passages up to `passages`; searches may rank one best, but training ignores them."""
    length_tokens: PositiveInt = 256
    """The maximum length of a passage, special tokens included."""
    template: Template = "{title} {text}"
    """The text of a document, with its fields in braces."""

    @model_validator(mode="after")
    def check_passages(self) -> "DocumentTokenization":
        if self.passages > 1:
            return self
        for key in ("special_tokens", "pad_passages"):
            if (value := getattr(self, key)) != type(self).model_fields[key].default:
                raise ValueError(
                    f"{key} is {value}, but documents have one passage; set passages, or remove {key}"
                )
        return self


class Tokenization(Settings):
    """The settings that turn records into texts and texts into token ids."""

    lowercase: bool = False
    """Lower-case texts first; transformers 5 ignores `do_lower_case` of RoBERTa tokenizers."""
    prefix_space: bool | None = None
    """Put a blank before a text (ANCE: false; STAR, ADORE: true; null: as the byte-level tokenizer does)."""
    max_characters: PositiveInt | None = None
    """The number of characters of a text that are tokenized; null: all."""
    query: SideTokenization = SideTokenization()
    """The tokenization of queries."""
    document: DocumentTokenization = DocumentTokenization()
    """The tokenization of documents."""

    def side(self, side: Side) -> SideTokenization:
        return self.query if side == "query" else self.document

    def limited(self, tokens: int) -> Self:
        """The same settings with lengths of at most so many tokens."""
        made: dict[str, SideTokenization] = {}
        for side in SIDES:
            own = self.side(side)
            made[side] = own.model_copy(update={"length_tokens": min(own.length_tokens, tokens)})
        return self.model_copy(update=made)

    def prompts(self) -> dict[str, str]:
        """What comes before a text on each side, for sentence-transformers; none for other templates."""
        matches = {side: PROMPT.fullmatch(self.side(side).template) for side in SIDES}
        return {side: match[1] for side, match in matches.items() if match}

    def without_lengths(self, sides: Sequence[Side] = SIDES) -> dict[str, Any]:
        """All settings of `sides` but lengths and passages, which may change between stages."""
        document_keys = {"length_tokens", "passages", "special_tokens", "pad_passages"}
        excluded: dict[str, Any] = {"query": {"length_tokens"}, "document": document_keys}
        excluded |= {side: True for side in SIDES if side not in sides}
        return self.model_dump(exclude={"max_characters": True, **excluded})

    def text(self, side: Side, record: Mapping[str, str]) -> str:
        template = self.side(side).template
        text = fill_template(template, record)[: self.max_characters]
        if not self.lowercase:
            return text
        if not SPECIAL.search(template):
            return text.lower()
        # Special tokens keep their case, as in microsoft/ANCE's SEEDTokenizer.
        return "".join(part if SPECIAL.fullmatch(part) else part.lower() for part in SPECIAL.split(text))


def fill_template(template: str, record: Mapping[str, str]) -> str:
    """`template` with the record's values (empty if missing) for `{field}`s. Blanks between two fields are
    left out where one of them is empty."""

    def joined(fields: re.Match[str]) -> str:
        text = ""
        for blanks, name in re.findall(r"(\s*)\{(\w+)\}", fields[0]):
            value = record.get(name, "")
            text += f"{blanks}{value}" if text and value else value
        return text

    return re.sub(r"\{\w+\}(\s+\{\w+\})*", joined, template)


def stripped(record: Mapping[str, str]) -> dict[str, str]:
    """A record of a collection without the outer blanks of its values, which Pyserini removes, too."""
    return {name: value.strip() for name, value in record.items()}


class TextTokenizer:
    """Hugging Face's fast tokenizers of both sides with the settings of a checkpoint; ids exclude special
    tokens.

    documents: the tokenizer of documents; default: `tokenizer` for both sides.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        settings: Tokenization,
        documents: "PreTrainedTokenizerBase | None" = None,
    ):
        self.settings = settings
        self.tokenizers = {"query": tokenizer, "document": documents or tokenizer}
        if settings.prefix_space is not None:
            self._set_prefix_space(settings.prefix_space)
        self.specials = {side: _specials(one) for side, one in self.tokenizers.items()}
        for side in SIDES:
            before = self.specials[side].before
            if before and self.blank(side)[: len(before)] == [*before]:
                self.specials[side] = Specials((), (), self.specials[side].pad)

    def _set_prefix_space(self, value: bool) -> None:
        """Set it in byte-level tokenizers, others have none. Raises ValueError if neither side's is one."""
        from tokenizers.pre_tokenizers import ByteLevel

        splitters = [(one, one.backend_tokenizer.pre_tokenizer) for one in self.tokenizers.values()]
        found = [(one, splitter) for one, splitter in splitters if isinstance(splitter, ByteLevel)]
        if not found:
            cure = "set it to null for this one"
            raise ValueError(
                f"tokenization.prefix_space is for byte-level tokenizers (RoBERTa, GPT-2); {cure}"
            )
        for tokenizer, splitter in found:
            splitter.add_prefix_space = tokenizer.add_prefix_space = value
            tokenizer.backend_tokenizer.pre_tokenizer = splitter

    def ids(self, side: Side, records: Sequence[Mapping[str, str]]) -> list[list[int]]:
        """The token ids of records, not truncated."""
        if not records:
            return []
        texts = [self.settings.text(side, record) for record in records]
        tokenizer = self.tokenizers[side]
        return tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]

    def blank(self, side: Side) -> list[int]:
        """The token ids of a record without any text: those of the template's own words."""
        return self.ids(side, [{}])[0]

    def key(self, side: Side) -> str:
        """A hash of all that `ids` depend on: settings except lengths, tokenizer, library version."""
        import tokenizers

        settings, template = self.settings, self.settings.side(side).template
        of_both = [settings.lowercase, settings.prefix_space, settings.max_characters]
        values = ["stripped fields", *of_both, template]
        if settings.lowercase and SPECIAL.search(template):
            values.append("special tokens keep their case")
        own = self.tokenizers[side].backend_tokenizer.to_str()
        return sha256_json([*values, own, tokenizers.__version__])


def _specials(tokenizer: "PreTrainedTokenizerBase") -> Specials:
    """The special tokens around a text. Raises ValueError if they cannot be determined."""
    with_specials = tokenizer("a")["input_ids"]
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    starts = [i for i in range(len(with_specials)) if with_specials[i : i + len(plain)] == plain]
    if not plain or len(starts) != 1:
        name = type(tokenizer).__name__
        raise ValueError(f"cannot determine the special tokens that {name} puts around a text")
    before, after = with_specials[: starts[0]], with_specials[starts[0] + len(plain) :]
    pad = tokenizer.pad_token_id
    return Specials(tuple(before), tuple(after), 0 if pad is None else pad)


def surround(tokenizer: "PreTrainedTokenizerBase", before: Sequence[int], after: Sequence[int]) -> None:
    """Put these special tokens around each text, also when the tokenizer has been saved."""
    from tokenizers.processors import TemplateProcessing

    names = {id: tokenizer.convert_ids_to_tokens(id) for id in (*before, *after)}
    pieces = [*(names[id] for id in before), "$A", *(names[id] for id in after)]
    special = [(name, id) for id, name in names.items()]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=pieces, special_tokens=special)


def end_with_eos(tokenizer: "PreTrainedTokenizerBase") -> None:
    """Let each text end with the end-of-sequence token, whose vector a decoder's text has."""
    specials = _specials(tokenizer)
    if (eos := tokenizer.eos_token_id) is not None and specials.after[-1:] != (eos,):
        surround(tokenizer, specials.before, [*specials.after, eos])


def token_store(tokenizer: TextTokenizer, side: Side, texts: Texts, folder: Path, label: str) -> TokenStore:
    """The token ids of `texts`, `stripped`, written into `folder` unless it holds them."""
    specials, vocabulary = tokenizer.specials[side], len(tokenizer.tokenizers[side])
    return open_or_build(
        folder, texts, lambda block: tokenizer.ids(side, [*map(stripped, block)]), specials, vocabulary, label
    )


def describe_blank(documents: Texts, rows: np.ndarray, template: str) -> str | None:
    """A warning about the documents in `rows` (n,), which have no token of their own; None if n is 0."""
    if not len(rows):
        return None
    row = int(rows[0])
    unread = [name for name, text in documents[row].items() if text.strip() and f"{{{name}}}" not in template]
    unread_text = f"{' and '.join(unread)} has text, but is not in the template"
    why = unread_text if unread else "of no known character"
    return (
        f"{len(rows):,} of {len(documents):,} documents are encoded as empty texts by the template "
        f"{template!r}, such as {documents.ids[row]!r} ({why}); name the fields that have text in the "
        "encoder's tokenization.document.template, or remove these documents"
    )


def split_into_passages(
    documents: TokenStore, tokenization: Tokenization
) -> tuple[TokenStore, Passages | None]:
    """The rows that are encoded of the documents, and which document each row is of; None if each has one
    row."""
    settings = tokenization.document
    if settings.passages == 1:
        return documents, None
    split = split_passages(documents, settings.length_tokens, settings.passages, settings.special_tokens)
    tokens, passages = pad_passages(*split, settings.passages) if settings.pad_passages else split
    tokens.whole = documents, passages
    return tokens, passages


def token_folder(cache: Path, key: str, texts: Texts) -> Path:
    """The folder of the cache that holds the token ids of `texts`; `key` is that of `TextTokenizer.key`."""
    return cache / "tokens" / f"{texts.digest[:32]}-{key[:32]}"


def count_cut(lengths: np.ndarray, specials: Specials, settings: SideTokenization) -> tuple[int, str]:
    """How many texts are cut, because tokens at their end are not encoded, and at how many tokens.

    lengths: (N,) the tokens of N whole texts, without special tokens.
    """
    passages = settings.passages if isinstance(settings, DocumentTokenization) else 1
    enclosures = 1 if getattr(settings, "special_tokens", "") == "per_document" else passages
    capacity = settings.length_tokens * passages - enclosures * (len(specials.before) + len(specials.after))
    limit = f"{passages} passages of " * (passages > 1) + f"{settings.length_tokens}"
    return int((lengths > capacity).sum()), limit


def count_cut_characters(texts: Texts, side: Side, settings: Tokenization) -> int:
    """How many texts `max_characters` cuts before they become tokens."""
    if settings.max_characters is None:
        return 0
    template = settings.side(side).template
    lengths = (
        len(fill_template(template, stripped(text)))
        for block in texts.blocks(ROWS_PER_BATCH)
        for text in block
    )
    return sum(length > settings.max_characters for length in lengths)
