"""Generated passages of MS MARCO's shape, and queries for them: the same for every run of the same size.

About 55 words a passage, drawn by Zipf's law from a tokenizer's whole words, one in ten compounded of two. A query is the first words of a
passage, its only relevant one.
"""

import json
from pathlib import Path

import numpy as np

WORDS, SPREAD, LEAST, MOST = 55, 25, 10, 200  # of a passage
WORDS_OF_QUERY = 6
PASSAGES_PER_BLOCK = 20_000


def generate(folder: Path, passages: int, queries: dict[str, int], tokenizer: Path) -> None:
    """collection.tsv, and for each split of so many queries `queries.SPLIT.tsv` and `qrels.SPLIT.tsv`."""
    folder.mkdir(parents=True)
    words = _words(tokenizer)
    chances = np.cumsum(1 / np.arange(1, len(words) + 1))
    chances /= chances[-1]
    rng = np.random.default_rng(passages)
    asked = {name: set(rng.choice(passages, count, replace=False).tolist()) for name, count in queries.items()}
    files = {name: (open(folder / f"queries.{name}.tsv", "w"), open(folder / f"qrels.{name}.tsv", "w")) for name in queries}
    with open(folder / "collection.tmp", "w") as out:
        for first in range(0, passages, PASSAGES_PER_BLOCK):
            for id, text in enumerate(_texts(words, chances, rng, min(PASSAGES_PER_BLOCK, passages - first)), start=first):
                out.write(f"{id}\t{text}\n")
                for name, (of_queries, of_qrels) in files.items():
                    if id in asked[name]:
                        of_queries.write(f"{id}\t{' '.join(text.split()[:WORDS_OF_QUERY])}\n")
                        of_qrels.write(f"{id} 0 {id} 1\n")
    for file in (file for pair in files.values() for file in pair):
        file.close()
    (folder / "collection.tmp").rename(folder / "collection.tsv")


def _words(tokenizer: Path) -> np.ndarray:
    vocabulary = json.loads(tokenizer.read_text())["model"]["vocab"]
    whole = [word for word in sorted(vocabulary, key=vocabulary.get) if word.isascii() and word.isalpha() and len(word) > 1]
    return np.array(whole)


def _texts(words: np.ndarray, chances: np.ndarray, rng: np.random.Generator, count: int) -> list[str]:
    shape = (WORDS / SPREAD) ** 2
    lengths = np.clip(rng.gamma(shape, WORDS / shape, count), LEAST, MOST).astype(int)
    drawn = words[np.searchsorted(chances, rng.random(int(lengths.sum())))].tolist()
    compound = np.flatnonzero(rng.random(len(drawn)) < 0.1)
    for place, other in zip(compound.tolist(), words[rng.integers(0, len(words), len(compound))].tolist(), strict=True):
        drawn[place] += other
    ends = np.cumsum(lengths).tolist()
    return [" ".join(drawn[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
