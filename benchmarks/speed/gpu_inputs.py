"""Shared by the benchmarks of a GPU: the clock, the rows, and inputs (a model of random weights, tokens).

Texts are words of a made-up vocabulary, a token each.
"""

import gc
import os
import statistics
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed.encoding import bert_flops, write_random
from pyserini_ance.data.known_positives import offsets_of
from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.hardware import DTYPES, resolve_precision
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json

SPECIAL_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
QUERY_TOKENS, LONGEST = 32, 512
PEER = "sentence-transformers"
LARGE_BUDGET = 1 << 16  # tokens at once, where a GPU's host is not the limit


@dataclass(frozen=True)
class Sizes:
    """How large everything is; the defaults are those of a GPU.

    shape: of the BERT, by default that of BERT-base. tokens: encoded in a round, in texts of `lengths`
    tokens. documents, queries: vectors. texts: documents that are trained on, of at most `longest` tokens.
    matrix: rows of the products that measure the peaks.
    """

    shape: Mapping[str, int] = field(default_factory=dict)
    vocabulary: int = 30_522
    tokens: int = 1 << 20
    lengths: tuple[int, int] = (128, 512)
    documents: int = 8_841_823
    queries: int = 100_000
    top_k: int = 200
    texts: int = 20_000
    longest: int = 128
    steps: int = 60
    matrix: int = 8192
    rounds: int = 3


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
        from transformers import BertTokenizer

        source = folder / "random"
        source.mkdir(parents=True)
        words = [f"w{number}" for number in range(sizes.vocabulary - len(SPECIAL_WORDS))]
        (source / "vocab.txt").write_text("\n".join([*SPECIAL_WORDS, *words]), encoding="utf-8")
        tokenizer = BertTokenizer.from_pretrained(str(source), model_max_length=LONGEST)
        tokenizer.save_pretrained(source)
        write_random("Bert", source, source, sizes.shape)
        recipe = {
            "model": str(source),
            "pooling": "mean",
            "tokenization": {
                "query": {"length_tokens": QUERY_TOKENS},
                "document": {"length_tokens": LONGEST, "template": "{text}"},
            },
        }
        encoder = initial_encoder(EncoderConfig.model_validate(recipe), 0)
        start = TrainingProgress("initial", 0)
        checkpoint = publish_checkpoint(RunDir(folder / "start"), encoder, None, start)
        written = read_json(checkpoint.encoder / "config.json")
        return cls(checkpoint, recipe, written, encoder.tokenizer.specials["document"], sizes)

    @property
    def folder(self) -> Path:
        return self.checkpoint.encoder

    @property
    def dimension(self) -> int:
        return self.config["hidden_size"]

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


class Bench:
    """The device, the sizes, the time that is left, and the rows so far."""

    def __init__(self, device: str, sizes: Sizes, folder: Path, seconds: float):
        self.device, self.sizes, self.folder = device, sizes, folder
        self.is_cuda = torch.device(device).type == "cuda"
        self.precision: Any = resolve_precision("auto", device)
        self.end = self.part_end = time.perf_counter() + seconds
        self.part = ""
        self.rows: list[dict[str, Any]] = []
        self.model = Model.write(folder / "model", sizes)

    @cached_property
    def peaks(self) -> dict[str, float]:
        """TFLOP/s of the fastest bf16 and fp32 products of 10, and GB/s of a copy on the device."""
        matrix = torch.randn(self.sizes.matrix, self.sizes.matrix, device=self.device)
        half = matrix.bfloat16()
        target = torch.empty_like(matrix)
        product = 2e-12 * len(matrix) ** 3
        works: dict[str, tuple[Callable[[], Any], float]] = {
            "bf16": (lambda: [half @ half for _ in range(10)], product),
            "fp32": (lambda: [matrix @ matrix for _ in range(10)], product),
            "copy": (lambda: [target.copy_(matrix) for _ in range(10)], 2e-9 * matrix.nbytes),
        }
        return {name: 10 * amount / self.seconds(work, 5) for name, (work, amount) in works.items()}

    def left(self) -> float:
        """Seconds that the current part still has."""
        return min(self.part_end, self.end) - time.perf_counter()

    def once(self, work: Callable[[], Any]) -> float:
        """Seconds of one call, until the device has done all its work."""
        if self.is_cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if self.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def seconds(self, work: Callable[[], Any], rounds: int | None = None) -> float:
        """The median of several calls after one that does not count; of fewer where time is short."""
        work()
        times: list[float] = []
        while not times or (len(times) < (rounds or self.sizes.rounds) and self.left() > max(times)):
            times.append(self.once(work))
        return statistics.median(times)

    def figures(self, flops: float, seconds: float) -> dict[str, float]:
        """Milliseconds, TFLOP/s, and the share of the peak."""
        rate = flops / seconds / 1e12
        return {"ms": 1000 * seconds, "TFLOP/s": rate, "peak": rate / self.peaks["bf16"]}

    def row(
        self, task: str, contender: str, measure: Callable[[], Mapping[str, Any]], needs: str = ""
    ) -> None:
        """Measure a row. The next rows are measured whatever happens in this one."""
        row: dict[str, Any] = {"part": self.part, "task": task, "contender": contender}
        if self.is_cuda:
            torch.cuda.reset_peak_memory_stats()
        try:
            if needs and find_spec(needs) is None:
                row["note"] = f"not measured: {needs} is not installed"
            elif self.left() <= 0:
                row["note"] = "not measured: the time is over"
            else:
                row |= measure()
        except Exception as error:
            if os.environ.get("PYSERINI_ANCE_DEBUG") == "1":
                traceback.print_exc()
            row["note"] = ": ".join(["failed", type(error).__name__, *str(error).strip().splitlines()[:1]])
        gc.collect()
        if self.is_cuda:
            row |= {} if "note" in row else {"GiB": torch.cuda.max_memory_allocated() / 2**30}
            torch.cuda.empty_cache()
        self.rows.append(row)
        print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)


def documents_that_fit(bench: Bench) -> int:
    """With their copy in bf16, and room for the scores of a block."""
    if not bench.is_cuda:
        return bench.sizes.documents
    free = torch.cuda.mem_get_info(bench.device)[0] - (10 << 30)
    return max(1000, min(bench.sizes.documents, free // (6 * bench.model.dimension)))


def peer_model(bench: Bench, precision: str) -> Any:
    from sentence_transformers import SentenceTransformer

    settings = {"dtype": DTYPES[precision]}
    return SentenceTransformer(str(bench.model.folder), device=bench.device, model_kwargs=settings)
