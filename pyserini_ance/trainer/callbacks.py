"""TrainerCallback: what users are told of while a stage trains."""

from typing import Any

from pyserini_ance.runs.generation import Generation


class TrainerCallback:
    """Base class whose methods do nothing; override those that are needed, as in transformers.

    The methods are called on the main process only. An exception in one of them stops training; the run can
    be resumed. A resumed run calls them again for the steps that it repeats.
    """

    def on_step_end(self, stage: str, step: int, losses: dict[str, float], metrics: dict[str, Any]) -> None:
        """Called after optimizer step `step` (from 0). On a GPU it comes while the next step is at work, or
        before the weights are saved. With several processes it has less than a minute; the others wait for
        the methods below as long as they take.

        `losses` are the unweighted means of the terms over the batch. `metrics` are the other values of the
        step's record in `metrics.jsonl`: `loss` (the weighted sum), `grad_norm` (before clipping),
        `learning_rate`, `seconds`, the measures of live searches, and `false_negatives`, the number of pairs
        that each term's `false_negative_margin` ignored; `without_negatives`, the terms that had nothing to
        compare. In fp16 also `loss_scale`, and `skipped` in place of `grad_norm` where the gradient
        overflowed.
        """

    def on_refresh(self, stage: str, step: int, generation: Generation) -> None:
        """Called when new tables of negatives are adopted before step `step`.

        `generation.step` is the step of the checkpoint that they were mined with.
        """

    def on_dev_measure(self, stage: str, step: int, measure: str, value: float) -> None:
        """Called when the dev score of the checkpoint before step `step` is known.

        `measure` is the name in ir-measures. With several dev splits, `value` is the mean over them.
        """
