"""Gradients of embedding tables on CPU, added to the rows of the texts alone.

torch makes a gradient of the whole table at every backward pass, 47 MB of zeros for BERT's vocabulary, and
adds these up: a fifth of the time of a step of MiniLM's first two layers. Here one table is kept, and the
rows that a step has touched are set to zero for the next. The sums are the same, bit by bit.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

LEAST_ROWS = 1000  # of a table that is worth it; position and type tables have fewer


class RowGradEmbedding(nn.Embedding):
    """An embedding whose backward pass adds to `weight.grad` itself.

    Autograd does not see that gradient: hooks on the weight are not called, and `torch.autograd.grad` has
    none.
    """

    _table: torch.Tensor | None = None  # the gradient that is kept: zeros but for `_rows`
    _rows: tuple[torch.Tensor, ...] = ()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the vectors (..., D) of the ids (...)."""
        return _Lookup.apply(self.weight, input, self)

    def add_gradients(self, ids: torch.Tensor, gradients: torch.Tensor) -> None:
        """Add the gradients (T, D) of the vectors of `ids` (T,); padding has none."""
        if self.padding_idx is not None:
            is_text = ids != self.padding_idx
            ids, gradients = ids[is_text], gradients[is_text]
        rows, places = torch.unique(ids, return_inverse=True)
        # torch's own sum, over as many rows as there are: the order of additions decides the last bits.
        sums = torch.ops.aten.embedding_dense_backward(gradients, places, len(rows), -1, False)
        if self.weight.grad is None:
            self.weight.grad = self._zeros()
        self.weight.grad.index_add_(0, rows, sums)
        self._rows += (rows,)

    def _zeros(self) -> torch.Tensor:
        if self._table is None:
            self._table = torch.zeros_like(self.weight)
        for rows in self._rows:
            self._table.index_fill_(0, rows, 0.0)
        self._rows = ()
        return self._table


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, ids: torch.Tensor, module: RowGradEmbedding) -> torch.Tensor:
        ctx.save_for_backward(ids)
        ctx.module = module
        return functional.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, None, None]:
        (ids,), (gradient,) = ctx.saved_tensors, gradients
        ctx.module.add_gradients(ids.reshape(-1), gradient.reshape(-1, gradient.shape[-1]))
        return None, None, None


def use_row_gradients(towers: nn.Module) -> None:
    """Make the large embeddings of the towers `RowGradEmbedding`s, in place.

    For one process on CPU: a sum over processes needs whole gradients, and a GPU would wait for `unique`.
    """
    for module in towers.modules():
        if (
            type(module) is nn.Embedding
            and module.num_embeddings >= LEAST_ROWS
            and not (module.sparse or module.scale_grad_by_freq or module.max_norm)
        ):
            module.__class__ = RowGradEmbedding
