"""DPR's reader with random weights against transformers' own decoding, one passage at a time."""

from functools import lru_cache

import pytest
import torch
from helpers.small_set import TINY_SHAPE
from transformers import AutoTokenizer, DPRConfig, DPRReader, DPRReaderTokenizer

from benchmarks.papers.readers.base import NO_ANSWER, Passage
from benchmarks.papers.readers.dpr import DprReaderSettings

LENGTH = 70
QUESTIONS = ["Which river of the title", "who and the horse"]


@pytest.fixture(scope="module")
def model(tiny_bert, tmp_path_factory) -> str:
    """As hubs have it: a vocabulary, and settings that say lower case."""
    folder, tokenizer = tmp_path_factory.mktemp("dpr"), AutoTokenizer.from_pretrained(tiny_bert)
    torch.manual_seed(4)
    config = DPRConfig(**TINY_SHAPE, max_position_embeddings=128, vocab_size=len(tokenizer))
    DPRReader(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text((tiny_bert / "vocab.txt").read_text())
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "model_max_length": 128}')
    return str(folder)


@lru_cache
def loaded(folder: str):
    return DPRReaderTokenizer.from_pretrained(folder), DPRReader.from_pretrained(folder).eval()


@torch.inference_mode()
def slowly(folder: str, question: str, passage: Passage) -> tuple[float, str]:
    """Relevance, and the words that the best span of the text lies in, in lower case, without blanks."""
    tokenizer, model = loaded(folder)
    text = {"titles": [passage.record["title"]], "texts": [passage.record["text"]]}
    how = {**text, "max_length": LENGTH, "truncation": True, "return_tensors": "pt"}
    encoded = tokenizer(questions=question, **how)
    found, tokens = model(**encoded), tokenizer.convert_ids_to_tokens(encoded["input_ids"][0])
    text = [place for place, token in enumerate(tokens) if token == "[SEP]"][1] + 1
    starts, ends = (logits[0, text:].tolist() for logits in (found.start_logits, found.end_logits))
    ((begin, end),) = tokenizer._get_best_spans(starts, ends, max_answer_length=6, top_spans=1)
    begin, end = begin + text, end + text
    while tokens[begin].startswith("##"):
        begin -= 1
    while end + 1 < len(tokens) and tokens[end + 1].startswith("##"):
        end += 1
    words = tokenizer.convert_tokens_to_string(tokens[begin : end + 1])
    return float(found.relevance_logits[0]), words.replace(" ", "")


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_most_relevant_of_the_first_passages_answers(model, passages, question):
    each = [slowly(model, question, passage) for passage in passages]
    settings = {"length_tokens": LENGTH, "answer_tokens": 6, "batch_passages": 2}
    reader = DprReaderSettings(model=model, **settings).open("cpu")
    found = reader.answers(question, passages, [1, 3, 7])
    alone = [reader.answers(question, [passage], [1])[0] for passage in passages]
    places = [max(range(depth), key=lambda p: each[p][0]) for depth in (1, 3, 7)]
    assert [answer.passage for answer in found] == places
    for answer, place in [*zip(found, places), *zip(alone, range(7))]:
        relevance, text = each[place]
        assert answer.score == pytest.approx(relevance, abs=1e-5)
        assert answer.text in passages[place].record["text"]
        assert answer.text.lower().replace(" ", "") == text


def test_nothing_to_read(model):
    reader = DprReaderSettings(model=model, length_tokens=20).open("cpu")
    assert reader.answers("who", [], [1]) == [NO_ANSWER]
    long = [Passage({"title": "a title that leaves no room for any text", "text": "river"}, 1.0)]
    assert reader.answers("who", long, [1]) == [NO_ANSWER]
