"""Which stock class reproduces which checkpoint, as a table."""

import json
import shutil

import pytest
from transformers import AutoTokenizer, BertTokenizer, DPRContextEncoderTokenizer

from pyserini_ance.encoders.tokenization import TextTokenizer, Tokenization
from pyserini_ance.pyserini_bridge.stock_class import stock_class

ANCE = {"kind": "roberta_ance", "pooling": "cls", "normalize": False, "dimension": 768}
AUTO = {"kind": "transformer", "pooling": "mean", "normalize": True, "dimension": 32}
DPR = {"kind": "transformer", "pooling": "cls", "normalize": False, "dimension": 32, "tied": False}


def side(
    base,
    *,
    lowercase=False,
    query="{text}",
    query_tokens=64,
    document="{text}",
    document_tokens=128,
    **changes,
):
    tokenization = {
        "lowercase": lowercase,
        "prefix_space": None,
        "query": {"length_tokens": query_tokens, "template": query},
        "document": {"length_tokens": document_tokens, "template": document},
    }
    return {"format": 1, **base, **changes, "tokenization": tokenization}


@pytest.fixture(scope="module")
def folders(roberta, bert_tokenizer, tmp_path_factory):
    ance = shutil.copytree(roberta, tmp_path_factory.mktemp("ance"), dirs_exist_ok=True)
    (ance / "pytorch_model.bin").touch()
    dpr, cased = (in_dprs_form(bert_tokenizer, tmp_path_factory.mktemp(name)) for name in ("dpr", "cased"))
    for tower in ("queries", "documents"):
        BertTokenizer.from_pretrained(cased / tower, do_lower_case=False).save_pretrained(cased / tower)
    return {"roberta": ance, "bert": bert_tokenizer, "dpr": dpr, "cased": cased}


def in_dprs_form(tokenizer, folder):
    for tower in ("queries", "documents"):
        shutil.copytree(tokenizer, folder / tower)
        (folder / tower / "config.json").write_text(json.dumps({"model_type": "dpr"}))
    return folder


TWO_FIELDS, PAIR = "{title} {text}", "{title} [SEP] {text}"
CASES = [
    # tokenizer, side file, query class, document class, words of the reasons
    ("roberta", side(ANCE), "ance", "ance", []),
    (
        "roberta",
        side(ANCE, document=TWO_FIELDS),
        "ance",
        "pyserini_ance",
        ["documents: stock `ance` keeps the blank"],
    ),
    (
        "roberta",
        side(ANCE, lowercase=True),
        "pyserini_ance",
        "pyserini_ance",
        ["queries: this checkpoint lower-", "documents: "],
    ),
    (
        "roberta",
        side(ANCE, query_tokens=32),
        "pyserini_ance",
        "ance",
        ["queries at 64 tokens, this checkpoint at 32"],
    ),
    (
        "roberta",
        side(ANCE, query="query: {text}"),
        "pyserini_ance",
        "ance",
        ["cannot build the text of a query as 'query: {text}'"],
    ),
    (
        "roberta",
        side(ANCE, dimension=32),
        "pyserini_ance",
        "pyserini_ance",
        ["gives 768 numbers, this one 32"],
    ),
    ("roberta", side(ANCE, normalize=True), "pyserini_ance", "pyserini_ance", ["does not normalize"]),
    (
        "roberta",
        side(
            ANCE, normalize={"query": False, "document": True}, layer_norm={"query": True, "document": False}
        ),
        "ance",
        "pyserini_ance",
        ["documents: stock `ance` does not normalize", "documents: stock `ance` applies its LayerNorm"],
    ),
    (
        "roberta",
        side(AUTO),
        "pyserini_ance",
        "auto",
        ["256 tokens (model_max_length of its tokenizer), this"],
    ),
    ("roberta", side(AUTO, query_tokens=256), "auto", "auto", []),
    ("bert", side(AUTO), "auto", "auto", []),
    ("bert", side(AUTO, document=TWO_FIELDS), "auto", "auto", []),
    ("bert", side(AUTO, query="query: {text}", document="passage: {text}"), "auto", "auto", []),
    ("bert", side(AUTO, query="{text} [Q]"), "pyserini_ance", "auto", ["cannot build the text of a query"]),
    (
        "bert",
        side(AUTO, document="passage: {title} {text}"),
        "auto",
        "pyserini_ance",
        ["cannot build the text of a document"],
    ),
    # Python makes a final sigma of the last letter of ΟΔΟΣ, BERT's tokenizer does not
    (
        "bert",
        side(AUTO, lowercase=True),
        "pyserini_ance",
        "pyserini_ance",
        ["queries: this checkpoint lower-", "documents: "],
    ),
    (
        "bert",
        side(AUTO, document=PAIR),
        "auto",
        "pyserini_ance",
        ["documents: stock `auto` encodes title and text as a pair"],
    ),
    (
        "bert",
        side(AUTO, projection=8, dimension=8),
        "pyserini_ance",
        "pyserini_ance",
        ["stock `auto` has no linear layer, this"],
    ),
    ("dpr", side(DPR), "dpr", "dpr", []),
    (
        "dpr",
        side(DPR, document=PAIR),
        "dpr",
        "pyserini_ance",
        ["documents: stock `dpr` encodes title and text as a pair, but truncates the longer"],
    ),
    (
        "dpr",
        side(DPR, document=TWO_FIELDS),
        "dpr",
        "pyserini_ance",
        ["documents: stock `dpr` cannot build the text of a document as '{title} {text}'"],
    ),
    ("dpr", side(DPR, query="query: {text}"), "pyserini_ance", "dpr", ["cannot build the text of a query"]),
    (
        "dpr",
        side(DPR, lowercase=True),
        "pyserini_ance",
        "pyserini_ance",
        ["queries: this checkpoint lower-", "documents: "],
    ),
    (
        "cased",
        side(DPR),
        "pyserini_ance",
        "pyserini_ance",
        ["queries: stock `dpr` tokenizes texts in its own way", "documents: "],
    ),
    (
        "bert",
        side(AUTO, kind="cross_encoder"),
        "pyserini_ance",
        "pyserini_ance",
        ["encoder kind 'cross_encoder'"],
    ),
]


@pytest.mark.parametrize("tokenizer, side_file, query_class, document_class, reasons", CASES)
def test_choice(folders, tokenizer, side_file, query_class, document_class, reasons):
    choice = stock_class(side_file, folders[tokenizer])
    assert (choice.query_class, choice.document_class) == (query_class, document_class), choice.reasons
    assert len(choice.reasons) == len(reasons) and all(
        words in why for words, why in zip(reasons, choice.reasons)
    ), choice.reasons
    assert choice.reproduces_exactly == (query_class != "pyserini_ance")


def test_dpr_cuts_no_query(folders):
    """So it is not for one that we would cut."""
    side_file, asked = side(DPR, query_tokens=16), ["x" * 14, "of 14"]
    choice = stock_class(side_file, folders["dpr"], asked)
    assert choice.query_class == "dpr" and choice.describe()[0] == (
        "queries: Pyserini's stock class `dpr` computes the same vectors, up to 16 tokens: it does not "
        "truncate queries"
    )
    longer = stock_class(side_file, folders["dpr"], [*asked, "x" * 15])
    assert (longer.query_class, longer.document_class) == ("pyserini_ance", "dpr")
    assert longer.reasons == (
        "queries: stock `dpr` does not truncate queries, and 1 of 3 are longer than this checkpoint's 16 "
        "tokens",
    )
    assert stock_class(side(AUTO, query_tokens=64), folders["bert"], ["x" * 100]).query_class == "auto"


def test_dprs_pairs_are_read_as_here_but_for_long_titles(bert_tokenizer):
    """What docs/guides/search-with-pyserini.md says: a title of more than half the tokens."""
    settings = Tokenization.model_validate({"document": {"length_tokens": 65, "template": PAIR}})
    ours, theirs = (
        TextTokenizer(AutoTokenizer.from_pretrained(bert_tokenizer), settings),
        DPRContextEncoderTokenizer.from_pretrained(bert_tokenizer),
    )

    def alike(title: str, text: str) -> bool:
        [ids] = ours.ids("document", [{"title": title, "text": text}])
        before, after, _ = ours.specials
        return [*before, *ids[:63], *after] == theirs(
            [title], text_pair=[text], max_length=65, truncation=True
        )["input_ids"][0]

    assert all(
        alike("t " * title, "x " * text) for title in (0, 1, 10, 30, 31) for text in (0, 1, 31, 32, 50, 200)
    )
    assert (
        alike("t " * 40, "x " * 22)
        and not any(alike("t " * 32, "x " * text) for text in (31, 40, 200))
        and not alike("t " * 40, "x " * 23)
    )


def test_flags(folders):
    plain = stock_class(side(ANCE), folders["roberta"])
    assert plain.flags == ()
    assert plain.document_flags == ("--fields", "text", "--max-length", "128", "--dimension", "768")
    one_sided = stock_class(side(AUTO, normalize={"query": True, "document": False}), folders["bert"])
    assert "--l2-norm" in one_sided.flags and "--l2-norm" not in one_sided.document_flags
    prefixed = stock_class(side(AUTO, query="query: {text}", document="passage: {text}"), folders["bert"])
    assert prefixed.flags == ("--pooling", "mean", "--l2-norm", "--query-prefix", "query:")
    dpr = stock_class(side(DPR), folders["dpr"])
    assert dpr.flags == () and dpr.document_flags == (
        "--fields",
        "text",
        "--max-length",
        "128",
        "--dimension",
        "32",
    )
    assert prefixed.document_flags[-5:] == ("--pooling", "mean", "--l2-norm", "--prefix", "passage:")


def test_documents_in_passages_are_encoded_by_none_of_pyserinis_classes(folders):
    whole = side(AUTO)
    document = {**whole["tokenization"]["document"], "passages": 3}
    cut = {**whole, "tokenization": {**whole["tokenization"], "document": document}}
    queries, documents = stock_class(whole, folders["bert"]).describe()
    assert documents == "documents: Pyserini's stock class `auto` computes the same vectors"
    assert stock_class(cut, folders["bert"]).describe() == [
        queries, "documents: split into up to 3 passages by `pyserini-ance encode`, but not by "
                 "Pyserini's own encode"
    ]  # fmt: skip


@pytest.mark.parametrize("l2, query_class", [(False, "pyserini_ance"), (True, "auto")])
def test_a_word_in_the_path_that_pyserini_acts_on(bert_tokenizer, tmp_path, l2, query_class):
    folder = tmp_path / "eclipse"
    folder.symlink_to(bert_tokenizer)
    choice = stock_class(side(AUTO, normalize=l2), folder)
    assert (choice.query_class, choice.document_class) == (query_class, "pyserini_ance")
    assert "path contains clip" in choice.reasons[-1]


def test_dpr_looks_at_no_path_for_queries(bert_tokenizer, tmp_path):
    choice = stock_class(side(DPR), in_dprs_form(bert_tokenizer, tmp_path / "contriever"))
    assert (choice.query_class, choice.document_class) == (
        "dpr",
        "pyserini_ance",
    ) and "path contains contriever" in choice.reasons[0]


def test_ance_needs_the_weight_file_that_pyserini_opens(bert_tokenizer):
    assert "pytorch_model.bin" in stock_class(side(ANCE), bert_tokenizer).reasons[0]


def test_each_tower_of_a_pair_is_weighed_in_its_own_folder(bert_tokenizer, tmp_path):
    shutil.copytree(bert_tokenizer, tmp_path / "queries")
    (tmp_path / "documents").symlink_to(shutil.copytree(bert_tokenizer, tmp_path / "clip"))
    choice = stock_class(side(AUTO, tied=False), tmp_path)
    assert (choice.query_class, choice.query_folder) == ("auto", tmp_path / "queries")
    assert (choice.document_class, choice.document_folder) == ("auto", tmp_path / "documents")
    (tmp_path / "queries" / "tokenizer_config.json").write_text("{}")
    assert stock_class(side(AUTO, tied=False), tmp_path).query_class == "pyserini_ance"
    assert stock_class(side(AUTO, tied=False), tmp_path).document_class == "auto"
