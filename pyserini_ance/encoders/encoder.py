"""Encoder: towers, tokenizer and device, ready to encode records as vectors.

Precision, batches and attention are by default those that are fast on the device.
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Self

import numpy as np
import torch
from torch import nn

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.data.formats.lines import is_utf8, shown
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.adapters import Adapters
from pyserini_ance.encoders.batching import encoding_batches
from pyserini_ance.encoders.config import START_NAMES, EncoderConfig
from pyserini_ance.encoders.hardware import DTYPES, Precision, cpu_prefers_eager_attention
from pyserini_ance.encoders.inference_copy import faster_copy, transformers_in
from pyserini_ance.encoders.tokenization import TextTokenizer
from pyserini_ance.encoders.towers import Tower, TwoTower
from pyserini_ance.encoders.weights import check_vocabulary

ALIGNMENT_BYTES = 8  # of an array in a transfer


def to_device(device: torch.device, *arrays: np.ndarray) -> list[torch.Tensor]:
    """Return `arrays` as tensors on a device.

    On a GPU they go over in one transfer, for which the host does not wait. On the CPU they share memory with
    the arrays, if these are contiguous.
    """
    arrays = tuple(map(np.ascontiguousarray, arrays))
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    aligned = (-(-array.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for array in arrays)
    *starts, size = accumulate(aligned, initial=0)
    packed = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    for array, start in zip(arrays, starts, strict=True):
        packed.numpy()[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)
    # The transfer reads pinned memory itself; torch reuses it only when the transfer has ended.
    moved = packed.to(device, non_blocking=True)
    return [
        moved[start : start + array.nbytes].view(torch.from_numpy(array[:0]).dtype).view(array.shape)
        for array, start in zip(arrays, starts, strict=True)
    ]


def check_finite(vectors: np.ndarray, name: Callable[[int], str], cure: str) -> None:
    """Raise ValueError, with the name of its row, for a vector of (N, D) that has NaN or infinite values."""
    # A product with ones reads each value once, with all cores; sums of finite values may overflow.
    with np.errstate(invalid="ignore", over="ignore"):
        suspects = np.flatnonzero(~np.isfinite(vectors @ np.ones(vectors.shape[1], np.float32)))
    for row in suspects.tolist():
        if not (finite := np.isfinite(vectors[row])).all():
            column = int(np.argmin(finite))
            value = vectors[row, column]
            raise ValueError(f"{name(row)} is {value} in dimension {column}; expected finite numbers; {cure}")


def check_vectors(tokens: TokenStore, rows: np.ndarray, vectors: np.ndarray) -> None:
    """`check_finite` of the vectors (B, D) of the texts `rows` (B,)."""
    cure = "encode in fp32, or check the encoder's weights"
    check_finite(vectors, lambda place: f"the vector of {tokens.name(int(rows[place]))}", cure)


def to_host(
    batches: Iterable[tuple[np.ndarray, torch.Tensor]], tokens: TokenStore
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield `batches` of rows of `tokens` and their vectors with the vectors as arrays.

    Raises ValueError, naming the text, for a vector with values that are not finite: it has no rank, and
    documents that it is compared with would be missing.

    From a GPU each batch is copied while the next one, which is launched first, is computed.
    """
    copies: deque[tuple[np.ndarray, torch.Tensor, torch.cuda.Event | None]] = deque()

    def oldest() -> tuple[np.ndarray, np.ndarray]:
        rows, copy, event = copies.popleft()
        if event is not None:
            event.synchronize()  # the next batch is in the queue of the GPU, which goes on
        check_vectors(tokens, rows, copy.numpy())
        return rows, copy.numpy()

    for rows, vectors in batches:
        copy, event, device = vectors, None, vectors.device.type
        if device != "cpu":
            # torch uses pinned memory again once it is free.
            copy = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=device == "cuda")
            copy.copy_(vectors, non_blocking=True)
        if device == "cuda":
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(vectors.device))
        copies.append((rows, copy, event))
        if device == "cpu" or len(copies) > 1:
            yield oldest()
    if copies:
        yield oldest()


def padded_batch(
    tokens: TokenStore, rows: np.ndarray, length_tokens: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the ids (B, L) int64 of texts on a device, and their mask (B, L) int64, 1 for a token.

    There is no mask where all texts are equally long: attention without one is faster.
    """
    ids, mask = tokens.batch(rows, length_tokens)
    if mask.all():
        return to_device(device, ids)[0], None
    on_device = to_device(device, ids, mask)
    return on_device[0], on_device[1]


class Encoder:
    """Two towers with their tokenizer, on a device, in evaluation mode.

    In this mode threads may encode at once. While a trainer has set `towers.train()`, encoding switches to
    evaluation mode and back at its end.

    Raises ValueError if the towers give vectors of different sizes, or if a maximum length or the tokenizer's
    ids do not fit a tower.
    """

    def __init__(
        self, config: EncoderConfig, towers: TwoTower, tokenizer: TextTokenizer, device: str = "cpu"
    ):
        self.config, self.tokenizer, self.device = config, tokenizer, torch.device(device)
        self.towers = towers.to(self.device).eval()
        self.adapters: Adapters | None = None  # in training with `lora`
        self._copies: dict[tuple[Tower, torch.dtype], Tower | None] | None = None
        if config.dropout is not None:
            for module in towers.modules():
                if isinstance(module, nn.Dropout):
                    module.p = config.dropout
                for name, value in list(vars(module).items()):
                    if isinstance(value, float) and f"_{name}".endswith("_dropout"):
                        setattr(module, name, config.dropout)
        if self.device.type == "cpu":
            # glibc keeps freed blocks up to the size of the largest that was freed (at most 32 MiB, see
            # M_MMAP_THRESHOLD). Else each page comes back from the system cleared: 7 % of encoding in fp32.
            torch.empty(31 << 20, dtype=torch.uint8)
            # oneDNN's compiled products, by default 1,024 of 1 MiB each: batches have ever new shapes.
            os.environ.setdefault("LRU_CACHE_CAPACITY", "128")
            os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")
            # To agree with Pyserini's class of ANCE's head, which computes attention in the eager way.
            if cpu_prefers_eager_attention() or config.layer_norm:
                for model in transformers_in(towers):
                    model.set_attn_implementation("eager")
        else:
            # cuDNN's attention plans anew for each shape of a batch (docs/lab-notes/speed.md).
            torch.backends.cuda.enable_cudnn_sdp(False)
        own, other = (towers.tower(side).dimension for side in SIDES)
        if own != other:
            raise ValueError(
                f"the two towers give vectors of {own} and {other} numbers, which cannot be compared; set "
                f"encoder.query.projection: {other}, or encoder.document.projection: {own}"
            )
        for side in SIDES:
            specials, models = tokenizer.specials[side], transformers_in(towers.tower(side))
            own_words = tokenizer.blank(side)
            check_vocabulary(tokenizer.tokenizers[side], models, config.model_of(side), own_words)
            count = len(specials.before) + len(specials.after)
            length, longest = self.length_tokens(side), towers.tower(side).longest_input
            where = f"encoder.tokenization.{side}.length_tokens is {length}"
            if length > longest:
                raise ValueError(f"{where}, but {config.model_of(side)} reads at most {longest}")
            if length <= count:
                raise ValueError(f"{where}, and {count} of them are special tokens")

    @property
    def dimension(self) -> int:
        return self.towers.queries.dimension

    @property
    def attention(self) -> str:
        """How the towers compute attention, by transformers' names, such as `sdpa`."""
        kinds = {model.config._attn_implementation for model in transformers_in(self.towers)}
        return ", ".join(sorted(kinds))

    def untie(self) -> None:
        self.towers.untie()
        self.config = self.config.model_copy(update={"tied": False})

    def length_tokens(self, side: Side) -> int:
        return self.config.tokenization.side(side).length_tokens

    def digest(self) -> str:
        """A hash of all that the vectors depend on, wherever the weights come from."""
        digest = hashlib.sha256(self.config.model_dump_json(exclude=START_NAMES).encode())
        for name, tensor in sorted(self.towers.state_dict().items()):
            weights = tensor.detach().cpu().reshape(-1).view(torch.uint8)
            digest.update(name.encode() + weights.numpy().tobytes())
        return digest.hexdigest()

    def encode(
        self,
        texts: Sequence[str | Mapping[str, str]],
        side: Side = "query",
        precision: Precision = "fp32",
        tokens_per_batch: int | None = None,
    ) -> np.ndarray:
        """Encode texts into vectors (N, D) float32, in their order.

        texts: strings, or dicts of fields (such as `title` and `text`) for the template of `side`. A string
        is the field `text`. Longer texts are cut at `length_tokens(side)`; a document is not split into
        passages. tokens_per_batch: with padding; None: what is fast on the device. Raises ValueError, naming
        the position, for anything else, for half a surrogate pair, for a text without any field of the
        template, and for a vector with NaN or infinite values; also for an unknown side or precision, and for
        a single text in place of a list.
        """
        if isinstance(texts, str | Mapping):
            raise ValueError(f"texts is a single text, {texts!r}; expected a list: encode([{texts!r}])")
        if side not in SIDES:
            raise ValueError(f"side is {side!r}; expected {' or '.join(map(repr, SIDES))}")
        if precision not in DTYPES:
            raise ValueError(f"precision is {precision!r}; expected {' or '.join(map(repr, DTYPES))}")
        records = [self._fields(position, text, side) for position, text in enumerate(texts)]
        tokens = TokenStore.of_lists(self.tokenizer.ids(side, records), self.tokenizer.specials[side])
        vectors, rows = np.empty((len(records), self.dimension), np.float32), np.arange(len(records))
        copy = self._kept_copy(side, DTYPES[precision])
        batches = self.encode_on_device(tokens, rows, side, precision, tokens_per_batch, copy)
        for batch_rows, block in to_host(batches, tokens):
            vectors[batch_rows] = block
        return vectors

    def optimize_for_inference(self) -> Self:
        """Let `encode` keep the copies of the weights that it makes, for later calls; returns the encoder.

        There is a copy for each tower and precision that is used: in half precision, and in fp32 on an AMD
        processor. A copy takes longer to make than a query to encode: one by one, queries are then 4 times as
        fast in bf16 (docs/lab-notes/speed.md). What changes in the encoder after its first `encode` is not
        seen until this is called again.
        """
        self._copies = {}
        return self

    def _kept_copy(self, side: Side, dtype: torch.dtype) -> Tower | None:
        if self._copies is None:
            return None
        tower = self.towers.tower(side)
        if (tower, dtype) not in self._copies:
            copied = faster_copy(tower, dtype, self.device)
            self._copies[tower, dtype] = None if copied is None else copied.eval()
        return self._copies[tower, dtype]

    def _fields(self, position: int, text: str | Mapping[str, str], side: Side) -> dict[str, str]:
        fields = text if isinstance(text, Mapping) else {"text": text}
        problem = None
        if other := [type(value).__name__ for value in fields.values() if not isinstance(value, str)]:
            problem = f"a value of type {other[0]}; expected a string, or a dict of fields that are strings"
        elif not all(map(is_utf8, fields.values())):
            problem = "half a surrogate pair; remove the character"
        if problem:
            raise ValueError(f"texts[{position}] is {shown(text)}, with {problem}")
        settings = self.config.tokenization.side(side)
        template, is_named = settings.template, any(f"{{{name}}}" in settings.template for name in fields)
        if not is_named or not fields.keys() >= {*settings.first_documents}:
            raise ValueError(
                f"this encoder reads a {side} as {template!r}, but texts[{position}] has only "
                f"{', '.join(fields) or 'no fields'}; pass dicts with these fields"
            )
        return dict(fields)

    def encode_on_device(
        self,
        tokens: TokenStore,
        rows: np.ndarray,
        side: Side,
        precision: Precision,
        tokens_per_batch: int | None = None,
        copy: Tower | None = None,
    ) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Yield batches (rows (B,), vectors (B, D) float32), longest texts first; each row occurs once.

        The vectors are where the encoder is, and nothing waits for them: `to_host` does.

        copy: of the side's tower, which encodes; default: one that is made where that pays.
        """
        training, length = self.towers.training, self.length_tokens(side)
        if any(module.training for module in self.towers.modules()):
            self.towers.eval()
        try:
            lengths, dtype = tokens.lengths(length, rows), DTYPES[precision]
            own, num_tokens = self.towers.tower(side), int(lengths.sum())
            # Training changes the weights between two calls, so a copy ends with this one.
            towers = TwoTower(copy or faster_copy(own, dtype, self.device, num_tokens) or own)
            for batch in encoding_batches(lengths, tokens_per_batch, self.device, precision):
                ids, mask = padded_batch(tokens, rows[batch], length, self.device)
                with torch.inference_mode():
                    vectors = towers(side, ids, mask)
                yield rows[batch], vectors
        finally:
            if training:
                self.towers.train()
