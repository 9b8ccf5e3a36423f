"""StepReport: the numbers of one training step, which stay on the device until the host needs them."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from pyserini_ance.recipe.term import Term
from pyserini_ance.trainer.objective import Counts

LEAST_SCALE = 1.0  # of the loss in fp16: if gradients overflow unscaled, a lower scale cannot help


class LossNotFinite(RuntimeError):
    needs_new_recipe = True


class StepReport:
    """The losses, counts and gradient norm of step `step`, and `settings`, more values of its record.

    `send` copies the numbers to the host together, for which the host does not wait; `read` waits until they
    have arrived. With a scale of the loss (fp16), a gradient that is not finite makes the step a skipped one,
    which has no norm, as long as the scale can fall.
    """

    def __init__(self, step: int, terms: Mapping[str, Term]):
        self.step, self.terms = step, terms
        self.settings: dict[str, Any] = {}
        # What each number is: `losses` or a field of Counts, its term, and the share of its chunk.
        self._keys: list[tuple[str, str, float]] = []
        self._on_device: list[torch.Tensor] = []

    def add(self, losses: Mapping[str, torch.Tensor], counts: Counts, share: float) -> None:
        """Add the losses and counts of a chunk, a `share` of the batch."""
        for kind, of_terms in {"losses": losses, **vars(counts)}.items():
            self._keys += [(kind, name, share) for name in of_terms]
            self._on_device += of_terms.values()

    def send(self, grad_norm: torch.Tensor, loss_scale: torch.Tensor | None = None) -> None:
        """Copy all numbers to the host, with the norm of the gradient before clipping, and the scale that the
        loss had."""
        of_step = [grad_norm] if loss_scale is None else [grad_norm, loss_scale]
        # Counts are whole in float32 up to 16 million pairs of a chunk.
        numbers = torch.stack([number.detach().float() for number in (*self._on_device, *of_step)])
        self._numbers = numbers.to("cpu", non_blocking=True)
        self._arrival = torch.cuda.Event() if numbers.is_cuda else None
        if self._arrival is not None:
            self._arrival.record()

    def read(self, stage: str) -> tuple[dict[str, float], dict[str, Any]]:
        """Return the unweighted mean of each term over the batch, and the rest of the step's record.

        Raises LossNotFinite if the loss or the norm is not a finite number, and the step is not skipped.
        """
        if self._arrival is not None:
            self._arrival.synchronize()
        numbers = self._numbers.tolist()
        losses, counts = dict.fromkeys(self.terms, 0.0), Counter[tuple[str, str]]()
        for (kind, name, share), number in zip(self._keys, numbers, strict=False):
            if kind == "losses":
                losses[name] += share * number
            else:
                counts[kind, name] += int(number)
        grad_norm, *loss_scale = numbers[len(self._keys) :]
        gradient, is_skipped = {"grad_norm": grad_norm}, False
        if loss_scale:
            if not math.isfinite(grad_norm):
                is_skipped, gradient = loss_scale[0] >= LEAST_SCALE, {"skipped": True}
            gradient["loss_scale"] = loss_scale[0]
        loss = sum(term.weight * losses[name] for name, term in self.terms.items())
        if not (math.isfinite(loss) and (math.isfinite(grad_norm) or is_skipped)):
            kinds = [
                f"term {name}: {(term.regularizer or term.loss).kind}"
                for name, term in self.terms.items()
                if not math.isfinite(losses[name])
            ]
            of_terms = f" ({', '.join(kinds)})" if kinds else ""
            raise LossNotFinite(
                f"stage {stage}, step {self.step}: the loss is {loss}{of_terms} and the norm of its gradient "
                f"{grad_norm}; lower stages.{stage}.optimizer.learning_rate or use precision: fp32"
            )
        ignored = {name: count for (kind, name), count in counts.items() if kind == "ignored"}
        masked = {"false_negatives": ignored} if ignored else {}
        empty = [name for (kind, name), count in counts.items() if kind == "compared" and not count]
        compared = {"without_negatives": empty} if empty else {}
        return losses, {"loss": loss, **gradient, **masked, **compared, **self.settings}
