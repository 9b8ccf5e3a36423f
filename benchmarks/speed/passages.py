"""Measure encoding, searching, mining and training on generated passages of MS MARCO's shape.

    python benchmarks/speed/passages.py FOLDER --passages 100000 1000000

Prints seconds, peak memory and disk of each part. A part is a process of its own, with one thread:

- `prepare` reads and tokenises; tests/data/scale.py measures both separately.
- `encode` encodes all passages with a tiny encoder (2 layers, 96 dimensions).
- `search` is exact, with 5,000 queries.
- `index` makes OPQ96,IVF1,PQ96; `index_search` searches it with the same queries.
- `ivf` and `ivf_search` do so with IVF1024,PQ32 and 16 of its 1,024 lists.
- `mine` finds the 200 nearest passages for each of 50,000 training queries.
- `train` takes 200 steps of 32 queries with the mined negatives.

The files that the parts make stay in FOLDER.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from shutil import copy, rmtree
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from data import scale  # type: ignore[import-not-found,attr-defined,unused-ignore]

QUERIES = {"train": 50_000, "test": 5_000}
HITS = 200
WORDS_OF_QUERY = 6
INDEX, IVF = "OPQ96,IVF1,PQ96", "IVF1024,PQ32;nprobe=16"
PARTS = ("prepare", "encode", "search", "index", "index_search", "ivf", "ivf_search", "mine", "train")
Work = Callable[[], object]


def generate(folder: Path, passages: int) -> None:
    """Write `collection.tsv`, and `queries.SPLIT.tsv` and `qrels.SPLIT.tsv` of each split.

    A query is the first words of a passage, its only relevant one.
    """
    folder.mkdir(parents=True)
    words = scale.whole_words()
    chances = np.cumsum(1 / np.arange(1, len(words) + 1))
    chances /= chances[-1]
    rng = np.random.default_rng(passages)
    relevant = {
        name: set(rng.choice(passages, count, replace=False).tolist()) for name, count in QUERIES.items()
    }
    with ExitStack() as files:
        out = files.enter_context(open(folder / "collection.tmp", "w"))
        queries, qrels = (
            {name: files.enter_context(open(folder / f"{kind}.{name}.tsv", "w")) for name in relevant}
            for kind in ("queries", "qrels")
        )
        for first in range(0, passages, scale.PASSAGES_PER_BLOCK):
            for id, text in enumerate(
                scale.passages_of(words, chances, rng, min(scale.PASSAGES_PER_BLOCK, passages - first)),
                start=first,
            ):
                out.write(f"{id}\t{text}\n")
                for name in (name for name in relevant if id in relevant[name]):
                    queries[name].write(f"{id}\t{' '.join(text.split()[:WORDS_OF_QUERY])}\n")
                    qrels[name].write(f"{id} 0 {id} 1\n")
    (folder / "collection.tmp").rename(folder / "collection.tsv")


def make_encoder(folder: Path) -> None:
    """Save a random BERT of 2 layers: the measurements do not depend on what it has learnt."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 384,
    }
    BertModel(BertConfig(vocab_size=30_522, **shape)).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        if (scale.minilm() / file).exists():
            copy(scale.minilm() / file, folder)


def recipe_of(folder: Path) -> Any:
    from pyserini_ance.recipe.models import Recipe

    splits = {
        name: {"queries": str(folder / f"queries.{name}.tsv"), "qrels": str(folder / f"qrels.{name}.tsv")}
        for name in QUERIES
    }
    terms = {"query": {"negatives": [{"kind": "ann", "top_k": HITS}], "loss": {"kind": "nll"}}}
    stage = {
        "steps": 200,
        "batch_queries": 32,
        "optimizer": {"learning_rate": 1e-5},
        "terms": terms,
        "refresh": {"every_steps": 200},
    }
    tokenization = {"query": {"length_tokens": 32}, "document": {"length_tokens": 128, "template": "{text}"}}
    data = {"kind": "msmarco_passage", "collection": str(folder / "collection.tsv"), "splits": splits}
    encoder = {
        "kind": "transformer",
        "model": str(folder / "encoder"),
        "pooling": "mean",
        "normalize": True,
        "tokenization": tokenization,
    }
    settings = {"bm25": None, "threads": 1, "cache": str(folder / "cache"), "device": "cpu"}
    return Recipe.model_validate(
        {"name": "scale", "data": data, "encoder": encoder, "stages": {"ance": stage}, **settings}
    )


class Bench:
    """The parts, on the files in `folder`.

    Each method prepares its inputs and returns the work to measure.
    """

    def __init__(self, folder: Path):
        from pyserini_ance.distributed.world import World
        from pyserini_ance.encoders.load_save import initial_tokenizer
        from pyserini_ance.pipeline.experiment import Experiment

        self.recipe = recipe_of(folder)
        self.experiment = Experiment(self.recipe, folder / "run", World())
        self.run = self.experiment.run_dir
        initial_tokenizer(self.recipe.encoder)

    def prepare(self) -> Work:
        return self._data

    def encode(self) -> Work:
        snapshot = self._snapshot()
        return lambda: snapshot.document_vectors

    def search(self) -> Work:
        snapshot = self._snapshot()
        queries, documents = self._test_queries(snapshot), snapshot.document_vectors
        return lambda: snapshot.rank(queries, documents, HITS)

    def index(self) -> Work:
        return self._make_index(INDEX)

    def index_search(self) -> Work:
        return self._search_index(INDEX)

    def ivf(self) -> Work:
        return self._make_index(IVF)

    def ivf_search(self) -> Work:
        return self._search_index(IVF)

    def mine(self) -> Work:
        """Mine as a refresh does: encode queries, search, and publish a generation."""
        from pyserini_ance.refresher.refresher import Refresher
        from pyserini_ance.runs.generation import RefreshRequest

        data, checkpoint = self._data(), self._checkpoint()
        request = RefreshRequest("tables", "ance", 0, checkpoint.weights, checkpoint=checkpoint.folder.name)
        refresher = Refresher(self.recipe, data, self.run, self.experiment.world)
        return lambda: refresher.make(request)

    def train(self) -> Work:
        """Train on the mined negatives."""
        data, checkpoint = self._data(), self._checkpoint()
        return lambda: self.experiment.train_stage("ance", data, checkpoint)

    def _make_index(self, index: str) -> Work:
        snapshot = self._snapshot()
        assert len(snapshot.document_vectors)  # encoded and mapped before time is measured
        return lambda: snapshot.static_index(index, 0)

    def _search_index(self, index: str) -> Work:
        snapshot = self._snapshot()
        from pyserini_ance.vectors.search import search_arrays

        search, queries = snapshot.static_index(index, 0), self._test_queries(snapshot)
        return lambda: search_arrays(search, queries, HITS)

    def _data(self) -> Any:
        from pyserini_ance.pipeline.preparation import prepare

        return prepare(self.recipe, self.experiment.world)

    def _checkpoint(self) -> Any:
        """The encoder before training, which all parts use."""
        from pyserini_ance.encoders.load_save import initial_encoder
        from pyserini_ance.recipe.load import dump
        from pyserini_ance.runs.checkpoint import Checkpoint

        folder = self.run.checkpoint("initial", 0)
        if not folder.exists():
            self.run.create(dump(self.recipe), False)
            self.experiment.publish_untrained(initial_encoder(self.recipe.encoder, self.recipe.seed))
        return Checkpoint.open(folder)

    def _snapshot(self) -> Any:
        from pyserini_ance.negatives.snapshot import Snapshot

        checkpoint, data = self._checkpoint(), self._data()
        return Snapshot(
            checkpoint.encoder,
            checkpoint.weights,
            data,
            self.recipe.encoding,
            self.run.scratch,
            "cpu",
            self.experiment.world,
        )

    def _test_queries(self, snapshot: Any) -> np.ndarray:
        return snapshot.encode_queries("test", np.arange(QUERIES["test"]))


def reset(folder: Path, passages: int) -> None:
    """Generate the texts and the encoder; remove what earlier measurements made of them."""
    if not (folder / "collection.tsv").exists():
        rmtree(folder, ignore_errors=True)
        generate(folder, passages)
    for made in ("cache", "run", "encoder"):
        rmtree(folder / made, ignore_errors=True)
    make_encoder(folder / "encoder")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passages", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument(
        "--part", choices=PARTS, help="run only this part, in this process, on the files in FOLDER"
    )
    args = parser.parse_args()
    if args.part:
        return scale.clock(getattr(Bench(args.folder), args.part)())
    print(scale.HEADER)
    for passages in args.passages:
        folder = args.folder / str(passages)
        reset(folder, passages)
        scale.measure_parts(__file__, folder, passages, PARTS)


if __name__ == "__main__":
    main()
