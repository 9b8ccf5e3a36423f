"""How fast a GPU encodes, searches and trains, beside sentence-transformers and plain torch.

All inputs are made on the spot; Pyserini, Java, faiss and a network are not needed. A row that could not be
measured says why. `--device cpu --small` tries everything in tiny sizes. `pytest -m cuda` checks the results
against the CPU's.
"""

import gc
import os
import statistics
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
import typer
from typer import Option

from benchmarks.speed.gpu_inputs import (
    FULL,
    LONGEST,
    SMALL,
    Model,
    Sizes,
    passage_lengths,
    stage_trainer,
    texts_of,
    training_data,
    vectors,
)
from benchmarks.speed.machine import describe_software
from benchmarks.speed.searching import plain_search, recall
from benchmarks.speed.training import LastRound
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.family import quiet_transformers
from pyserini_ance.encoders.hardware import DTYPES, resolve_precision
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.evaluation.tables import table
from pyserini_ance.storage.files import write_json
from pyserini_ance.trainer.callbacks import TrainerCallback
from pyserini_ance.trainer.trainer import StageTrainer
from pyserini_ance.vectors.search import searcher

LARGE_BUDGET = 1 << 16  # tokens at once, where a GPU's host is not the limit
PEER = "sentence-transformers"
CHECKED_QUERIES = 1024  # for the recall, and for how many queries fit the time
# Queries of a step, negatives of each, the stage's settings.
STEPS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "8 x (1+7)": (8, 7, {}),
    "64 x (1+1), LAMB": (64, 1, {"optimizer": {"kind": "lamb", "learning_rate": 1e-6}}),
    "128 x (1+7) in-batch, GradCache": (128, 7, {"chunk_queries": 32}),
}
LTRE = {"trainable": "query_tower", "positives": "all", "batch_queries": 32}
LIVE = {"negatives": [{"kind": "live", "top_k": 200}], "loss": {"kind": "lambdarank"}}
LEGEND = """- ms: of a round (encode, mine), the median; of a step (train, ltre), the mean; after warm-up
- TFLOP/s: useful operations, on real tokens or vectors, without padding and recomputation
- peak: their share of the fastest bf16 product that was measured
- GiB: the peak of the device's memory"""


class Bench:
    """The device, the sizes, the time that is left, and the rows so far."""

    def __init__(self, device: str, sizes: Sizes, folder: Path, seconds: float):
        self.device, self.sizes, self.folder = device, sizes, folder
        self.is_cuda = torch.device(device).type == "cuda"
        self.precision: Any = resolve_precision("auto", device)
        self.end = self.part_end = time.perf_counter() + seconds
        self.part, self.rows = "", list[dict[str, Any]]()
        self.model = Model.write(folder / "model", sizes)

    @cached_property
    def peaks(self) -> dict[str, float]:
        """TFLOP/s of the fastest bf16 and fp32 products of 10, and GB/s of a copy on the device."""
        matrix = torch.randn(self.sizes.matrix, self.sizes.matrix, device=self.device)
        half, target, product = matrix.bfloat16(), torch.empty_like(matrix), 2e-12 * len(matrix) ** 3
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
        for _ in encoder.encode_rows(tokens, np.arange(len(tokens)), "document", bench.precision, budget):
            pass

    seconds = bench.seconds(work)
    return {**bench.figures(bench.model.flops(lengths), seconds), "texts/s": len(lengths) / seconds}


def _encode_by_peer(bench: Bench, lengths: np.ndarray) -> dict[str, Any]:
    """A round with tokenization."""
    texts = texts_of(bench.model.tokens(lengths), np.arange(len(lengths)))
    model = _peer(bench, bench.precision)
    settings = {"batch_size": max(1, LARGE_BUDGET // int(lengths.max())), "convert_to_tensor": True}
    seconds = bench.seconds(lambda: model.encode(texts, show_progress_bar=False, **settings), 1)
    return {**bench.figures(bench.model.flops(lengths), seconds), "texts/s": len(lengths) / seconds}


def _peer(bench: Bench, precision: str) -> Any:
    from sentence_transformers import SentenceTransformer

    settings = {"dtype": DTYPES[precision]}
    return SentenceTransformer(str(bench.model.folder), device=bench.device, model_kwargs=settings)


def mine(bench: Bench) -> None:
    """As many documents as fit the memory, and queries as fit the time."""
    sizes, count = bench.sizes, documents_that_fit(bench)
    documents = vectors(count, sizes.shape["hidden_size"], bench.device, 1)
    queries = vectors(sizes.queries, sizes.shape["hidden_size"], bench.device, 2)
    automatic, in_fp32 = (searcher(documents, each, bench.device, World()) for each in ("auto", "torch"))
    plain = partial(plain_search, documents, sizes.top_k, block_rows=1 << 18)
    contenders: dict[str, Callable[[torch.Tensor], Any]] = {
        "torch.mm and topk, fp32": plain,
        "ours": lambda block: automatic(block, sizes.top_k)[1],
        "ours, fp32": lambda block: in_fp32(block, sizes.top_k)[1],
        "torch.mm and topk, bf16": partial(plain, dtype=torch.bfloat16),
    }
    reference: list[np.ndarray] = []
    budget = bench.left() / len(contenders)
    for name, search in contenders.items():
        measure = partial(_mining, bench, documents, queries, search, budget, reference)
        bench.row(f"{sizes.top_k} of {count:,} x {documents.shape[1]}", name, measure)


def documents_that_fit(bench: Bench) -> int:
    """With their copy in bf16, and room for the scores of a block."""
    if not bench.is_cuda:
        return bench.sizes.documents
    free = torch.cuda.mem_get_info(bench.device)[0] - (10 << 30)
    return max(1000, min(bench.sizes.documents, free // (6 * bench.sizes.shape["hidden_size"])))


def _mining(
    bench: Bench,
    documents: torch.Tensor,
    queries: torch.Tensor,
    search: Callable[[torch.Tensor], Any],
    budget: float,
    reference: list[np.ndarray],
) -> dict[str, Any]:
    """Time as many queries as `budget` seconds allow; the first contender sets the `reference`."""
    first = queries[:CHECKED_QUERIES]
    rows = torch.as_tensor(search(first)).long().cpu().numpy()
    if not reference:
        reference.append(rows)
    fits = 0.7 * budget / bench.once(lambda: search(first)) * len(first)
    count = int(np.clip(fits, len(first), len(queries)))
    seconds = bench.once(lambda: search(queries[:count]))
    figures = bench.figures(2.0 * len(documents) * count * documents.shape[1], seconds)
    whole = {f"s for {len(queries):,}": seconds / count * len(queries)}
    return {"queries": count, **figures, **whole, **recall(rows, reference[0])}


class StepTimes(TrainerCallback):
    """Notes when each step's numbers arrive; leaves after `steps` steps, or `seconds` and a few steps."""

    def __init__(self, steps: int, seconds: float):
        self.steps, self.end = steps, time.perf_counter() + seconds
        self.times, self.search_seconds = list[float](), list[float]()

    def on_step_end(self, stage: str, step: int, losses: dict[str, float], metrics: dict[str, Any]) -> None:
        self.times.append(time.perf_counter())
        self.search_seconds.append(metrics.get("search_seconds", 0.0))
        if len(self.times) >= self.steps or (len(self.times) > 4 and time.perf_counter() > self.end):
            raise LastRound

    @property
    def warm(self) -> int:
        """The steps that do not count."""
        return max(1, len(self.times) // 5)

    @property
    def seconds(self) -> float:
        """The mean of a step."""
        return (self.times[-1] - self.times[self.warm - 1]) / (len(self.times) - self.warm)


def step_stage(name: str) -> dict[str, Any]:
    """The stage of a row of STEPS; in-batch with `chunk_queries`."""
    queries, negatives, settings = STEPS[name]
    term = {
        "negatives": [{"kind": "random", "num_negatives": negatives}],
        "loss": {"kind": "nll", "scale": 0.05},
        "in_batch_negatives": "chunk_queries" in settings,
    }
    return {"batch_queries": queries, "terms": {"query": term}, **settings}


def train(bench: Bench) -> None:
    """Steps of the real trainer, beside those of sentence-transformers with the same texts."""
    data = training_data(bench.model, bench.sizes.texts)
    for name, (queries, negatives, _) in STEPS.items():
        of_query, of_document = (
            bench.model.flops(tokens.lengths(LONGEST)) / len(tokens)
            for tokens in (data.queries["train"], data.documents)
        )
        # The backward pass takes twice the forward pass.
        flops = 3 * queries * (of_query + (1 + negatives) * of_document)
        for budget in (None, LARGE_BUDGET):
            contender = "ours" if budget is None else f"ours, {budget:,} tokens at once"
            bench.row(name, contender, partial(_own_steps, bench, data, name, budget, flops))
        bench.row(name, PEER, partial(_steps_by_peer, bench, data, name, flops), "sentence_transformers")


def _own_steps(
    bench: Bench, data: PreparedData, name: str, budget: int | None, flops: float
) -> dict[str, Any]:
    return bench.figures(flops, _timed_steps(bench, data, step_stage(name), budget).seconds)


def _timed_steps(
    bench: Bench,
    data: PreparedData,
    stage: Mapping[str, Any],
    budget: int | None = None,
    prepare: Callable[[StageTrainer], None] = lambda trainer: None,
) -> StepTimes:
    times = StepTimes(bench.sizes.steps, max(1.0, bench.left() / 4))
    folder = bench.folder / f"steps-{len(bench.rows)}"
    trainer = stage_trainer(bench.model, data, folder, stage, bench.device, budget, (times,))
    prepare(trainer)
    with suppress(LastRound):
        trainer.train()
    return times


def _steps_by_peer(bench: Bench, data: PreparedData, name: str, flops: float) -> dict[str, Any]:
    """The loss and the steps of sentence-transformers; it tokenizes in each step, as its trainer does."""
    from sentence_transformers import losses

    queries, negatives, settings = STEPS[name]
    model: Any = _peer(bench, "fp32").train()
    tokenize = getattr(model, "preprocess", None) or model.tokenize
    loss: Any = losses.MultipleNegativesRankingLoss(model)
    if "chunk_queries" in settings:
        loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=settings["chunk_queries"])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    rng, sides = np.random.default_rng(0), (data.queries["train"], *[data.documents] * (1 + negatives))
    kind, in_bf16 = torch.device(bench.device).type, bench.precision == "bf16"

    def features(tokens: TokenStore) -> dict[str, Any]:
        made = tokenize(texts_of(tokens, rng.integers(len(tokens), size=queries)))
        return {key: each.to(bench.device) if hasattr(each, "to") else each for key, each in made.items()}

    def step() -> None:
        with torch.autocast(kind, torch.bfloat16, enabled=in_bf16):
            loss([features(tokens) for tokens in sides], None).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return bench.figures(flops, bench.seconds(step, max(2, bench.sizes.steps // 4)))


def ltre(bench: Bench) -> None:
    """Steps of the query tower that search all documents; their vectors are random and on the device."""
    count = documents_that_fit(bench)
    bench.row(f"32 queries, 200 of {count:,}", "ours", partial(_ltre_steps, bench, count))


def _ltre_steps(bench: Bench, count: int) -> dict[str, Any]:
    whole = vectors(count, bench.sizes.shape["hidden_size"], bench.device, 1)

    def prepare(trainer: StageTrainer) -> None:
        """The stage has encoded a few documents; the others join them here."""
        assert trainer.documents is not None
        search = searcher(whole, "torch", bench.device, World())
        trainer.documents.whole = whole
        trainer.documents.searches = dict.fromkeys(trainer.documents.searches, search)

    data = training_data(bench.model, min(1000, bench.sizes.texts))
    times = _timed_steps(bench, data, {**LTRE, "terms": {"query": LIVE}}, None, prepare)
    search_ms = 1000 * statistics.mean(times.search_seconds[times.warm :])
    return {"ms": 1000 * times.seconds, "ms of the search": search_ms}


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
    quiet_transformers()
    with TemporaryDirectory(prefix="pyserini_ance.") as folder:
        bench = Bench(device, SMALL if small else FULL, Path(folder), 60 * minutes)
        about = {"device": device, "precision": bench.precision, "peaks": bench.peaks}
        machine = {**describe_software(), **about}
        machine |= {"gpu": str(torch.cuda.get_device_properties(device))} if bench.is_cuda else {}
        for name in parts or NAMES:
            bench.part, seconds = name, 60 * minutes * PARTS[NAMES[name]]
            bench.part_end = time.perf_counter() + seconds
            NAMES[name](bench)
            if json:
                write_json(json, {"machine": machine, "small": small, "rows": bench.rows})
    print("\n" + "\n".join(f"{name}: {value}" for name, value in machine.items()))
    for name in parts or NAMES:
        rows = [dict(list(row.items())[1:]) for row in bench.rows if row["part"] == name]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        print(f"\n{NAMES[name].__doc__}\n\n{table(rows, columns)}")
    print(f"\n{LEGEND}")


if __name__ == "__main__":
    app()
