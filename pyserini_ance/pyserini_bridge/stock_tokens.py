"""Whether a stock class hands its model the same token ids as we do: both are asked to read some difficult records."""

from collections.abc import Sequence
from pathlib import Path

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.tokenization import TextTokenizer, Tokenization

# Not compared: [PAD] as a word of a text, which `dpr` takes for padding.
# Capitals, accents, a final sigma (Python and tokenizers lower-case it differently), and more tokens than any cap.
HARD_TEXTS = ("Capitals and ÜMLAUTS, Straße ΟΔΟΣ 東京 (x_y)  1,000.5!", "Retrieval with NEGATIVES mined anew. " * 200)
TITLE = "A Title"
ANCE_QUERY_TOKENS = 64  # in `AnceQueryEncoder.encode`
NO_CAP = 1 << 31  # transformers writes 1e30 for none


class StockTokens:
    """The tokenizer of stock `ance`, `auto` or `dpr` beside ours, both from a checkpoint's folder."""

    def __init__(self, stock: str, tokenization: Tokenization, folder: Path):
        from transformers import AutoTokenizer, DPRContextEncoderTokenizer, RobertaTokenizer

        self.stock, self.tokenization = stock, tokenization
        self.ours = TextTokenizer(AutoTokenizer.from_pretrained(str(folder)), tokenization)
        # DPR's for questions has another name, and is the same.
        theirs = {"ance": RobertaTokenizer, "auto": AutoTokenizer, "dpr": DPRContextEncoderTokenizer}
        self.theirs = theirs[stock].from_pretrained(str(folder))

    @property
    def query_cap(self) -> int | None:
        """Where stock search cuts a query; for `auto` that is the tokenizer's own affair. `dpr` cuts none, and is compared up to our cap."""
        if self.stock == "ance":
            return ANCE_QUERY_TOKENS
        if self.stock == "dpr":
            return self.tokenization.query.length_tokens
        return self.theirs.model_max_length if self.theirs.model_max_length < NO_CAP else None

    @property
    def separator(self) -> str | None:
        return self.theirs.sep_token

    def difference(self, side: Side) -> str | None:
        """In plain words, why the two read some text of a side differently; None when they do not."""
        if self.stock == "dpr" and not self.theirs.do_lower_case:
            return "stock `dpr` reads texts by code of its own where the tokenizer keeps capitals"
        titled = "{title}" in self.tokenization.side(side).template
        records = _records(titled)
        pairs = zip(records, self._our_ids(side, records), self._stock_ids(side, records, titled), strict=True)
        differing = [record for record, ours, theirs in pairs if ours != theirs]
        if not differing:
            return None
        if titled and not any(record["title"] and record["text"] for record in differing):
            return f"stock `{self.stock}` leaves a blank beside an empty title or text, and this tokenizer makes a token of it"
        if self.tokenization.lowercase:
            return f"this checkpoint lower-cases texts; stock `{self.stock}` leaves that to a tokenizer that does not do the same"
        return f"the tokenizer of stock `{self.stock}` makes other ids of {differing[0]['text'][:40]!r}"

    def uncut(self, queries: Sequence[str]) -> int:
        """How many of them are read otherwise by `dpr`, since it reads them whole."""
        whole = self.theirs(list(queries), verbose=False)["input_ids"] if queries else []
        ours = self._our_ids("query", [{"text": query} for query in queries])
        return sum(one != other for one, other in zip(ours, whole, strict=True))

    def _our_ids(self, side: Side, records: list[dict[str, str]]) -> list[list[int]]:
        before, after, _ = self.ours.specials
        room = self.tokenization.side(side).length_tokens - len(before) - len(after)
        return [[*before, *ids[:room], *after] for ids in self.ours.ids(side, records)]

    def _stock_ids(self, side: Side, records: list[dict[str, str]], titled: bool) -> list[list[int]]:
        settings = self.tokenization.side(side)
        if titled:
            texts = [f"{record['title']} {record['text']}" for record in records]
        else:
            texts = [settings.template.replace("{text}", record["text"]) for record in records]
        cap = self.query_cap if side == "query" else settings.length_tokens
        return [self.theirs(text, max_length=cap, truncation=cap is not None)["input_ids"] for text in texts]


def _records(titled: bool) -> list[dict[str, str]]:
    full = [{"title": TITLE, "text": text} for text in HARD_TEXTS]
    return [*full, {"title": "", "text": HARD_TEXTS[0]}, {"title": TITLE, "text": ""}] if titled else full
