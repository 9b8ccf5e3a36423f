"""RAG-Token against probabilities mixed by hand, token by token; its inputs against RagRetriever's own."""

import json
from functools import lru_cache
from types import SimpleNamespace

import pytest
import torch
import transformers
from helpers.small_set import PASSAGE_WORDS
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from benchmarks.papers.readers.base import NO_ANSWER
from benchmarks.papers.readers.rag_token import RagToken

QUESTION = "Which River of the title"


@pytest.fixture(scope="module")
def model(tiny_bert, tmp_path_factory) -> str:
    """A random BART that reads words; its configuration tells its special tokens, as in rag-token-nq."""
    folder = tmp_path_factory.mktemp("rag")
    words = ["<s>", "<pad>", "</s>", "<unk>", "/", "//", *PASSAGE_WORDS, "which"]
    vocabulary = {word: place for place, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=special)
    marks = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    generator = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks)
    cls = transformers.DPRQuestionEncoderTokenizer
    question_encoder = cls.from_pretrained(str(tiny_bert), do_lower_case=True)
    sizes = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}
    shape = {f"{side}_{key}": size for side in ("encoder", "decoder") for key, size in sizes.items()}
    special = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2)
    special |= dict(decoder_start_token_id=2, forced_eos_token_id=2)
    shape |= {"vocab_size": len(words), "d_model": 16, "max_position_embeddings": 64, "init_std": 0.4}
    bart = transformers.BartConfig(**shape, **special)
    tiny = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    dpr = transformers.DPRConfig(vocab_size=len(question_encoder), **tiny)
    torch.manual_seed(6)
    settings = {**special, "n_docs": 5, "max_combined_length": 24, "is_encoder_decoder": True}
    config = transformers.RagConfig.from_question_encoder_generator_configs(dpr, bart, **settings)
    transformers.RagTokenForGeneration(config=config).save_pretrained(folder)
    transformers.RagTokenizer(question_encoder, generator).save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**told, **dict.fromkeys(special)}))
    return str(folder)


@lru_cache
def loaded(folder: str):
    config = transformers.RagConfig.from_pretrained(folder)
    tokenizer = transformers.RagTokenizer.from_pretrained(folder, config=config)
    return transformers.RagTokenForGeneration.from_pretrained(folder).eval(), tokenizer


@torch.inference_mode()
def next_tokens(folder: str, contexts: list[str], scores: list[float], prefix: list[int]) -> torch.Tensor:
    """(V,) probabilities: of each passage alone, without a cache, mixed by the softmax of their scores."""
    model, tokenizer = loaded(folder)
    mixed = 0
    for context, weight in zip(contexts, torch.tensor(scores).softmax(0), strict=True):
        inputs = tokenizer.generator([context], max_length=24, truncation=True, return_tensors="pt")
        mask = {"attention_mask": inputs["attention_mask"]}
        read, written = inputs["input_ids"], torch.tensor([prefix])
        logits = model.generator(input_ids=read, decoder_input_ids=written, **mask).logits[0, -1]
        mixed = mixed + weight * logits.softmax(0)
    return mixed


def test_greedy_answers_take_the_likeliest_token_of_the_mixture(model, passages):
    reader = RagToken(model=model, beams=1, answer_tokens=7).open("cpu")
    for depth, answer in zip([1, 3, 7], reader.answers(QUESTION, passages, [1, 3, 7]), strict=True):
        contexts = [reader.context(QUESTION, passage.record) for passage in passages[:depth]]
        scores, said = [passage.score for passage in passages[:depth]], [2]
        while len(said) < 6 and (len(said) == 1 or said[-1] != 2):
            mixed = next_tokens(model, contexts, scores, said).clone()
            if said[-1] == 0:
                mixed[0] = 0  # never two begin-of-text tokens in a row
            if len(said) < 2:
                mixed[2] = 0  # min_length
            said.append(int(mixed.argmax()))
        text = loaded(model)[1].generator.decode(said, skip_special_tokens=True).strip()
        assert (answer.text, answer.passage, answer.score) == (text, None, None)
    assert reader.answers("who", [], [1, 5]) == [NO_ANSWER] * 2


def test_beams_have_the_log_probability_of_their_answer_by_its_length(model, passages):
    """Two tokens: the first is free, and the end is forced."""
    reader = RagToken(model=model, beams=4, answer_tokens=3).open("cpu")
    (answer,) = reader.answers(QUESTION, passages[:3], [3])
    contexts = [reader.context(QUESTION, passage.record) for passage in passages[:3]]
    likeliest = next_tokens(model, contexts, [passage.score for passage in passages[:3]], [2]).clone()
    likeliest[2] = 0
    assert answer.score == pytest.approx(likeliest.max().log().item() / 2, abs=1e-3)


def test_what_a_passage_becomes_is_what_rag_retriever_makes_of_it(model, passages):
    reader = RagToken(model=model).open("cpu")
    config, tokenizer = reader.model.config, reader.tokenizer
    records = [passage.record for passage in passages[:5]] + [{"title": '"Quoted"', "text": "two  blanks"}]
    docs = [{key: [record[key] for record in records] for key in ("title", "text")}]
    encoder = tokenizer.question_encoder
    asked = encoder.decode(encoder(QUESTION)["input_ids"], skip_special_tokens=True)
    given = []
    stand_in = SimpleNamespace(
        config=config,
        generator_tokenizer=lambda texts, **how: given.extend(texts) or {"input_ids": 0, "attention_mask": 0},
    )
    transformers.RagRetriever.postprocess_docs(stand_in, docs, [asked], None, len(records))
    assert [reader.context(QUESTION, record) for record in records] == given
    assert given[-1] == "Quoted / two blanks // which river of the title"
