"""How fast a GPU encodes, searches and trains, beside sentence-transformers and plain torch.

All inputs are made on the spot; Pyserini, Java, faiss and a network are not needed. A row that could not be
measured says why. `--device cpu --small` tries everything in tiny sizes. `pytest -m cuda` checks the results
against the CPU's.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
import typer
from typer import Option

from benchmarks.speed.gpu_inputs import (
    LARGE_BUDGET,
    PEER,
    SMALL,
    Bench,
    Sizes,
    documents_that_fit,
    passage_lengths,
    peer_model,
    texts_of,
)
from benchmarks.speed.gpu_training import ltre, train
from benchmarks.speed.machine import describe_machine
from benchmarks.speed.searching import plain_search, recall, vectors
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import to_host
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.encoders.weights import quiet_loading
from pyserini_ance.evaluation.tables import table
from pyserini_ance.storage.files import write_json
from pyserini_ance.vectors.search import searcher

CHECKED_QUERIES = 1024  # for the recall, and for how many queries fit the time
LEGEND = """- ms: of a round (encode, mine), the median; of a step (train, ltre), the mean; after warm-up
- TFLOP/s: useful operations, on real tokens or vectors, without padding and recomputation
- peak: their share of the fastest bf16 product that was measured
- GiB: the peak of the device's memory"""


def encode(bench: Bench) -> None:
    """Documents of one length, and of a passage collection's lengths."""
    mixed = passage_lengths(bench.sizes.tokens // 75, bench.sizes.longest)
    for lengths in (*(np.full(bench.sizes.tokens // n, n) for n in bench.sizes.lengths), mixed):
        task = f"{lengths.mean():.0f} tokens on average, at most {lengths.max()}"
        for budget in (None, LARGE_BUDGET, 2 * LARGE_BUDGET):
            contender = "ours" if budget is None else f"ours, {budget:,} tokens at once"
            bench.row(task, contender, partial(_encode_rows, bench, lengths, budget))
        bench.row(task, PEER, partial(_encode_by_peer, bench, lengths), "sentence_transformers")


def _encode_rows(bench: Bench, lengths: np.ndarray, budget: int | None) -> dict[str, Any]:
    encoder, tokens = load_encoder(bench.model.folder, bench.device), bench.model.tokens(lengths)

    def work() -> None:
        rows = np.arange(len(tokens))
        encoded = encoder.encode_on_device(tokens, rows, "document", bench.precision, budget)
        for _ in to_host(encoded, tokens):
            pass

    seconds = bench.seconds(work)
    return {**bench.figures(bench.model.flops(lengths), seconds), "texts/s": len(lengths) / seconds}


def _encode_by_peer(bench: Bench, lengths: np.ndarray) -> dict[str, Any]:
    """A round with tokenization."""
    texts = texts_of(bench.model.tokens(lengths), np.arange(len(lengths)))
    model = peer_model(bench, bench.precision)
    settings = {"batch_size": max(1, LARGE_BUDGET // int(lengths.max())), "convert_to_tensor": True}
    seconds = bench.seconds(lambda: model.encode(texts, show_progress_bar=False, **settings), 1)
    return {**bench.figures(bench.model.flops(lengths), seconds), "texts/s": len(lengths) / seconds}


def mine(bench: Bench) -> None:
    """As many documents as fit the memory, and queries as fit the time."""
    sizes, count = bench.sizes, documents_that_fit(bench)
    documents = vectors(count, bench.model.dimension, bench.device, 1)
    queries = vectors(sizes.queries, bench.model.dimension, bench.device, 2)
    automatic, in_fp32 = (searcher(documents, each, bench.device, World()) for each in ("auto", "torch"))
    plain = partial(plain_search, documents, sizes.top_k, block_rows=1 << 18)
    contenders: dict[str, Callable[[torch.Tensor], Any]] = {
        "torch.mm and topk, fp32": plain,
        "ours": lambda block: automatic(block, sizes.top_k)[1],
        "ours, fp32": lambda block: in_fp32(block, sizes.top_k)[1],
        "torch.mm and topk, bf16": partial(plain, dtype=torch.bfloat16),
    }
    first, reference = queries[:CHECKED_QUERIES], list[np.ndarray]()
    budget = bench.left() / len(contenders)

    def measure(search: Callable[[torch.Tensor], Any]) -> dict[str, Any]:
        """Time as many queries as `budget` seconds allow; the first contender sets the `reference`."""
        rows = torch.as_tensor(search(first)).long().cpu().numpy()
        if not reference:
            reference.append(rows)
        fits = 0.7 * budget / bench.once(lambda: search(first)) * len(first)
        asked = queries[: int(np.clip(fits, len(first), len(queries)))]
        seconds = bench.once(lambda: search(asked))
        figures = bench.figures(2.0 * len(documents) * len(asked) * documents.shape[1], seconds)
        whole = {f"s for {len(queries):,}": seconds / len(asked) * len(queries)}
        return {"queries": len(asked), **figures, **whole, **recall(rows, reference[0])}

    for name, search in contenders.items():
        bench.row(f"{sizes.top_k} of {count:,} x {documents.shape[1]}", name, partial(measure, search))


# The parts, and the share of the whole time that each may take.
PARTS = {encode: 0.3, mine: 0.35, train: 0.25, ltre: 0.1}
NAMES = {part.__name__: part for part in PARTS}
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command(help=__doc__)
def main(
    parts: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(NAMES)}; default: all")] = None,
    device: Annotated[str, Option(help="cuda, cuda:N or cpu")] = "cuda",
    small: Annotated[bool, Option(help="tiny sizes: seconds, and no useful times")] = False,
    minutes: Annotated[float, Option(help="for everything")] = 9.5,
    json: Annotated[Path | None, Option(metavar="FILE", help="also write all figures to FILE")] = None,
) -> None:
    if unknown := set(parts or NAMES) - NAMES.keys():
        raise typer.BadParameter(f"unknown part {unknown.pop()}; parts: {', '.join(NAMES)}")
    if device != "cpu" and not torch.cuda.is_available():
        raise typer.BadParameter("torch finds no GPU; `--device cpu --small` tries the script without one")
    quiet_loading()
    with TemporaryDirectory(prefix="pyserini_ance.") as folder:
        bench = Bench(device, SMALL if small else Sizes(), Path(folder), 60 * minutes)
        machine = describe_machine() | {"device": device, "precision": bench.precision, "peaks": bench.peaks}
        machine |= {"gpu": str(torch.cuda.get_device_properties(device))} if bench.is_cuda else {}
        for name in parts or NAMES:
            bench.part, seconds = name, 60 * minutes * PARTS[NAMES[name]]
            bench.part_end = time.perf_counter() + seconds
            NAMES[name](bench)
            if json:
                write_json(json, {"machine": machine, "small": small, "rows": bench.rows})
    print("\n" + "\n".join(f"{name}: {value}" for name, value in machine.items()))
    for name in parts or NAMES:
        rows = [row for row in bench.rows if row["part"] == name]
        columns = list(dict.fromkeys(key for row in rows for key in row if key != "part"))
        print(f"\n{NAMES[name].__doc__}\n\n{table(rows, columns)}")
    print(f"\n{LEGEND}")


if __name__ == "__main__":
    app()
