"""Which stock class computes the vectors of which checkpoint; topics that Pyserini can read back."""

import json
import shutil

import pytest
from transformers import BertTokenizer

from pyserini_ance.encoders.dpr import to_dpr
from pyserini_ance.pipeline.model_export import BOUND, Proof
from pyserini_ance.pyserini_bridge.export import write_topics

ANCE = {"projection": 768, "layer_norm": True}
AUTO = {"model": "bert", "pooling": "mean", "normalize": True}
DPR = {"model": "bert", "tied": False}
LAST = {"pooling": "lasttoken", "normalize": True}
TWO_FIELDS, PAIR, OURS = "{title} {text}", "{title} [SEP] {text}", "pyserini_ance"
DOCUMENT = {"title": "A title", "text": "a text"}


def settings(base, *, lowercase=False, query="{text}", tokens=64, document="{text}", passages=1, **changes):
    documents = {"length_tokens": 128, "template": document, "passages": passages}
    queries = {"length_tokens": tokens, "template": query}
    tokenization = {"lowercase": lowercase, "query": queries, "document": documents}
    return {**base, **changes, "tokenization": tokenization}


@pytest.fixture(scope="module")
def made(checkpoint, bert, tmp_path_factory):
    """Make a checkpoint as a run exports it, in a folder of that name."""
    cased = shutil.copytree(bert, tmp_path_factory.mktemp("bert") / "cased")
    BertTokenizer.from_pretrained(cased, do_lower_case=False).save_pretrained(cased)

    def make(name="model", **given):
        models = {"bert": {"model": str(bert)}, "cased": {"model": str(cased)}}
        folder = checkpoint(**{**given, **models.get(given.get("model"), {})})
        if given.get("tied") is False:
            to_dpr(folder)
        return folder.rename(tmp_path_factory.mktemp("made") / name)

    return make


def choose(folder, *queries):
    """The classes for queries and documents, and what `measures.json` says."""
    records = {"query": [{"text": text} for text in queries or ["a text"]], "document": [DOCUMENT]}
    exported = Proof(folder, records).of_export(folder)
    return (exported["queries"][3], exported["documents"][3]), exported


PREFIXES = {"query": "query: {text}", "document": "passage: {text}"}
CASES = [
    # the encoder's settings, query class, document class, a part of the notes
    (settings(ANCE), "ance", "ance", "ance, queries: the same vectors, to "),
    (settings(ANCE, document=TWO_FIELDS), "ance", OURS, "ance, documents: vectors that differ by"),
    (settings(ANCE, lowercase=True), OURS, OURS, "ance, queries: vectors that differ by"),
    (settings(ANCE, tokens=32), OURS, "ance", "(query 'Retrieval with NEGATIVES"),
    (settings(ANCE, projection=32), OURS, OURS, "ance, queries: RuntimeError"),
    (settings(ANCE, normalize=True), OURS, OURS, "ance, documents: vectors that differ by"),
    (settings(ANCE, normalize="document", layer_norm="query"), "ance", OURS, "ance, documents: vectors"),
    (settings(ANCE, model="bert"), OURS, OURS, "auto, queries: ValueError: vectors of 32 numbers, not 768"),
    (settings(AUTO), "auto", "auto", "transformers: the same vectors, to "),
    (settings(AUTO, document=TWO_FIELDS), "auto", "auto", ""),
    (settings(AUTO, **PREFIXES), "auto", "auto", ""),
    (settings(AUTO, query="{text} [Q]"), OURS, "auto", "auto, queries: vectors that differ by"),
    (settings(AUTO, document="passage: {title} {text}"), "auto", OURS, "(document 'A title"),
    # Python makes a final sigma of the last letter of ΟΔΟΣ, BERT's tokenizer does not
    (settings(AUTO, lowercase=True), OURS, OURS, "(query 'ΟΔΟΣ')"),
    (settings(AUTO, truncate_dim=8), OURS, OURS, "auto, queries: ValueError: vectors of 32 numbers, not 8"),
    (settings(AUTO, pooling="max"), OURS, OURS, "auto, queries: vectors that differ by"),
    (settings(AUTO, normalize=False, name="eclipse"), OURS, OURS, "auto, queries: vectors that differ by"),
    (settings(AUTO, name="eclipse"), "auto", OURS, "auto, documents: TypeError"),
    (settings(AUTO, passages=3), "auto", "auto", "documents of one passage (`pyserini-ance encode` splits"),
    (settings(LAST, query="Query:{text}"), "qwen3", "qwen3", ""),
    (settings(LAST, document=TWO_FIELDS), "qwen3", OURS, "qwen3, documents: vectors that differ by"),
    (settings(DPR), "dpr", "dpr", "dpr, queries of up to 64 tokens: the same vectors, to "),
    (settings(DPR, document=PAIR), "dpr", OURS, "dpr, documents: vectors that differ by"),
    (settings(DPR, lowercase=True), OURS, OURS, "(query 'ΟΔΟΣ')"),
    (settings(DPR, model="cased"), "dpr", "dpr", ""),
    (settings(DPR, name="contriever"), "dpr", OURS, "dpr, documents: TypeError"),
]


@pytest.mark.parametrize("given, query_class, document_class, note", CASES)
def test_choice(made, given, query_class, document_class, note):
    classes, exported = choose(made(**given))
    notes = "\n".join(exported["notes"])
    assert classes == (query_class, document_class) and note in notes, notes
    shares = [one["share"] for name, one in exported["differences"].items() if name.startswith("Pyserini")]
    assert [share > BOUND for share in shares] == [name == OURS for name in classes]


def test_dpr_cuts_no_query(made):
    """So it is not for one that we would cut."""
    folder, name = made(**settings(DPR, tokens=24)), "Pyserini's class dpr, queries of up to 24 tokens"
    classes, exported = choose(folder, "x" * 22, "of 22")
    assert classes == ("dpr", "dpr") and f"{name}: the same vectors" in "\n".join(exported["notes"])
    classes, exported = choose(folder, "x" * 22, "x" * 23)
    assert classes == (OURS, "dpr") and exported["differences"][name]["text"] == "x" * 23


def test_flags(made):
    def flags(base, **changes):
        exported = choose(made(**settings(base, **changes)))[1]
        return exported["queries"][4:], exported["documents"][4:]

    sizes = ["--fields", "text", "--max-length", "128", "--dimension"]
    assert flags(ANCE) == ([], [*sizes, "768"]) and flags(DPR) == ([], [*sizes, "32"])
    queries, documents = flags(AUTO, normalize="query")
    assert "--l2-norm" in queries and "--l2-norm" not in documents
    queries, documents = flags(AUTO, **PREFIXES)
    assert queries == ["--pooling", "mean", "--l2-norm", "--query-prefix", "query:"]
    assert documents[:5] == ["--pooling", "mean", "--l2-norm", "--prefix", "passage:"]
    queries, documents = flags(LAST, query="Query:{text}")
    assert queries == ["--l2-norm", "--max-length", "64", "--query-prefix", "Query:"]
    assert documents[:3] == ["--l2-norm", "--prefix", ""]
    assert choose(made(**settings(LAST, query="Find\nQuery:{text}")))[0] == (OURS, "qwen3")  # two lines


def test_each_tower_of_a_pair_is_tried_in_its_own_folder(made, tmp_path):
    folder = made(**settings(AUTO, tied=False))
    (folder / "documents").rename(tmp_path / "clip")
    (folder / "documents").symlink_to(tmp_path / "clip")
    classes, exported = choose(folder)
    assert (classes, exported["documents"][1]) == (("auto", "auto"), str(folder / "documents"))
    # Stock `auto` truncates queries at the limit of the tokenizer alone.
    file = folder / "queries" / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_max_length": 99}))
    assert choose(folder)[0] == (OURS, "auto")


def test_topics_keep_their_ids_and_texts(tmp_path):
    queries = [("007", " What is it?  "), ("²", "tab\tinside"), ("q", "two\nlines")]
    file = write_topics(queries, tmp_path, "dev")
    assert file == tmp_path / "topics.dev.json"
    assert json.loads(file.read_text()) == {id: {"title": text.strip()} for id, text in queries}


def test_query_ids_that_a_run_cannot_carry(tmp_path):
    with pytest.raises(ValueError, match=r"1 query ids .*'a b'"):
        write_topics([("a b", "x")], tmp_path)
    assert not list(tmp_path.iterdir())
