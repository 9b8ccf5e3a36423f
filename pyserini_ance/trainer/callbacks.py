"""What a stage tells while it trains: numbers of its steps, the time left; and the callbacks of users."""

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from pyserini_ance.recipe.term import Term
from pyserini_ance.runs.generation import Generation

LEAST_SCALE = 1.0  # of the loss in fp16: gradients that are too large unscaled are no matter of the scale


class TrainerCallback:
    """Base class whose methods do nothing; override those that are needed, as in transformers.

    The methods are called on the main process only. An exception in one of them stops training; the run can
    be resumed. A resumed run calls them again for the steps that it repeats.
    """

    def on_step_end(self, stage: str, step: int, losses: dict[str, float], metrics: dict[str, Any]) -> None:
        """Called after optimizer step `step` (from 0). On a GPU it comes while the next step is at work, or
        before the weights are saved.

        `losses` are the unweighted means of the terms over the batch. `metrics` are the other values of the
        step's record in `metrics.jsonl`: `loss` (the weighted sum), `grad_norm` (before clipping),
        `learning_rate`, `seconds`, the measures of live searches, and `false_negatives`, the number of pairs
        that each term's `false_negative_margin` ignored. In fp16 also `loss_scale`, and `skipped` in place of
        `grad_norm` where the gradient overflowed.
        """

    def on_refresh(self, stage: str, step: int, generation: Generation) -> None:
        """Called when new tables of negatives are adopted before step `step`.

        `generation.step` is the step of the checkpoint that they were mined with.
        """

    def on_dev_measure(self, stage: str, step: int, measure: str, value: float) -> None:
        """Called when the dev score of the checkpoint before step `step` is known.

        `measure` is the name in ir-measures. With several dev splits, `value` is the mean over them.
        """


def check_callbacks(callbacks: Any) -> None:
    """Raise ValueError if `callbacks` is not a list of TrainerCallbacks whose methods take what training
    passes."""
    if not isinstance(callbacks, Sequence):
        raise ValueError(f"callbacks is {callbacks!r}; expected a list: callbacks=[...]")
    for callback in callbacks:
        if not isinstance(callback, TrainerCallback):
            raise ValueError(f"callbacks: {callback!r} is not a TrainerCallback; derive its class from it")
        for name in ("on_step_end", "on_refresh", "on_dev_measure"):
            expected = [*inspect.signature(getattr(TrainerCallback, name)).parameters][1:]
            try:
                inspect.signature(getattr(callback, name)).bind(*expected)
            except TypeError as error:
                raise ValueError(
                    f"callbacks: {name} of {type(callback).__name__} cannot be called with the "
                    f"{len(expected)} arguments of training ({error}); expected: "
                    f"def {name}(self, {', '.join(expected)})"
                ) from None


class LossNotFinite(RuntimeError):
    """The loss or its gradient is infinite or NaN."""

    needs_new_recipe = True


class StepReport:
    """The losses, ignored pairs and gradient norm of step `step`.

    They stay on the device until `send` copies them together, for which the host does not wait; `read` waits
    until they have arrived. `settings` are further values of the step's record.

    With a scale of the loss (fp16), a gradient that is not finite makes the step a skipped one, which has no
    norm, as long as the scale can fall.
    """

    def __init__(self, step: int, terms: Mapping[str, Term]):
        self.step, self.terms = step, terms
        self.settings: dict[str, Any] = {}
        self._chunks: list[tuple[float, list[str]]] = []
        self._on_device: list[torch.Tensor] = []

    def add(
        self, losses: Mapping[str, torch.Tensor], ignored: Mapping[str, torch.Tensor], share: float
    ) -> None:
        """Add the losses of a chunk, a `share` of the batch, and the pairs that its terms ignored."""
        self._chunks.append((share, list(ignored)))
        self._on_device += [*(losses[name] for name in self.terms), *ignored.values()]

    def send(self, grad_norm: torch.Tensor, loss_scale: torch.Tensor | None = None) -> None:
        """Copy all numbers to the host, with the norm of the gradient before clipping, and the scale that the
        loss had."""
        self._is_scaled = loss_scale is not None
        if loss_scale is not None:
            self._on_device.append(loss_scale)
        # Counts are whole in float32 up to 16 million pairs of a chunk.
        numbers = torch.stack([number.detach().float() for number in (*self._on_device, grad_norm)])
        self._numbers = numbers.to("cpu", non_blocking=True)
        self._arrival = torch.cuda.Event() if numbers.is_cuda else None
        if self._arrival is not None:
            self._arrival.record()

    def read(self) -> tuple[dict[str, float], dict[str, Any]]:
        """Return the unweighted mean of each term over the batch, and the rest of the step's record."""
        if self._arrival is not None:
            self._arrival.synchronize()
        *numbers, grad_norm = self._numbers.tolist()
        gradient = {"grad_norm": grad_norm}
        if self._is_scaled:
            is_skipped = not math.isfinite(grad_norm)
            gradient = ({"skipped": True} if is_skipped else gradient) | {"loss_scale": numbers.pop()}
        losses, ignored = dict.fromkeys(self.terms, 0.0), dict[str, int]()
        for share, ignoring in self._chunks:
            losses = {name: total + share * numbers.pop(0) for name, total in losses.items()}
            for name in ignoring:
                ignored[name] = ignored.get(name, 0) + int(numbers.pop(0))
        loss = sum(term.weight * losses[name] for name, term in self.terms.items())
        masked = {"false_negatives": ignored} if ignored else {}
        settings = dict(self.settings)
        seconds = {"seconds": settings.pop("seconds")} if settings else {}
        return losses, {"loss": loss, **gradient, **settings, **masked, **seconds}

    def check(self, stage: str) -> None:
        """Raise LossNotFinite if the loss or the norm is not a finite number, and the step is not skipped."""
        numbers, grad_norm = self.read()[1], float(self._numbers[-1])
        is_skipped = numbers.get("skipped") and numbers["loss_scale"] >= LEAST_SCALE
        if math.isfinite(numbers["loss"]) and (math.isfinite(grad_norm) or is_skipped):
            return
        raise LossNotFinite(
            f"stage {stage}, step {self.step}: the loss is {numbers['loss']} and the norm of its gradient "
            f"{grad_norm}; lower stages.{stage}.optimizer.learning_rate or use precision: fp32"
        )


class StageClock:
    """How long the rest of a stage will take, with its refreshes and dev evaluations.

    It estimates from the steps and refreshes so far; `refresh_steps` are the steps before which there is one.
    Seconds before other steps, waiting for a refresher, count as those of the refreshes.
    """

    def __init__(self, first_step: int, steps: int, refresh_steps: Collection[int]):
        self.step, self.steps, self.refresh_steps = first_step, steps, sorted(refresh_steps)
        self.steps_done = self.refreshes_done = 0
        self.step_seconds = self.refresh_seconds = 0.0

    def refreshed(self, step: int, seconds: float) -> None:
        """The work before step `step` has taken `seconds`."""
        self.refreshes_done += step in self.refresh_steps
        self.refresh_seconds += seconds

    def stepped(self, step: int, seconds: float) -> None:
        self.step, self.steps_done = step + 1, self.steps_done + 1
        self.step_seconds += seconds

    def seconds_left(self) -> float | None:
        """Seconds to the end of the stage; None before the first step."""
        if not self.steps_done:
            return None
        refreshes = sum(step >= self.step for step in self.refresh_steps)
        step_seconds = (self.steps - self.step) * self.step_seconds / self.steps_done
        return step_seconds + refreshes * self.refresh_seconds / max(1, self.refreshes_done)
