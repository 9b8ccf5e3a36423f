"""LAMB as the papers' code has it, which is not what libraries offer under that name.

Source: You et al. 2020, arXiv:1904.00962, v3, in the form of cybertronai/pytorch-lamb, which microsoft/ANCE, thunlp/DANCE and
jingtaozhan/DRhard share.
"""

from collections.abc import Callable

import torch

LARGEST_NORM = 10.0  # of a weight tensor; the paper leaves the bound open, the code does not


class Lamb(torch.optim.Optimizer):
    """Every tensor moves `lr` times its norm (at most `LARGEST_NORM`), in the direction of Adam's step without bias correction.

    So with a rate of 1e-6 a matrix of norm 10 or less changes by a millionth of its norm a step. Weight decay is a part of the
    direction. A tensor of zeros moves by Adam's step itself.
    """

    def __init__(self, params, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> None:
        assert closure is None, "gradients are there before the step"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, **{name: group[name] for name in ("lr", "betas", "eps", "weight_decay")})

    def _move(self, parameter: torch.Tensor, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        first, second = self._moments(parameter)
        first.lerp_(parameter.grad, 1 - betas[0])
        second.mul_(betas[1]).addcmul_(parameter.grad, parameter.grad, value=1 - betas[1])
        direction = second.sqrt().add_(eps)
        torch.div(first, direction, out=direction)  # one new tensor, not two: on CPU those of an embedding take most of the time
        if weight_decay:
            direction.add_(parameter, alpha=weight_decay)
        parameter.addcmul_(direction, _trust(parameter, direction), value=-lr)

    def _moments(self, parameter: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = self.state[parameter]
        for name in ("exp_avg", "exp_avg_sq"):  # torch's names for them, as checkpoints have them
            if name not in state:
                state[name] = torch.zeros_like(parameter)
        return state["exp_avg"], state["exp_avg_sq"]


def _trust(parameter: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """A tensor of no dimensions, so that a GPU need not be waited for."""
    norm, length = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(direction)
    return torch.where((norm > 0) & (length > 0), norm.clamp(max=LARGEST_NORM) / length, 1.0)
