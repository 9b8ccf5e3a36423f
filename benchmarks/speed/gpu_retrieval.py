"""Rows of `bench --gpu`: encoding documents, exact search."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.speed.gpu_bench import LARGE_BUDGET, PEER, Bench, NotMeasured
from benchmarks.speed.gpu_inputs import passage_lengths, texts_of, vectors
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hardware import DTYPES
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.vectors.search import searcher

CHECKED_QUERIES = 1024  # enough for the search in bf16, which takes many queries alone


def encode(bench: Bench) -> None:
    """Documents of one length, and of a passage collection's lengths."""
    encoder = load_encoder(bench.model.folder, bench.device)
    for length in bench.sizes.lengths:
        _encode_rows(bench, encoder, f"{length} tokens", np.full(bench.sizes.tokens // length, length))
    lengths = passage_lengths(bench.sizes.tokens // 75, bench.sizes.longest)
    _encode_rows(bench, encoder, f"{lengths.mean():.0f} tokens on average, at most {lengths.max()}", lengths)


def _encode_rows(bench: Bench, encoder: Encoder, task: str, lengths: np.ndarray) -> None:
    tokens, flops = bench.model.tokens(lengths), bench.model.flops(lengths)

    def figures(seconds: float, share: float = 1.0) -> dict[str, Any]:
        texts = {"texts/s": share * len(lengths) / seconds}
        return {"ms": 1000 * seconds, **bench.rate(share * flops, seconds), **texts}

    def ours(budget: int | None) -> dict[str, Any]:
        precision: Any = bench.precision

        def work() -> None:
            for _ in encoder.encode_rows(tokens, np.arange(len(tokens)), "document", precision, budget):
                pass

        return figures(bench.seconds(work))

    def alone() -> dict[str, Any]:
        """One batch that is on the device already: what transformers attain."""
        count = max(1, LARGE_BUDGET // int(lengths.max())) if bench.is_cuda else 4
        share = count / len(lengths)
        model = _plain_model(bench)
        ids = torch.randint(5, bench.sizes.vocabulary, (count, int(lengths.max())), device=bench.device)
        with torch.inference_mode():
            return figures(bench.seconds(lambda: model(input_ids=ids), 10), share)

    bench.row(task, "ours", lambda: ours(None))
    for budget in (LARGE_BUDGET, 2 * LARGE_BUDGET):
        bench.row(task, f"ours, {budget:,} tokens at once", partial(ours, budget))
    if lengths.min() == lengths.max():
        bench.row(task, "transformers, one batch on the device", alone)
    bench.row(
        task,
        PEER,
        lambda: figures(_encode_by_peer(bench, texts_of(tokens, np.arange(len(tokens))))),
        [PEER.replace("-", "_")],
    )


def _plain_model(bench: Bench) -> Any:
    from transformers import BertModel

    dtype = DTYPES[bench.precision]
    model: Any = BertModel.from_pretrained(bench.model.folder, dtype=dtype)
    return model.to(bench.device).eval()


def peer(bench: Bench, dtype: torch.dtype) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(bench.model.folder), device=bench.device, model_kwargs={"dtype": dtype})


def _encode_by_peer(bench: Bench, texts: list[str]) -> float:
    """Seconds of a round, tokenization included."""
    model = peer(bench, DTYPES[bench.precision])
    longest = max(len(text.split()) for text in texts) + 2
    settings = {"batch_size": max(1, LARGE_BUDGET // longest), "convert_to_tensor": True}
    return bench.seconds(lambda: model.encode(texts, show_progress_bar=False, **settings), 1)


def mine(bench: Bench) -> None:
    """As many documents as fit the memory, and queries as fit the time."""
    sizes = bench.sizes
    dimension, count = sizes.shape["hidden_size"], documents_that_fit(bench)
    documents = vectors(count, dimension, bench.device, 1)
    queries = vectors(sizes.queries, dimension, bench.device, 2)
    fewer = f" (of {sizes.documents:,}: what the memory holds)" if count < sizes.documents else ""
    task = f"{sizes.top_k} of {count:,} x {dimension}{fewer}"
    automatic, in_fp32 = (searcher(documents, each, bench.device, World()) for each in ("auto", "torch"))
    contenders: dict[str, tuple[Callable[[torch.Tensor], Any], list[str]]] = {
        "torch.mm and topk, fp32": (partial(_plain_search, documents, sizes.top_k), []),
        "ours": (lambda block: automatic(block, sizes.top_k)[1], []),
        "ours, fp32": (lambda block: in_fp32(block, sizes.top_k)[1], []),
        "torch.mm and topk, bf16": (partial(_plain_search, documents, sizes.top_k, dtype=torch.bfloat16), []),
        "faiss": (partial(_faiss_search, bench, documents, sizes.top_k), ["faiss"]),
    }
    reference: list[torch.Tensor] = []
    end = bench.left()
    for number, (name, (found_by, needs)) in enumerate(contenders.items()):
        budget = bench.left() - end * (1 - (number + 1) / len(contenders))
        bench.row(task, name, partial(_mining, bench, documents, queries, found_by, budget, reference), needs)


def documents_that_fit(bench: Bench) -> int:
    """With their copy in bf16, and room for the scores of a block."""
    sizes, bytes_each = bench.sizes, 6 * bench.sizes.shape["hidden_size"]
    if not bench.is_cuda:
        return sizes.documents
    free = torch.cuda.mem_get_info(bench.device)[0] - (10 << 30)
    return max(1000, min(sizes.documents, free // bytes_each))


def _mining(
    bench: Bench,
    documents: torch.Tensor,
    queries: torch.Tensor,
    found_by: Callable[[torch.Tensor], Any],
    budget: float,
    reference: list[torch.Tensor],
) -> dict[str, Any]:
    """Time as many queries as `budget` seconds allow; the first contender sets the `reference`."""
    first = queries[:CHECKED_QUERIES]
    rows = torch.as_tensor(found_by(first)).long().cpu()
    if not reference:
        reference.append(rows)
    hits = [len(np.intersect1d(*pair)) for pair in zip(rows.numpy(), reference[0].numpy(), strict=True)]
    sample = bench.once(lambda: found_by(first))
    count = int(np.clip(0.7 * budget / sample * len(first), len(first), len(queries)))
    seconds = bench.once(lambda: found_by(queries[:count]))
    flops = 2.0 * len(documents) * count * documents.shape[1]
    return {
        "queries": f"{count:,}",
        "ms": 1000 * seconds,
        **bench.rate(flops, seconds),
        f"s for {len(queries):,}": seconds / count * len(queries),
        "recall": sum(hits) / reference[0].numel(),
    }


def _plain_search(
    documents: torch.Tensor, k: int, queries: torch.Tensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """What one writes first; the copy in `dtype` is made in each call, a small share of it."""
    searched, rows = documents.to(dtype), []
    for asked in queries.to(dtype).split(2048):
        best: list[torch.Tensor] = []
        for number, block in enumerate(searched.split(1 << 18)):
            scores, found = (asked @ block.T).topk(min(k, len(block)), dim=1)
            found = found + (number << 18)
            if best:
                scores, found = torch.cat([best[0], scores], 1), torch.cat([best[1], found], 1)
            scores, order = scores.topk(min(k, scores.shape[1]), dim=1)
            best = [scores, found.gather(1, order)]
        rows.append(best[1])
    return torch.cat(rows)


def _faiss_search(bench: Bench, documents: torch.Tensor, k: int, queries: torch.Tensor) -> Any:
    """The rows that faiss finds on the same device."""
    import faiss

    metric = faiss.METRIC_INNER_PRODUCT
    if not bench.is_cuda:
        return faiss.knn(queries.numpy(), documents.numpy(), k, metric=metric)[1]
    if not hasattr(faiss, "StandardGpuResources"):
        raise NotMeasured("this faiss has no GPU code; install faiss-gpu")
    import faiss.contrib.torch_utils

    return faiss.knn_gpu(faiss.StandardGpuResources(), queries, documents, k, metric=metric)[1]
