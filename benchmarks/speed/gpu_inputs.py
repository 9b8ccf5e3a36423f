"""Inputs of the benchmarks of a GPU: a model of random weights, tokens, vectors, a stage that trains.

Texts are words of a made-up vocabulary, a token each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed.encoding import bert_flops
from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.known_positives import offsets_of
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.families.transformer import Transformer
from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.encoders.sentence_transformers_export import write_sentence_transformers
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json
from pyserini_ance.trainer.callbacks import TrainerCallback
from pyserini_ance.trainer.executors import SyncExecutor
from pyserini_ance.trainer.trainer import StageTrainer

SPECIAL_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
QUERY_TOKENS, LONGEST = 32, 512
STEPS = 10_000  # more than any benchmark takes


@dataclass(frozen=True)
class Sizes:
    """How large everything is.

    shape: of the BERT. tokens: encoded in a round, in texts of `lengths` tokens. documents, queries: vectors.
    texts: documents that are trained on, of at most `longest` tokens. matrix: rows of the products that
    measure the peaks.
    """

    shape: Mapping[str, int]
    vocabulary: int
    tokens: int
    lengths: tuple[int, int]
    documents: int
    queries: int
    top_k: int
    texts: int
    longest: int
    steps: int
    matrix: int
    rounds: int


FULL = Sizes(
    shape={"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    vocabulary=30_522,
    tokens=1 << 20,
    lengths=(128, 512),
    documents=8_841_823,
    queries=100_000,
    top_k=200,
    texts=20_000,
    longest=128,
    steps=60,
    matrix=8192,
    rounds=3,
)
SMALL = Sizes(
    shape={"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
    vocabulary=500,
    tokens=2048,
    lengths=(32, 64),
    documents=3000,
    queries=600,
    top_k=20,
    texts=300,
    longest=24,
    steps=4,
    matrix=64,
    rounds=1,
)


@dataclass(frozen=True)
class Model:
    """A checkpoint of random weights, whose folder sentence-transformers reads too."""

    checkpoint: Checkpoint
    recipe: Mapping[str, Any]
    config: Mapping[str, int]
    specials: Specials
    sizes: Sizes

    @classmethod
    def write(cls, folder: Path, sizes: Sizes) -> "Model":
        from transformers import BertConfig, BertModel, BertTokenizer

        source = folder / "random"
        source.mkdir(parents=True)
        words = [f"w{number}" for number in range(sizes.vocabulary - len(SPECIAL_WORDS))]
        (source / "vocab.txt").write_text("\n".join([*SPECIAL_WORDS, *words]), encoding="utf-8")
        tokenizer = BertTokenizer.from_pretrained(str(source), model_max_length=LONGEST)
        tokenizer.save_pretrained(source)
        shape: dict[str, Any] = dict(sizes.shape)
        config = BertConfig(vocab_size=sizes.vocabulary, max_position_embeddings=LONGEST, **shape)
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(0)
            BertModel(config, add_pooling_layer=False).save_pretrained(source)
        recipe = {
            "kind": "transformer",
            "model": str(source),
            "pooling": "mean",
            "tokenization": {
                "query": {"length_tokens": QUERY_TOKENS},
                "document": {"length_tokens": LONGEST, "template": "{text}"},
            },
        }
        encoder = initial_encoder(Transformer.model_validate(recipe), 0)
        start = TrainingProgress("initial", 0)
        checkpoint = publish_checkpoint(RunDir(folder / "start"), encoder, None, start)
        write_sentence_transformers(checkpoint.encoder)
        written = read_json(checkpoint.encoder / "config.json")
        return cls(checkpoint, recipe, written, encoder.tokenizer.specials, sizes)

    @property
    def folder(self) -> Path:
        return self.checkpoint.encoder

    def tokens(self, lengths: np.ndarray, seed: int = 0) -> TokenStore:
        """Random texts of `lengths` (N,) tokens, special tokens included."""
        plain = lengths - len(self.specials.before) - len(self.specials.after)
        ids = np.random.default_rng(seed).integers(
            len(SPECIAL_WORDS), self.sizes.vocabulary, int(plain.sum())
        )
        return TokenStore(ids.astype(np.uint16), offsets_of(plain), self.specials)

    def flops(self, lengths: np.ndarray) -> float:
        """Useful operations of a forward pass over texts of `lengths` (N,) tokens."""
        return bert_flops(self.config, lengths)


def texts_of(tokens: TokenStore, rows: np.ndarray) -> list[str]:
    """The texts that the tokens are of."""
    starts, stops = tokens.offsets[rows], tokens.offsets[rows + 1]
    return [
        " ".join(f"w{word - len(SPECIAL_WORDS)}" for word in tokens.ids[start:stop].tolist())
        for start, stop in zip(starts, stops, strict=True)
    ]


def passage_lengths(count: int, longest: int) -> np.ndarray:
    """(count,) int64, spread as MS MARCO's passages: at most 128 tokens, 75 on average."""
    drawn = np.random.default_rng(0).lognormal(np.log(0.56 * longest), 0.35, count)
    return np.clip(drawn, 8, longest).astype(np.int64)


def vectors(count: int, dimension: int, device: str, seed: int) -> torch.Tensor:
    """(count, D) float32 of length 1 around common centres, so that scores are spread as an encoder's are."""
    generator = torch.Generator(device).manual_seed(seed)
    centres = torch.randn(256, dimension, device=device, generator=torch.Generator(device).manual_seed(0))
    made = torch.empty(count, dimension, device=device)
    for block in made.split(1 << 18):
        chosen = torch.randint(256, (len(block),), device=device, generator=generator)
        block.normal_(generator=generator).add_(centres[chosen])
        block.div_(block.norm(dim=1, keepdim=True))
    return made


def training_data(model: Model, texts: int) -> PreparedData:
    """`texts` documents of passages' lengths, and a query of 8 to 16 tokens for every other one."""
    rng, queries = np.random.default_rng(1), texts // 2
    collection = Collection(
        Texts([str(row) for row in range(texts)], {"text": [""] * texts}),
        {
            "train": Split(
                "train",
                Texts([str(row) for row in range(queries)], {"text": [""] * queries}),
                Qrels.of(np.arange(queries), rng.permutation(texts)[:queries], [1] * queries, queries),
            )
        },
    )
    documents = model.tokens(passage_lengths(texts, model.sizes.longest))
    asked = model.tokens(rng.integers(8, 17, queries), seed=1)
    return PreparedData(collection, documents, {"train": asked}, "train", "random")


def stage_trainer(
    model: Model,
    data: PreparedData,
    folder: Path,
    stage: Mapping[str, Any],
    device: str,
    tokens_per_batch: int | None = None,
    callbacks: tuple[TrainerCallback, ...] = (),
) -> StageTrainer:
    """The trainer of a stage over `data`, as `train` makes it."""
    settings = {
        "name": "bench",
        "data": {"kind": "docstrings"},  # never read: `data` takes its place
        "encoder": model.recipe,
        "encoding": {"search": "torch", "training_tokens_per_batch": tokens_per_batch},
        "bm25": None,
        "stages": {"bench": {"steps": STEPS, "optimizer": {"learning_rate": 1e-5}, **stage}},
        "device": torch.device(device).type,
    }
    recipe, run, world = Recipe.model_validate(settings), RunDir(folder), World(device=device)
    folder.mkdir(parents=True)
    executor = SyncExecutor(Refresher(recipe, data, run, world).make)
    return StageTrainer(
        recipe, "bench", data, run, world, lambda _: executor, model.checkpoint, callbacks=callbacks
    )
