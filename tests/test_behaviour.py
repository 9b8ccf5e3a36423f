"""What the project is for: where documents are easily confused, negatives that the model finds teach more
than random ones.

400 documents name one of 5 topics, four times, and one of 80 details, once; queries use other words for both.
A random negative nearly always has another topic, so that telling topics apart is enough to be rid of the
loss. The documents that the model confuses share the topic and differ in the detail.
"""

import itertools
import json

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import TrainingProgress, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.trainer.executors import SyncExecutor
from pyserini_ance.trainer.trainer import StageTrainer

TOPICS, DETAILS = range(5), range(80)
HELD_OUT = 100  # of the 400 pairs of a topic and a detail
RANDOM, ANN = {"kind": "random"}, {"kind": "ann", "top_k": 50}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> dict:
    """An untrained transformer of one layer that reads words."""
    folder = tmp_path_factory.mktemp("words")
    kinds = {"topic": TOPICS, "about": TOPICS, "detail": DETAILS, "asked": DETAILS}
    words = [f"{word}{i}" for word, numbers in kinds.items() for i in numbers]
    # "a": special tokens are found with this word
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizer.from_pretrained(str(folder), model_max_length=16).save_pretrained(folder)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.1}
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=16, **still, **shape)
    BertModel(config).save_pretrained(folder)
    tokenization = {"query": {"length_tokens": 8}, "document": {"length_tokens": 16, "template": "{text}"}}
    return {"model": str(folder), "pooling": "mean", "normalize": True, "tokenization": tokenization}


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> dict:
    """Queries for three quarters of the documents to train on, for the others to test on."""
    folder = tmp_path_factory.mktemp("confusable")
    pairs = list(itertools.product(TOPICS, DETAILS))
    texts = [{"id": f"{t}-{d}", "contents": f"{f'topic{t} ' * 4}detail{d}"} for t, d in pairs]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    order, splits = np.random.default_rng(0).permutation(len(pairs)), {}
    for name, rows in {"train": order[HELD_OUT:], "dev": order[:HELD_OUT]}.items():
        topics, qrels = folder / f"{name}.tsv", folder / f"{name}.qrels"
        topics.write_text("".join(f"q{row}\tabout{pairs[row][0]} asked{pairs[row][1]}\n" for row in rows))
        qrels.write_text("".join(f"q{row} 0 {texts[row]['id']} 1\n" for row in rows))
        splits[name] = {"topics": str(topics), "qrels": str(qrels)}
    return {"kind": "pyserini_jsonl", "corpus": str(folder / "corpus.jsonl"), "splits": splits}


def stage(negatives: dict, steps: int, **more) -> dict:
    terms = {"query": {"negatives": [negatives], "loss": {"kind": "nll", "scale": 10}}}
    rate = {"optimizer": {"learning_rate": 3e-3}, "lr_schedule": {"kind": "constant"}}
    made = {"steps": steps, "batch_queries": 16, "terms": terms, "evaluate": {"every_steps": steps}}
    return {**made, **rate, **more}


@pytest.mark.long
def test_refreshed_negatives_win_where_documents_are_confusable(encoder, collection, tmp_path):
    stages = {"warm": stage(RANDOM, 60), "random": stage(RANDOM, 120)}
    stages["refreshed"] = stage(ANN, 120, refresh={"every_steps": 20})
    exact = {"device": "cpu", "precision": "fp32", "encoding": {"precision": "fp32"}, "bm25": None}
    settings = {"name": "behaviour", "data": collection, "encoder": encoder, "stages": stages, **exact}
    cache = str(tmp_path / "cache")
    recipe = Recipe.model_validate({**settings, "final_evaluation": {"split": "dev"}, "cache": cache})
    data, run = tokenize(recipe, read_collection(recipe)), RunDir(tmp_path / "run")
    executor = SyncExecutor(Refresher(recipe, data, run, World()).make)

    def trained(name, start):
        return StageTrainer(recipe, name, data, run, World(), lambda product: executor, start).train()

    start = publish_checkpoint(run, initial_encoder(recipe.encoder, 0), None, TrainingProgress("initial", 0))
    warm = trained("warm", start)
    for name in ("random", "refreshed"):
        trained(name, warm)
    records = [record for record in read_json_lines(run.metrics) if record["event"] == "dev"]
    values = {record["stage"]: record["value"] for record in records}
    assert values["random"] > values["warm"]  # RR@10; 0.56 where this was written, 0.50-0.68 over 5 seeds
    assert values["refreshed"] > 0.9  # 0.97; 0.95-0.99
    assert values["refreshed"] > values["random"] + 0.2
