"""Families of models that people start from: random weights of two layers, their real tokenizer classes."""

import string
from pathlib import Path

import numpy as np
import torch
import transformers
from helpers.small_set import TINY_SHAPE
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

TEXTS = ["", "a short one", "A longer text, of many more words and letters. " * 3]
LENGTHS = {"query": {"length_tokens": 24, "template": "query: {text}"}, "document": {"length_tokens": 48}}
SHAPE = {**TINY_SHAPE, "max_position_embeddings": 100}
BYTES = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
LETTERS = ["▁", *string.ascii_letters, *string.punctuation]


def numbered(*special: str) -> dict[str, int]:
    return {piece: number for number, piece in enumerate([*special, *LETTERS])}


def qwen():
    return transformers.Qwen2Tokenizer(vocab={**BYTES, "<|endoftext|>": len(BYTES)}, merges=[])


def llama(**settings):
    return transformers.LlamaTokenizer(vocab=numbered("<unk>", "<s>", "</s>"), merges=[], **settings)


def gemma():
    vocab = numbered("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    return transformers.GemmaTokenizer(vocab=vocab, merges=[], add_bos_token=True, add_eos_token=True)


def xlm_roberta():
    special = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces = [(letter, -1.0) for letter in LETTERS]
    return transformers.XLMRobertaTokenizer(vocab=[*special, *pieces, ("<mask>", 0.0)])


def bert():
    vocab = numbered("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    inner = {f"##{letter}": len(vocab) + number for number, letter in enumerate(LETTERS)}
    return transformers.BertTokenizer(vocab={**vocab, **inner})


def modern_bert():
    tokenizer = Tokenizer(models.BPE(vocab=dict(BYTES), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "[PAD]"])
    first, last = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    around = [("[CLS]", first), ("[SEP]", last)]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


GROUPED = {"num_key_value_heads": 2}
WINDOWS = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
# The name of the model's class, its tokenizer, further settings, and the pooling.
FAMILIES = {
    "Qwen3": (qwen, {**GROUPED, "head_dim": 8}, "lasttoken"),
    "Llama": (llama, GROUPED, "lasttoken"),
    "Mistral": (lambda: llama(add_bos_token=True), {**GROUPED, "sliding_window": 16}, "lasttoken"),
    "Gemma3Text": (gemma, {**GROUPED, **WINDOWS, "head_dim": 8, "use_bidirectional_attention": True}, "mean"),
    "ModernBert": (modern_bert, {}, "cls"),
    "XLMRoberta": (xlm_roberta, {}, "mean"),
    "NomicBert": (bert, {}, "mean"),
}


def make_family(folder: Path, name: str) -> Path:
    """A model of Hugging Face in a folder."""
    tokenizer, settings, _ = FAMILIES[name]
    made = tokenizer()
    made.save_pretrained(folder)
    special = {f"{kind}_token_id": getattr(made, f"{kind}_token_id") for kind in ("pad", "bos", "eos")}
    entries = max(made.get_vocab().values()) + 1
    config = getattr(transformers, f"{name}Config")(vocab_size=entries, **SHAPE, **settings, **special)
    torch.manual_seed(0)
    getattr(transformers, f"{name}Model")(config).save_pretrained(folder)
    return folder


def assert_the_same(folder, encoder) -> SentenceTransformer:
    model = SentenceTransformer(str(folder), device="cpu")
    for side, encode in (("query", model.encode_query), ("document", model.encode_document)):
        np.testing.assert_allclose(encoder.encode(TEXTS, side), encode(TEXTS), atol=1e-5)
    return model
