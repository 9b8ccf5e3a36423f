import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.encoders.tokenization import (
    DocumentTokenization,
    TextTokenizer,
    Tokenization,
    count_cut,
    count_cut_characters,
    split_into_passages,
    token_store,
)

ONE_PASSAGE = "special_tokens is per_document, but documents have one passage; set passages, or remove"
SPECIALS = Specials((1,), (2, 3), 0)
LENGTHS = [0, 1, 7, 8, 9, 10, 14, 15, 16, 17, 18, 27, 28, 40]
PASSAGES = [{}, {"passages": 2}, {"passages": 2, "special_tokens": "per_document"}]
# A template, a record, and the text that is encoded.
RECORDS = [("{text}", {"text": " a  b\n"}, " a  b\n"), ("{title} {text}", {"title": "T", "text": "x"}, "T x")]
RECORDS += [("{title} {text}", {"title": "", "text": "x"}, "x"), ("{title} {text}", {"text": "x"}, "x")]
RECORDS += [("query: {text}", {"text": "{title}", "title": "T"}, "query: {title}")]
RECORDS += [("{text} ({year})", {"text": r"\1 {", "year": "1999"}, r"\1 { (1999)")]
# The blanks of a prompt stay, those around an empty field do not.
RECORDS += [(" passage: {title} {text}", {"title": "T", "text": "x\n"}, " passage: T x\n")]
RECORDS += [("passage: {title} {text}", {"text": " x"}, "passage:  x")]
RECORDS += [("passage: {title}\n{text}", {"title": "T", "text": ""}, "passage: T")]
RECORDS += [("{url} {title}\n{text}", {"url": "u", "title": "", "text": "x"}, "u\nx")]
RECORDS += [("{title} [SEP] {text}", {"text": "x"}, " [SEP] x")]
POST = [(None, (), ()), ("$A </s>", (), (3,)), ("<s> $A", (2,), ()), ("<s> <s> $A </s> </s>", (2, 2), (3, 3))]


def tokenization(**settings) -> Tokenization:
    return Tokenization.model_validate(settings)


@pytest.mark.parametrize("template, record, text", RECORDS)
def test_a_record_becomes_one_text(template, record, text):
    assert tokenization(query={"length_tokens": 9, "template": template}).text("query", record) == text


def test_lower_case_and_the_limit_on_characters_are_ours():
    assert tokenization(lowercase=True).text("query", {"text": "ÜBER the TOP"}) == "über the top"
    settings = tokenization(max_characters=4, document={"template": "d: {text}"})
    assert settings.text("query", {"text": "Übermäßig"}) == "Über"
    texts = Texts(list("abc"), {"text": ["four", " four ", "fünf5"]})
    assert [count_cut_characters(texts, side, settings) for side in ("query", "document")] == [1, 3]
    assert count_cut_characters(texts, "query", tokenization()) == 0


def test_ids_are_the_tokenizers_without_special_tokens(tiny_bert):
    plain = AutoTokenizer.from_pretrained(tiny_bert)
    tokenizer = TextTokenizer(AutoTokenizer.from_pretrained(tiny_bert), Tokenization())
    texts = ["The query, 007!", "", "of " * 500, f"of{' ' * 200_000}of", "internationalization " * 3000]
    expected = [plain(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert tokenizer.ids("query", [{"text": text} for text in texts]) == expected
    assert len(expected[2]) == 500 and len(expected[3]) == 2
    assert tokenizer.ids("query", []) == []
    assert tokenizer.specials["query"] == ((plain.cls_token_id,), (plain.sep_token_id,), plain.pad_token_id)


def test_a_separator_in_a_template_is_the_tokenizers_own(tiny_bert, tiny_roberta):
    """DPR's title and passage are a pair; to RoBERTa `<sep>` is text, as in microsoft/ANCE; `</s>` is not."""
    record = {"title": "The title", "text": "a text"}

    def ids(folder, template: str, lowercase: bool = False) -> tuple[list[int], PreTrainedTokenizerFast]:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        settings = tokenization(lowercase=lowercase, document={"template": template})
        return TextTokenizer(tokenizer, settings).ids("document", [record])[0], tokenizer

    found, bert = ids(tiny_bert, "{title} [SEP] {text}")
    assert found == bert("The title", "a text")["input_ids"][1:-1]
    found, roberta = ids(tiny_roberta, "{title}</s>{text}", lowercase=True)
    assert found.count(roberta.sep_token_id) == 1
    found, roberta = ids(tiny_roberta, "{title}<sep>{text}", lowercase=True)
    assert roberta.decode(found, clean_up_tokenization_spaces=False) == "the title<sep>a text"
    assert not set(found) & set(roberta.all_special_ids)


@pytest.mark.parametrize("prefix_space", [None, False, True])
def test_prefix_space_of_a_byte_level_tokenizer(tiny_roberta, tmp_path, prefix_space):
    settings = {} if prefix_space is None else {"add_prefix_space": prefix_space}
    theirs = AutoTokenizer.from_pretrained(tiny_roberta, **settings)
    ours = TextTokenizer(AutoTokenizer.from_pretrained(tiny_roberta), tokenization(prefix_space=prefix_space))
    texts = ["the cat", "The Cat", " two  blanks", "ünïcode 東京"]
    expected = [theirs(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert ours.ids("query", [{"text": text} for text in texts]) == expected
    blank = theirs.convert_tokens_to_ids("Ġ")
    begins = [ids[0] == blank for ids in expected]
    assert begins == [bool(prefix_space) or text.startswith(" ") for text in texts]
    ours.tokenizers["query"].save_pretrained(tmp_path)
    reopened = AutoTokenizer.from_pretrained(tmp_path)
    assert [reopened(text, add_special_tokens=False)["input_ids"] for text in texts] == expected


def test_texts_of_a_collection_are_read_without_outer_blanks(tiny_roberta, tmp_path):
    """As Pyserini reads them; a byte-level tokenizer has tokens for blanks."""
    tokenizer = TextTokenizer(AutoTokenizer.from_pretrained(tiny_roberta), Tokenization())
    texts = Texts(["a"], {"title": [" the title\n"], "text": ["\tthe text "]})
    store = token_store(tokenizer, "document", texts, tmp_path / "tokens", "documents")
    expected = tokenizer.tokenizers["document"]("the title the text")["input_ids"]
    assert store.batch(np.array([0]), 99)[0].tolist() == [expected]


def word_level(post: str | None) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "a": 1, "<s>": 2, "</s>": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    if post:
        special = [("a", 1), ("<s>", 2), ("</s>", 3)]
        tokenizer.post_processor = TemplateProcessing(single=post, special_tokens=special)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


@pytest.mark.parametrize("post, before, after", POST)
def test_special_tokens_are_found_whatever_they_are(post, before, after):
    assert TextTokenizer(word_level(post), Tokenization()).specials["query"] == (before, after, 0)


def test_what_cannot_be_is_refused(tiny_bert):
    with pytest.raises(ValueError, match="expected a text with a field"):
        tokenization(query={"length_tokens": 9, "template": "text"})
    with pytest.raises(ValueError, match=ONE_PASSAGE):
        DocumentTokenization(special_tokens="per_document")
    with pytest.raises(ValueError, match="cannot determine the special tokens"):
        TextTokenizer(word_level("a $A"), Tokenization())
    with pytest.raises(ValueError, match="prefix_space is for byte-level tokenizers"):
        TextTokenizer(AutoTokenizer.from_pretrained(tiny_bert), tokenization(prefix_space=True))


def encoded_tokens(store: TokenStore, settings: Tokenization) -> list[int]:
    """The number of text tokens that are encoded of each document."""
    rows, passages = split_into_passages(store, settings)
    ids, mask = rows.batch(np.arange(len(rows)), settings.document.length_tokens)
    counts = ((ids >= 100) & (mask == 1)).sum(1)
    if passages is None:
        return counts.tolist()
    return np.add.reduceat(counts, passages.offsets[:-1]).tolist()


@pytest.mark.parametrize("length", [8, 11, 30])
@pytest.mark.parametrize("passages", PASSAGES, ids=str)
def test_a_text_counts_as_cut_if_some_of_its_tokens_are_not_encoded(length, passages):
    store = TokenStore.of_lists([range(100, 100 + n) for n in LENGTHS], SPECIALS)
    document = DocumentTokenization(length_tokens=length, template="{text}", **passages)
    encoded = encoded_tokens(store, Tokenization(document=document))
    cut, limit = count_cut(np.array(LENGTHS), SPECIALS, document)
    assert cut == sum(a < b for a, b in zip(encoded, LENGTHS, strict=True))
    assert limit == ("2 passages of " if passages else "") + str(length)
