"""The memory of passes through the towers, counted without their device: what a step keeps for its backward
pass, and what a batch takes while it is encoded."""

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.batching import tokens_at_once
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.family import TwoTower
from pyserini_ance.encoders.hardware import DTYPES
from pyserini_ance.encoders.inference_copy import copied_weights
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.trainer.dropout import CpuDropout
from pyserini_ance.trainer.step import tokens_per_chunk


class KeptBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts, while it is entered, the bytes that graphs keep for their backward pass: `now` and at the
    `peak`.

    Tensors that share memory count once; the weights `apart` do not count.
    """

    def __init__(self, apart: Iterable[torch.Tensor] = ()):
        super().__init__(self._keep, lambda kept: kept.tensor)
        self.now = self.peak = 0
        self._apart = {_memory(weight) for weight in apart}
        self._users: Counter[int] = Counter()

    def __enter__(self) -> "KeptBytes":  # type: ignore[override]  # torch's returns None
        super().__enter__()
        return self

    def _keep(self, saved: torch.Tensor) -> "_Kept":
        tensor = saved.detach()  # a result that held its own graph would never be freed
        memory, size = _memory(tensor), tensor.untyped_storage().nbytes()
        if memory in self._apart:
            return _Kept(tensor, lambda: None)
        self._users[memory] += 1
        if self._users[memory] == 1:
            self.now += size
            self.peak = max(self.peak, self.now)
        return _Kept(tensor, lambda: self._free(memory, size))

    def _free(self, memory: int, size: int) -> None:
        self._users[memory] -= 1
        if not self._users[memory]:
            self.now -= size


class _Kept:
    """A tensor that a graph keeps; calls `free` when the graph lets go of it."""

    def __init__(self, tensor: torch.Tensor, free: Callable[[], None]):
        self.tensor, self._free = tensor, free

    def __del__(self) -> None:
        self._free()


def _memory(tensor: torch.Tensor) -> int:
    """The identity of a tensor's memory, as long as that is in use; fake tensors have no address."""
    return tensor.untyped_storage()._cdata


class LiveBytes(TorchDispatchMode):
    """Counts, while it is entered, the bytes of the tensors that operators make: `now`, at the `peak`, and of
    all that were `made`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = self.made = 0
        self._alive: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_memory(one) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and _memory(tensor) not in given | self._alive:
                storage = tensor.untyped_storage()
                self._alive.add(storage._cdata)
                self.now += storage.nbytes()
                self.made += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        return result

    def _free(self, memory: int, size: int) -> None:
        self._alive.discard(memory)
        self.now -= size


@dataclass(frozen=True)
class BatchMemory:
    """Bytes of a batch of texts (B, L): B (per_token L + per_pair L^2) + per_batch."""

    per_token: float
    per_pair: float
    per_batch: float

    @classmethod
    def count(cls, towers: TwoTower, side: Side, length_tokens: int, precision: str) -> list["BatchMemory"]:
        """Count what a batch keeps for the backward pass on a CPU, and all that is freed before."""
        half = max(1, length_tokens // 2)
        shapes = [(2, length_tokens), (3, length_tokens), (2, half)]
        counts = [_bytes_kept(towers, side, shape, "cpu", precision) for shape in shapes]
        return [cls._through(length_tokens, half, of_shapes) for of_shapes in zip(*counts, strict=True)]

    @classmethod
    def _through(cls, length: int, half: int, counts: Sequence[int]) -> "BatchMemory":
        """The only such function with these `counts` for 2 and 3 texts of `length`, and 2 of `half`."""
        two, three, two_of_half = counts
        per_batch = 3 * two - 2 * three
        per_token, of_half = (three - two) / length, (two_of_half - per_batch) / 2 / half
        per_pair = (per_token - of_half) / max(1, length - half)
        return cls(per_token - per_pair * length, per_pair, per_batch)

    def of(self, texts: int, length_tokens: int) -> int:
        """The bytes of a batch."""
        of_text = self.per_token * length_tokens + self.per_pair * length_tokens**2
        return round(texts * of_text + self.per_batch)


def encoding_bytes(
    encoder: Encoder, side: Side, shape: tuple[int, int], dtype: torch.dtype
) -> tuple[int, int]:
    """The bytes of a batch of ids of a shape (B, L) while it is encoded in `dtype`, without weights: the most
    at any time, and all together."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    tower = encoder.towers.tower(side)
    copied = set(copied_weights(tower, dtype))
    training = encoder.towers.training
    with ExitStack() as stack:
        stack.callback(encoder.towers.train, training)
        encoder.towers.eval()
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        weights = {
            name: torch.empty(tensor.shape, dtype=dtype if name in copied else tensor.dtype)
            for name, tensor in [*tower.named_parameters(), *tower.named_buffers()]
        }
        ids = torch.zeros(shape, dtype=torch.int64)
        stack.enter_context(torch.no_grad())
        live = stack.enter_context(LiveBytes())
        encoder.towers(side, ids, None, weights)
        return live.peak, live.made


@dataclass(frozen=True)
class TextMemory:
    """Bytes that texts of full length keep for the backward pass: each of them, and each batch, which keeps
    the weights in half precision."""

    per_text: int
    per_batch: int

    @classmethod
    def count(
        cls, towers: TwoTower, side: Side, length_tokens: int, device: str, precision: str
    ) -> "TextMemory":
        """Count them in training on a `device` (`cpu` or `cuda`) that need not be there."""
        shapes = ((texts, length_tokens) for texts in (2, 3))
        two, three = (_bytes_kept(towers, side, shape, device, precision)[0] for shape in shapes)
        return cls(three - two, 3 * two - 2 * three)

    def of(self, texts: int, texts_per_batch: int) -> int:
        """The bytes of so many texts."""
        return texts * self.per_text + math.ceil(texts / texts_per_batch) * self.per_batch


def activation_bytes(
    stage: Stage,
    texts: Mapping[Side, int],
    lengths: Mapping[Side, int],
    memory: Mapping[Side, TextMemory],
    setting: int | None,
    device: str,
) -> int:
    """The most bytes that a step of one process keeps for its backward pass, if all texts have full length.

    `texts` are those that a query brings along, by side; `setting` is `encoding.training_tokens_per_batch`.
    See `BatchEncoder`, which cuts steps into chunks.
    """
    budget = tokens_at_once(setting, device)
    at_once = {side: max(1, budget // lengths[side]) for side in texts}
    coupled = any(term.in_batch_negatives for term in stage.terms.values())
    if coupled and stage.chunk_queries:  # GradCache: a batch of one side
        chunk = min(stage.chunk_queries, stage.batch_queries)
        return max(memory[side].of(min(chunk * texts[side], at_once[side]), at_once[side]) for side in texts)
    queries = stage.batch_queries
    if stage.chunk_queries:
        queries = min(queries, stage.chunk_queries)
    elif not coupled:
        tokens = sum(texts[side] * lengths[side] for side in texts)
        queries = min(queries, max(1, tokens_per_chunk(setting) // tokens))
    return sum(memory[side].of(queries * texts[side], at_once[side]) for side in texts)


def texts_of_query(stage: Stage, positives: int, passages: int) -> dict[Side, int]:
    """The most texts that a query of a step brings along, by side, without those of a frozen tower.

    A document is so many `passages`; a query has so many `positives` in a step.
    """
    drawn: dict[Side, int] = {"query": 1, "document": positives}
    for term in stage.terms.values():
        other: Side = "document" if term.anchor == "query" else "query"
        drawn[other] += sum(source.num_negatives for source in term.negatives)
    if stage.trainable == "query_tower":
        return {"query": drawn["query"]}
    return {"query": drawn["query"], "document": drawn["document"] * passages}


class _MasksWithoutValues(CpuDropout):
    def _kept(self, shape: torch.Size, p: float) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bool)


def _bytes_kept(
    towers: TwoTower, side: Side, shape: tuple[int, int], device: str, precision: str
) -> tuple[int, int]:
    """The bytes that a pass of ids of a shape (B, L) keeps, without the weights, and those that it frees.

    Fake tensors have a device and a shape, and no values.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    tower = towers.tower(side)
    named = [*tower.named_parameters(), *tower.named_buffers()]
    training = towers.training
    with ExitStack() as stack:
        stack.callback(towers.train, training)
        towers.train()
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        weights = {name: _like(tensor, device) for name, tensor in named}
        ids = torch.zeros(shape, dtype=torch.int64, device=device)
        stack.enter_context(_as_on(device, tower))
        stack.enter_context(_autocast(device, precision))
        kept = stack.enter_context(KeptBytes(weights.values()))
        live = stack.enter_context(LiveBytes())
        if device == "cpu":
            stack.enter_context(_MasksWithoutValues())
        vectors = towers(side, ids, None, weights)
        assert vectors.requires_grad
        return kept.now, live.made - live.now


def _like(tensor: torch.Tensor, device: str) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device, requires_grad=tensor.requires_grad)


@contextmanager
def _autocast(device: str, precision: str) -> Iterator[None]:
    """torch.autocast, which does nothing for a device that is not there."""
    if precision == "fp32":
        yield
        return
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, DTYPES[precision])
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])
        torch.clear_autocast_cache()


@contextmanager
def _as_on(device: str, tower: nn.Module) -> Iterator[None]:
    """Compute attention by the kernel of a GPU, for which fake tensors would take another."""
    if device == "cpu":
        yield
        return
    models: list[Any] = [m for m in tower.modules() if getattr(m, "_supports_sdpa", False)]
    before = [model.config._attn_implementation for model in models]
    original = functional.scaled_dot_product_attention
    for model in models:
        model.set_attn_implementation("sdpa")
    functional.scaled_dot_product_attention = _memory_efficient_attention  # type: ignore[assignment]
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original
        for model, implementation in zip(models, before, strict=True):
            model.set_attn_implementation(implementation)


def _memory_efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_: object,
) -> torch.Tensor:
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    result: torch.Tensor = kernel(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]
    return result
