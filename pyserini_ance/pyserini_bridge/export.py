"""Export of a run for Pyserini's own code: the stock class that reproduces a checkpoint exactly, for each
side, if there is one; topics, and the search command.

The tokens of some difficult records are compared; the other rules follow Pyserini 2.3.0:
`encode/_ance.py`, `encode/_auto.py`, `encode/_dpr.py`, `init_encoder` and `init_query_encoder`.
"""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from pyserini_ance.data.collection import PLURALS, Side
from pyserini_ance.encoders.config import TOWERS, at
from pyserini_ance.encoders.dpr import is_dpr
from pyserini_ance.encoders.tokenization import TextTokenizer, Tokenization
from pyserini_ance.pyserini_bridge.encoder_classes import ENCODER_CLASS
from pyserini_ance.pyserini_bridge.java import choose_java
from pyserini_ance.storage.files import write_whole

# A final sigma, which Python and tokenizers lower-case differently, in a text that leaves room for what a
# template adds; capitals and accents; a sentence, which is repeated beyond the limit of tokens. Not compared:
# [PAD] as a word of a text, which `dpr` treats as padding.
HARD_TEXTS = ("ΟΔΟΣ", "Capitals and ÜMLAUTS, Straße ΟΔΟΣ 東京 (x_y)  1,000.5!")
REPEATED_TEXT = "Retrieval with NEGATIVES mined anew. "
SHOWN_TOKENS = 5
ANCE_QUERY_TOKENS = 64  # in `AnceQueryEncoder.encode`
NO_LIMIT = 1 << 31  # transformers writes 1e30 for no limit
AUTO_POOLINGS = ("cls", "mean")
ANCE_DIMENSION = 768
PREFIX_FLAGS: dict[Side, str] = {"query": "--query-prefix", "document": "--prefix"}
# Words in a path for which Pyserini passes further keywords, even if the class is given: constructors fail,
# or `auto` normalizes queries. Stock `ance` and `dpr` ignore them for queries.
UNKNOWN_TO_MOST = ("contriever", "sentence-transformers", "clip", "dse")
ACTED_ON = {
    ("query", "auto"): ("clip", "dse"),
    ("document", "ance"): UNKNOWN_TO_MOST,
    ("document", "auto"): ("clip", "dse"),
    ("document", "dpr"): UNKNOWN_TO_MOST,
}


class StockChoice(NamedTuple):
    """The values of `--encoder` and `--encoder-class` for searching and encoding, with their further flags.

    notes: one line for each side that a stock class reproduces, and one for each reason against one.
    """

    query_folder: Path
    document_folder: Path
    query_class: str
    document_class: str
    flags: tuple[str, ...]
    document_flags: tuple[str, ...]
    notes: list[str]


def stock_class(side_file: dict[str, Any], model_folder: Path, queries: Sequence[str] = ()) -> StockChoice:
    """Choose Pyserini's classes for a checkpoint; a query class that is not ours gives the same rankings.

    side_file: the settings of the checkpoint. model_folder: the path that Pyserini will get, because
    Pyserini reacts to words in it. queries: the queries of later searches, if known.
    """
    tokenization = Tokenization.model_validate(side_file["tokenization"])
    root = Path(model_folder)
    folders = {side: root if side_file.get("tied", True) else root / name for side, name in TOWERS.items()}
    stock = "auto" if side_file["pooling"] in AUTO_POOLINGS else ""
    if side_file["layer_norm"]:
        stock = "ance"
    elif all(map(is_dpr, folders.values())):
        stock = "dpr"
    against = {side: _against_model(side_file, stock, side, folder) for side, folder in folders.items()}
    for side, folder in folders.items():
        if not against[side] and (words := _words_acted_on(side_file, stock, side, folder)):
            against[side].append(f"Pyserini acts on {words} in the path {folder.absolute()}")
        if not against[side] and (why := _difference(stock, tokenization, side, folder, queries)):
            against[side].append(why)
    query_class, document_class = (ENCODER_CLASS if reasons else stock for reasons in against.values())
    documents = tokenization.document
    same = f"Pyserini's stock class `{stock}` computes the same vectors"
    notes = []
    if query_class != ENCODER_CLASS:
        limit = f", up to {tokenization.query.length_tokens} tokens: it does not truncate queries"
        notes.append(f"queries: {same}{limit if stock == 'dpr' else ''}")
    if documents.passages > 1:
        notes.append(
            f"documents: split into up to {documents.passages} passages by `pyserini-ance encode`, but not "
            "by Pyserini's own encode"
        )
    elif document_class != ENCODER_CLASS:
        notes.append(f"documents: {same}")
    sided = [(f"{PLURALS[side]}: ", why) for side, reasons in against.items() for why in reasons]
    if against["query"] == against["document"]:
        sided = [("", why) for why in against["query"]]
    notes += [f"{texts}{why}; use the class `{ENCODER_CLASS}`" for texts, why in sided]
    flags = _auto_flags(side_file, "query") if query_class == "auto" else ()
    document_flags = ["--fields", *re.findall(r"\{(\w+)\}", documents.template)]
    document_flags += ["--max-length", str(documents.length_tokens)]
    document_flags += ["--dimension", str(side_file["dimension"])]
    document_flags += _auto_flags(side_file, "document") if document_class == "auto" else ()
    of_documents = tuple(document_flags)
    return StockChoice(
        folders["query"], folders["document"], query_class, document_class, flags, of_documents, notes
    )


def _against_model(side_file: dict[str, Any], stock: str, side: Side, folder: Path) -> list[str]:
    """Why the stock class computes other vectors from the same tokens."""
    if not stock:
        return ["no stock class has this checkpoint's modules"]
    reasons = []
    if size := side_file.get("truncate_dim"):
        reasons.append(f"it gives whole vectors, this checkpoint their first {size} numbers")
    if stock == "auto" and (size := side_file.get("projection")):
        reasons.append(f"it has no linear layer, this checkpoint projects to {size} numbers")
    if stock == "ance" and (size := side_file["dimension"]) != ANCE_DIMENSION:
        reasons.append(f"its head gives {ANCE_DIMENSION} numbers, this one {size}")
    if stock == "ance" and at(side, side_file["normalize"]):
        reasons.append("it does not normalize vectors, this checkpoint does")
    if stock == "ance" and not at(side, side_file["layer_norm"]):
        reasons.append("it applies its LayerNorm, this checkpoint does not")
    if stock == "ance" and not (folder / "pytorch_model.bin").exists():
        reasons.append(f"it reads pytorch_model.bin, which {folder} lacks")
    return [f"not stock `{stock}`: {reason}" for reason in reasons]


def _words_acted_on(side_file: dict[str, Any], stock: str, side: Side, folder: Path) -> str:
    path = str(folder.absolute()).lower()
    words = [word for word in ACTED_ON.get((side, stock), ()) if word in path]
    return "" if side == "query" and at(side, side_file["normalize"]) else ", ".join(words)


def _difference(
    stock: str, tokenization: Tokenization, side: Side, folder: Path, queries: Sequence[str]
) -> str | None:
    """The first difference between the stock class's tokens of a record and the checkpoint's own, or None.

    Stock `dpr` does not truncate queries: it is compared on those that it will get.
    """
    from transformers import AutoTokenizer, DPRContextEncoderTokenizer, RobertaTokenizer

    # DPR's tokenizer of questions is the same under another name.
    classes: dict[str, Any] = {
        "ance": RobertaTokenizer,
        "auto": AutoTokenizer,
        "dpr": DPRContextEncoderTokenizer,
    }
    theirs = classes[stock].from_pretrained(str(folder))
    if stock == "dpr" and not theirs.do_lower_case:
        return "stock `dpr` tokenizes texts in its own way if the tokenizer keeps capitals"
    ours = TextTokenizer(AutoTokenizer.from_pretrained(str(folder)), tokenization)
    settings = tokenization.side(side)
    titled = side == "document" and "{title}" in settings.template
    long = REPEATED_TEXT * settings.length_tokens
    texts = [*HARD_TEXTS, *(queries if stock == "dpr" and side == "query" else [long])]
    fields = {name: f"A {name}" for name in re.findall(r"\{(\w+)\}", settings.template)}
    records = [{**fields, "text": text} for text in texts]
    if titled:  # the longer of a pair is truncated
        pairs = [("", HARD_TEXTS[1]), (long, HARD_TEXTS[1]), ("A", ""), (long, long)]
        records += [{**fields, "title": title, "text": text} for title, text in pairs]
    limits = {"ance": ANCE_QUERY_TOKENS, "auto": theirs.model_max_length, "dpr": NO_LIMIT}
    prefix = _prefix(settings.template) if stock == "auto" else None
    before, after, _ = ours.specials
    length = settings.length_tokens - len(before) - len(after)
    for record, ids in zip(records, ours.ids(side, records), strict=True):
        given = [f"{prefix} {record['text']}" if prefix else record["text"]]
        if titled:
            given = [record["title"], *given] if stock == "dpr" else [f"{record['title']} {given[0]}"]
        is_asked = side == "query" and not (stock == "dpr" and record["text"] in HARD_TEXTS)
        limit = limits[stock] if is_asked else settings.length_tokens
        cut = {"max_length": limit, "truncation": True} if limit < NO_LIMIT else {"verbose": False}
        stock_ids = theirs(*([one] for one in given), **cut)["input_ids"][0]
        own_ids = [*before, *ids[:length], *after]
        if stock_ids != own_ids:
            same = next(n for n, (a, b) in enumerate(zip_longest(stock_ids, own_ids)) if a != b)
            its, own = (theirs.decode(one[same : same + SHOWN_TOKENS]) for one in (stock_ids, own_ids))
            return (
                f"stock `{stock}` reads {record['text'][:20]!r} after {same} tokens as {its!r}, this "
                f"checkpoint by {settings.template!r} in {settings.length_tokens} tokens as {own!r}"
            )
    return None


def _prefix(template: str) -> str | None:
    """The prefix of a template that stock `auto` builds: one, a blank, and the text."""
    prefix = template.removesuffix(" {text}")
    return None if prefix in (template, "") or "{" in prefix or prefix != prefix.strip() else prefix


def _auto_flags(side_file: dict[str, Any], side: Side) -> tuple[str, ...]:
    """The flags with which stock `auto` computes a side's vectors, if it can."""
    prefix = _prefix(side_file["tokenization"][side]["template"])
    normalize = ("--l2-norm",) if at(side, side_file["normalize"]) else ()
    return ("--pooling", side_file["pooling"], *normalize, *((PREFIX_FLAGS[side], prefix) if prefix else ()))


SHOWN = 5


def check_ids(ids: Sequence[str], what: str) -> None:
    """Raises ValueError for ids that are empty or contain blanks, because runs are split at blanks.

    what: `query` or `document`, for the message.
    """
    if bad := [id for id in ids if id.split() != [id]]:
        shown = ", ".join(map(repr, bad[:SHOWN]))
        raise ValueError(
            f"{len(bad)} {what} ids are empty or contain blanks or line ends, which runs cannot represent: "
            f"{shown}. Rename them."
        )


# A tab ends the text, a line end the record, and Java trims all characters up to the blank.
CHANGED_BY_TSV = re.compile(r"[\t\r\n]|\A[\x00- ]|[\x00- ]\Z")


def write_topics(
    queries: Sequence[tuple[str, str]], folder: Path, split: str = "test", remove_query: bool = False
) -> Path:
    """Write the topics for Pyserini and return the file: `topics.SPLIT.tsv` or `topics.SPLIT.json`.

    The .json file is written if Pyserini would change ids or texts of the .tsv file.

    All topic readers except that of .json convert an id of digits to a number (007 becomes 7), and a .tsv
    under a path that contains `cacm` is read as that collection. Texts are stripped, as encoders strip them.
    remove_query: for a search with `--remove-query`, which compares ids as strings.
    """
    folder = Path(folder)
    check_ids([id for id, _ in queries], "query")
    tsv, exact = folder / f"topics.{split}.tsv", folder / f"topics.{split}.json"
    topics = {id: text.strip() for id, text in queries}
    write_whole(tsv, "".join(f"{id}\t{CHANGED_BY_TSV.sub(' ', text)}\n" for id, text in topics.items()))
    exact.unlink(missing_ok=True)
    are_kept = all(is_kept(id) and not (remove_query and id.isdigit()) for id in topics)
    is_exact = are_kept and not any(map(CHANGED_BY_TSV.search, topics.values()))
    if is_exact and "cacm" not in str(folder):
        return tsv
    # ASCII, because Pyserini opens the file in the encoding of the locale.
    write_whole(exact, json.dumps({id: {"title": text} for id, text in topics.items()}, indent=0) + "\n")
    return exact


def is_kept(id: str) -> bool:
    """Whether Pyserini's readers keep a topic's id: 007 and +7 become 7, and a superscript is an error."""
    try:
        return str(int(id)) == id
    except ValueError:
        return not id.isdigit()


def search_command(
    topics: Path,
    index: Path,
    output: Path,
    choice: StockChoice,
    hits: int,
    passages: int = 1,
    remove_query: bool = False,
) -> str:
    """The shell command that searches with Pyserini: the stock module if possible, else this package's.

    The stock module must be able to start Java, and must reproduce the checkpoint. If documents have up to
    `passages` rows in the index, the search retrieves `passages` times as many rows. remove_query: without
    the document that has the query's id, in whose place one more is retrieved.
    """
    try:
        stock = choice.query_class != ENCODER_CLASS and choose_java().runs_stock_commands
    except RuntimeError:  # no Java
        stock = False
    program = ["pyserini.search.faiss"] if stock else ["pyserini_ance", "search", "faiss"]
    encoder = ["--encoder", choice.query_folder, "--encoder-class", choice.query_class, *choice.flags]
    files = ["--topics", topics, "--index", index, "--output", output]
    deep = ["--hits", (hits + remove_query) * passages, *(["--remove-query"] if remove_query else [])]
    deep += [] if passages == 1 else ["--max-passage", "--max-passage-hits", hits]
    return shlex.join(map(str, [python_program(), "-m", *program, *encoder, *files, *deep]))


def python_program() -> str:
    """`python` if it is in this interpreter's environment, else the interpreter's path."""
    path = shutil.which("python")
    return "python" if path and Path(path).parent == Path(sys.executable).parent else sys.executable
