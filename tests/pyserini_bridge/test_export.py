"""Which stock class reproduces which checkpoint, as a table; topics that Pyserini can read back."""

import json
import shutil

import pytest
from transformers import AutoTokenizer, BertTokenizer, DPRContextEncoderTokenizer

from pyserini_ance.encoders.tokenization import TextTokenizer, Tokenization
from pyserini_ance.pyserini_bridge.export import stock_class, write_topics

ANCE = {"pooling": "cls", "layer_norm": True, "normalize": False, "dimension": 768}
AUTO = {"pooling": "mean", "layer_norm": False, "normalize": True, "dimension": 32}
DPR = {"pooling": "cls", "layer_norm": False, "normalize": False, "dimension": 32, "tied": False}
TWO_FIELDS, PAIR, OURS = "{title} {text}", "{title} [SEP] {text}", "pyserini_ance"


def side(base, *, lowercase=False, query="{text}", tokens=64, document="{text}", passages=1, **changes):
    documents = {"length_tokens": 128, "template": document, "passages": passages}
    queries = {"length_tokens": tokens, "template": query}
    tokenization = {"lowercase": lowercase, "query": queries, "document": documents}
    return {"format": 2, **base, **changes, "tokenization": tokenization}


def in_dprs_form(tokenizer, folder):
    for tower in ("queries", "documents"):
        shutil.copytree(tokenizer, folder / tower)
        (folder / tower / "config.json").write_text(json.dumps({"model_type": "dpr"}))
    return folder


@pytest.fixture(scope="module")
def folders(roberta, bert_tokenizer, tmp_path_factory):
    """Folders of checkpoints, as far as their tokenizers; some paths have words that Pyserini acts on."""
    made = tmp_path_factory.mktemp("made")
    shutil.copytree(roberta, made / "ance")
    (made / "ance" / "pytorch_model.bin").touch()
    for name in ("dpr", "cased", "contriever"):
        in_dprs_form(bert_tokenizer, made / name)
    for tower in (made / "cased" / "queries", made / "cased" / "documents"):
        BertTokenizer.from_pretrained(tower, do_lower_case=False).save_pretrained(tower)
    for name in ("bert", "eclipse"):
        (made / name).symlink_to(bert_tokenizer)
    return made


SPLIT = {"normalize": "document", "layer_norm": "query"}
CASES = [
    # folder, side file, query class, document class, fragments of the reasons
    ("ance", side(ANCE), "ance", "ance", []),
    ("ance", side(ANCE, document=TWO_FIELDS), "ance", OURS, ["documents: stock `ance` reads"]),
    ("ance", side(ANCE, lowercase=True), OURS, OURS, ["queries: stock", "documents: stock"]),
    ("ance", side(ANCE, tokens=32), OURS, "ance", ["in 32 tokens"]),
    ("ance", side(ANCE, query="query: {text}"), OURS, "ance", ["by 'query: {text}'"]),
    ("ance", side(ANCE, dimension=32), OURS, OURS, ["gives 768 numbers, this one 32"]),
    ("ance", side(ANCE, normalize=True), OURS, OURS, ["does not normalize"]),
    ("ance", side(ANCE, **SPLIT), "ance", OURS, ["documents: ", "applies its LayerNorm"]),
    ("bert", side(ANCE), OURS, OURS, ["lacks"]),
    ("ance", side(AUTO), OURS, "auto", ["in 64 tokens"]),
    ("ance", side(AUTO, tokens=256), "auto", "auto", []),
    ("bert", side(AUTO), "auto", "auto", []),
    ("bert", side(AUTO, document=TWO_FIELDS), "auto", "auto", []),
    ("bert", side(AUTO, query="query: {text}", document="passage: {text}"), "auto", "auto", []),
    ("bert", side(AUTO, query="{text} [Q]"), OURS, "auto", ["by '{text} [Q]'"]),
    ("bert", side(AUTO, document="passage: {title} {text}"), "auto", OURS, ["'passage: {title} {text}'"]),
    ("bert", side(AUTO, document="{url} {text}"), "auto", OURS, ["'{url} {text}'"]),
    # Python makes a final sigma of the last letter of ΟΔΟΣ, BERT's tokenizer does not
    ("bert", side(AUTO, lowercase=True), OURS, OURS, ["queries: stock", "documents: stock"]),
    ("bert", side(AUTO, projection=8, dimension=8), OURS, OURS, ["no linear layer"]),
    ("bert", side(AUTO, truncate_dim=8, dimension=8), OURS, OURS, ["whole vectors, this checkpoint their"]),
    ("eclipse", side(AUTO, normalize=False), OURS, OURS, ["Pyserini acts on clip in the path"]),
    ("eclipse", side(AUTO), "auto", OURS, ["documents: Pyserini acts on clip in the path"]),
    ("dpr", side(DPR), "dpr", "dpr", []),
    ("dpr", side(DPR, document=PAIR), "dpr", OURS, ["documents: stock `dpr` reads"]),
    ("dpr", side(DPR, query="query: {text}"), OURS, "dpr", ["by 'query: {text}'"]),
    ("dpr", side(DPR, lowercase=True), OURS, OURS, ["queries: stock", "documents: stock"]),
    ("dpr", side(DPR, query="{text} [Q]", tokens=16), OURS, "dpr", ["by '{text} [Q]'"]),
    ("cased", side(DPR), OURS, OURS, ["stock `dpr` tokenizes texts in its own way"]),
    ("contriever", side(DPR), "dpr", OURS, ["acts on contriever"]),
    ("bert", side(AUTO, pooling="lasttoken"), OURS, OURS, ["no stock class has this checkpoint's modules"]),
]


@pytest.mark.parametrize("folder, side_file, query_class, document_class, reasons", CASES)
def test_choice(folders, folder, side_file, query_class, document_class, reasons):
    choice = stock_class(side_file, folders / folder)
    assert (choice.query_class, choice.document_class) == (query_class, document_class), choice.notes
    assert all(any(words in note for note in choice.notes) for words in reasons), choice.notes
    assert any(OURS in note for note in choice.notes) == (OURS in (query_class, document_class))


def test_dpr_cuts_no_query(folders):
    """So it is not for one that we would cut."""
    side_file, asked = side(DPR, tokens=16), ["x" * 14, "of 14"]
    choice = stock_class(side_file, folders / "dpr", asked)
    assert choice.query_class == "dpr"
    assert choice.notes[0].endswith("up to 16 tokens: it does not truncate queries")
    longer = stock_class(side_file, folders / "dpr", [*asked, "x" * 15])
    assert (longer.query_class, longer.document_class) == (OURS, "dpr")
    assert "'xxxxxxxxxxxxxxx' after 15 tokens" in longer.notes[-1]
    assert stock_class(side(AUTO), folders / "bert", ["x" * 100]).query_class == "auto"


def test_dprs_pairs_are_read_as_here_but_for_long_titles(bert_tokenizer):
    """What docs/guides/search-with-pyserini.md says: a title of more than half the tokens."""
    settings = Tokenization.model_validate({"document": {"length_tokens": 65, "template": PAIR}})
    ours = TextTokenizer(AutoTokenizer.from_pretrained(bert_tokenizer), settings)
    theirs = DPRContextEncoderTokenizer.from_pretrained(bert_tokenizer)

    def alike(title: int, text: int) -> bool:
        record = {"title": "t " * title, "text": "x " * text}
        [ids] = ours.ids("document", [record])
        before, after, _ = ours.specials
        pair = theirs([record["title"]], [record["text"]], max_length=65, truncation=True)["input_ids"]
        return [[*before, *ids[:63], *after]] == pair

    assert all(alike(title, text) for title in (0, 1, 10, 30, 31) for text in (0, 1, 31, 32, 50, 200))
    assert alike(40, 22)
    assert not any(alike(title, text) for title, text in [(32, 31), (32, 40), (32, 200), (40, 23)])


def test_flags(folders):
    sizes = ("--fields", "text", "--max-length", "128", "--dimension")
    for folder, settings in (("ance", ANCE), ("dpr", DPR)):
        plain = stock_class(side(settings), folders / folder)
        assert plain.flags == () and plain.document_flags == (*sizes, str(settings["dimension"]))
    one_sided = stock_class(side(AUTO, normalize="query"), folders / "bert")
    assert "--l2-norm" in one_sided.flags and "--l2-norm" not in one_sided.document_flags
    prefixed = stock_class(side(AUTO, query="query: {text}", document="passage: {text}"), folders / "bert")
    assert prefixed.flags == ("--pooling", "mean", "--l2-norm", "--query-prefix", "query:")
    assert prefixed.document_flags[-5:] == ("--pooling", "mean", "--l2-norm", "--prefix", "passage:")


def test_documents_in_passages_are_encoded_by_none_of_pyserinis_classes(folders):
    queries, documents = stock_class(side(AUTO), folders / "bert").notes
    assert documents == "documents: Pyserini's stock class `auto` computes the same vectors"
    split = stock_class(side(AUTO, passages=3), folders / "bert").notes
    assert split[0] == queries and "split into up to 3 passages by `pyserini-ance encode`" in split[1]


def test_each_tower_of_a_pair_is_weighed_in_its_own_folder(bert_tokenizer, tmp_path):
    shutil.copytree(bert_tokenizer, tmp_path / "queries")
    (tmp_path / "documents").symlink_to(shutil.copytree(bert_tokenizer, tmp_path / "clip"))
    choice = stock_class(side(AUTO, tied=False), tmp_path)
    assert (choice.query_class, choice.query_folder) == ("auto", tmp_path / "queries")
    assert (choice.document_class, choice.document_folder) == ("auto", tmp_path / "documents")
    (tmp_path / "queries" / "tokenizer_config.json").write_text("{}")
    for tokens in (64, 4096):
        without_limit = stock_class(side(AUTO, tied=False, tokens=tokens), tmp_path)
        assert (without_limit.query_class, without_limit.document_class) == (OURS, "auto")


def test_topics_that_survive_are_tsv(tmp_path):
    assert write_topics([("q1", " What is it?  "), ("10", "two  blanks")], tmp_path).name == "topics.test.tsv"
    assert (tmp_path / "topics.test.tsv").read_text() == "q1\tWhat is it?\n10\ttwo  blanks\n"
    assert not (tmp_path / "topics.test.json").exists()


CHANGED = [
    ("007", "x"),
    ("+7", "x"),
    ("²", "x"),
    ("٣", "x"),
    ("q", "tab\tinside"),
    ("q", "two\nlines"),
    ("q", "\x01x"),
]


@pytest.mark.parametrize("query", CHANGED)
def test_topics_that_do_not_survive_are_json_too(tmp_path, query):
    assert write_topics([query, ("1", "y")], tmp_path).name == "topics.test.json"
    topics = json.loads((tmp_path / "topics.test.json").read_text())
    assert topics == {query[0]: {"title": query[1]}, "1": {"title": "y"}}
    assert len((tmp_path / "topics.test.tsv").read_text().splitlines()) == 2


def test_numbers_are_strings_where_the_search_compares_them_with_documents(tmp_path):
    assert write_topics([("7", "x")], tmp_path).suffix == ".tsv"
    assert write_topics([("7", "x")], tmp_path, remove_query=True).suffix == ".json"
    assert write_topics([("q7", "x")], tmp_path, remove_query=True).suffix == ".tsv"


def test_query_ids_that_a_run_cannot_carry(tmp_path):
    with pytest.raises(ValueError, match=r"1 query ids .*'a b'"):
        write_topics([("a b", "x")], tmp_path)
    assert not list(tmp_path.iterdir())
