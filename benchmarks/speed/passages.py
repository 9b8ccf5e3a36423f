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
from shutil import rmtree
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2]))
from data import scale  # type: ignore[import-not-found,attr-defined,unused-ignore]

QUERIES = {"train": 50_000, "test": 5_000}
HITS = 200
WORDS_OF_QUERY = 6
INDEXES = {"index": "OPQ96,IVF1,PQ96", "ivf": "IVF1024,PQ32;nprobe=16"}
# A random BERT of 2 layers: the measurements do not depend on what it has learnt.
SHAPE = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 384}
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


def recipe_of(folder: Path) -> Any:
    from pyserini_ance.recipe.models import Recipe

    splits = {
        name: {"topics": str(folder / f"queries.{name}.tsv"), "qrels": str(folder / f"qrels.{name}.tsv")}
        for name in QUERIES
    }
    terms = {"query": {"negatives": [{"kind": "ann", "top_k": HITS}], "loss": {"kind": "nll"}}}
    stage = {"steps": 200, "batch_queries": 32, "optimizer": {"learning_rate": 1e-5}, "terms": terms}
    tokenization = {"query": {"length_tokens": 32}, "document": {"length_tokens": 128, "template": "{text}"}}
    pooled = {"pooling": "mean", "normalize": True, "tokenization": tokenization}
    settings = {
        "name": "scale",
        "data": {"kind": "msmarco_passage", "corpus": str(folder / "collection.tsv"), "splits": splits},
        "encoder": {"kind": "transformer", "model": str(folder / "encoder"), **pooled},
        "stages": {"ance": {**stage, "refresh": {"every_steps": 200}}},
        "bm25": None,
        "threads": 1,
        "cache": str(folder / "cache"),
        "device": "cpu",
    }
    return Recipe.model_validate(settings)


def work_of(part: str, folder: Path) -> Work:
    """Prepare the inputs of a part on the files in `folder`, and return the work to measure."""
    from pyserini_ance.distributed.world import World
    from pyserini_ance.encoders.load_save import initial_encoder, initial_tokenizer
    from pyserini_ance.negatives.snapshot import Snapshot
    from pyserini_ance.pipeline.experiment import Experiment
    from pyserini_ance.pipeline.preparation import prepare
    from pyserini_ance.recipe.load import dump
    from pyserini_ance.refresher.refresher import Refresher
    from pyserini_ance.runs.checkpoint import Checkpoint
    from pyserini_ance.runs.generation import RefreshRequest
    from pyserini_ance.vectors.search import search_arrays

    recipe, world = recipe_of(folder), World()
    experiment = Experiment(recipe, folder / "run", world)
    run = experiment.run_dir
    initial_tokenizer(recipe.encoder)
    if part == "prepare":
        return lambda: prepare(recipe, world)
    if not run.checkpoint("initial", 0).exists():  # the encoder before training, which all parts use
        run.create(dump(recipe), False)
        experiment.publish_untrained(initial_encoder(recipe.encoder, recipe.seed))
    checkpoint = Checkpoint.open(run.checkpoint("initial", 0))
    data = prepare(recipe, world)
    if part == "train":
        return lambda: experiment.train_stage("ance", data, checkpoint)
    if part == "mine":  # as a refresh does: encode queries, search, and publish a generation
        request = RefreshRequest("tables", "ance", 0, checkpoint.weights, checkpoint=checkpoint.folder.name)
        return lambda: Refresher(recipe, data, run, world).make(request)
    snapshot = Snapshot(
        checkpoint.encoder, checkpoint.weights, data, recipe.encoding, run.scratch, "cpu", world
    )
    if part == "encode":
        return lambda: snapshot.document_vectors
    documents = snapshot.document_vectors
    name, _, searches = part.partition("_")
    if name in INDEXES and not searches:
        return lambda: snapshot.static_index(INDEXES[name], 0)
    queries = snapshot.encode_queries("test", np.arange(QUERIES["test"]))
    if part == "search":
        return lambda: snapshot.rank(queries, documents, HITS)
    search = snapshot.static_index(INDEXES[name], 0)
    return lambda: search_arrays(search, queries, HITS)


def reset(folder: Path, passages: int) -> None:
    """Generate the texts and the encoder; remove what earlier measurements made of them."""
    if not (folder / "collection.tsv").exists():
        rmtree(folder, ignore_errors=True)
        generate(folder, passages)
    for made in ("cache", "run", "encoder"):
        rmtree(folder / made, ignore_errors=True)
    from benchmarks.speed.encoding import write_random_bert

    write_random_bert(scale.minilm(), folder / "encoder", SHAPE)


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
        return scale.clock(work_of(args.part, args.folder))
    print(scale.HEADER)
    for passages in args.passages:
        folder = args.folder / str(passages)
        reset(folder, passages)
        scale.measure_parts(__file__, folder, passages, PARTS)


if __name__ == "__main__":
    main()
