"""RAG-Token with random weights against probabilities mixed by hand, token by token; its inputs against
RagRetriever's own.
"""

import json
from functools import lru_cache
from types import SimpleNamespace

import pytest
import torch
from helpers.small_set import PASSAGE_WORDS
from transformers import (
    BartConfig,
    DPRConfig,
    DPRQuestionEncoderTokenizer,
    PreTrainedTokenizerFast,
    RagConfig,
    RagRetriever,
    RagTokenForGeneration,
    RagTokenizer,
)

from benchmarks.papers.readers.base import NO_ANSWER
from benchmarks.papers.readers.rag_token import RagToken

QUESTION = "Which River of the title"


@pytest.fixture(scope="module")
def model(tiny_bert, tmp_path_factory) -> str:
    """A random BART generator that reads words, its special tokens told by the generator's configuration
    alone, as in facebook/rag-token-nq.
    """
    folder = tmp_path_factory.mktemp("rag")
    words = ["<s>", "<pad>", "</s>", "<unk>", "/", "//", *PASSAGE_WORDS, "which"]
    generator = _words(words)
    question_encoder = DPRQuestionEncoderTokenizer.from_pretrained(str(tiny_bert), do_lower_case=True)
    shape = dict(
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
    )
    special = dict(
        pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2
    )
    bart = BartConfig(
        vocab_size=len(words), d_model=16, max_position_embeddings=64, init_std=0.4, **shape, **special
    )
    dpr = DPRConfig(
        vocab_size=len(question_encoder),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    torch.manual_seed(6)
    config = RagConfig.from_question_encoder_generator_configs(
        dpr, bart, n_docs=5, max_combined_length=24, is_encoder_decoder=True, **special
    )
    RagTokenForGeneration(config=config).save_pretrained(folder)
    RagTokenizer(question_encoder, generator).save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**told, **dict.fromkeys(special)}))
    return str(folder)


def _words(words: list[str]) -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


@lru_cache
def loaded(folder: str):
    config = RagConfig.from_pretrained(folder)
    return RagTokenForGeneration.from_pretrained(folder).eval(), RagTokenizer.from_pretrained(
        folder, config=config
    )


@torch.inference_mode()
def next_tokens(folder: str, contexts: list[str], scores: list[float], prefix: list[int]) -> torch.Tensor:
    """(V,) probabilities: of each passage alone, without a cache, mixed by the softmax of their scores."""
    model, tokenizer = loaded(folder)
    mixed = 0
    for context, weight in zip(contexts, torch.tensor(scores).softmax(0), strict=True):
        inputs = tokenizer.generator([context], max_length=24, truncation=True, return_tensors="pt")
        mask = {"attention_mask": inputs["attention_mask"]}
        logits = model.generator(
            input_ids=inputs["input_ids"], decoder_input_ids=torch.tensor([prefix]), **mask
        ).logits[0, -1]
        mixed = mixed + weight * logits.softmax(0)
    return mixed


def probability(folder, contexts, scores, words: list[int]) -> float:
    """log-probability of the tokens behind the first."""
    return sum(
        next_tokens(folder, contexts, scores, words[:i])[words[i]].log().item() for i in range(1, len(words))
    )


def contexts_of(reader, passages) -> list[str]:
    return [reader.context(QUESTION, passage.record) for passage in passages]


def test_greedy_answers_take_the_likeliest_token_of_the_mixture(model, passages):
    reader = RagToken(model=model, beams=1, answer_tokens=7).open("cpu")
    for depth, answer in zip([1, 3, 7], reader.answers(QUESTION, passages, [1, 3, 7]), strict=True):
        contexts, scores, said = (
            contexts_of(reader, passages[:depth]),
            [passage.score for passage in passages[:depth]],
            [2],
        )
        while len(said) < 6:
            mixed = next_tokens(model, contexts, scores, said).clone()
            if said[-1] == 0:
                mixed[0] = 0  # never two begin-of-text tokens in a row
            if len(said) < 2:
                mixed[2] = 0  # min_length
            said.append(int(mixed.argmax()))
            if said[-1] == 2:
                break
        assert (
            answer.text == loaded(model)[1].generator.decode(said, skip_special_tokens=True).strip()
            and answer.passage is None
        )
    assert answer.score is None


def test_beams_end_with_the_score_of_their_answer(model, passages):
    """The score is the mixture's log-probability of all tokens, by their number; no worse than greedy's."""
    reader = RagToken(model=model, beams=4, answer_tokens=7).open("cpu")
    found = {}

    def keep(**how):
        found.update(sequences=generate(**how))
        return found["sequences"]

    generate, reader.model.generate = reader.model.generate, keep
    (answer,) = reader.answers(QUESTION, passages[:3], [3])
    words = found["sequences"].sequences[0].tolist()
    words = words[: words.index(2, 1) + 1] if 2 in words[1:] else words
    scores = [passage.score for passage in passages[:3]]
    known = words[:-1] if len(words) == 7 else words  # the end is forced at the greatest length
    assert answer.score * (len(words) - 1) == pytest.approx(
        probability(model, contexts_of(reader, passages[:3]), scores, known), abs=1e-3
    )


def test_never_two_begin_of_text_tokens_in_a_row(model, passages):
    reader, kept = RagToken(model=model, beams=1, answer_tokens=7).open("cpu"), []
    reader.model.generator.final_logits_bias[0, 0] = 100
    generate = reader.model.generate
    reader.model.generate = lambda **how: kept.append(generate(**how)) or kept[0]
    reader.answers(QUESTION, passages, [2])
    said = kept[0].sequences[0].tolist()
    assert said[1] == said[3] == said[5] == 0 and 0 not in (said[2], said[4]) and len(said) == 7


def test_what_a_passage_becomes_is_what_rag_retriever_makes_of_it(model, passages):
    reader = RagToken(model=model).open("cpu")
    config, tokenizer = reader.model.config, reader.tokenizer
    records = [passage.record for passage in passages[:5]] + [{"title": '"Quoted"', "text": "two  blanks"}]
    docs = [
        {"title": [record["title"] for record in records], "text": [record["text"] for record in records]}
    ]
    asked = tokenizer.question_encoder.decode(
        tokenizer.question_encoder(QUESTION)["input_ids"], skip_special_tokens=True
    )
    given = []
    stand_in = SimpleNamespace(
        config=config,
        generator_tokenizer=lambda texts, **how: given.extend(texts) or {"input_ids": 0, "attention_mask": 0},
    )
    RagRetriever.postprocess_docs(stand_in, docs, [asked], None, len(records))
    assert [reader.context(QUESTION, record) for record in records] == given
    assert given[-1] == "Quoted / two blanks // which river of the title"


def test_nothing_to_read(model):
    assert RagToken(model=model).open("cpu").answers("who", [], [1, 5]) == [NO_ANSWER] * 2


def test_the_order_of_scores_matters_and_padding_does_not(model, passages):
    """A passage alone, and the same among others that weigh nothing."""
    reader = RagToken(model=model, beams=1, answer_tokens=7).open("cpu")
    heavy = [passages[0]._replace(score=1000.0), *passages[1:]]
    alone, among = reader.answers(QUESTION, heavy, [1, 7])
    assert alone.text == among.text
