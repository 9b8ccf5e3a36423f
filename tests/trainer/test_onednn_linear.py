"""oneDNN's linear layers for training against nn.Linear, in fp32 and float64."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from pyserini_ance.trainer import onednn_linear as module
from pyserini_ance.trainer.onednn_linear import OneDnnLinear, onednn_trains_linears, use_onednn_linears


@pytest.fixture(autouse=True)
def on_amd(monkeypatch):
    """As on AMD's processors, and nothing is known about this one."""
    monkeypatch.setattr(module, "cpu_is_amd", lambda: True)
    onednn_trains_linears.cache_clear()
    yield
    onednn_trains_linears.cache_clear()


@pytest.fixture
def needs_operator():
    if not onednn_trains_linears():
        pytest.skip("this processor or torch lacks the operator")


def layers(inputs: int, outputs: int, bias: bool = True) -> tuple[nn.Linear, nn.Linear]:
    torch.manual_seed(1)
    own = nn.Linear(inputs, outputs, bias)
    plain = copy.deepcopy(own)
    use_onednn_linears(own)
    assert type(own) is OneDnnLinear
    return own, plain


def output_and_gradients(layer: nn.Linear, given: torch.Tensor, through: torch.Tensor) -> list[torch.Tensor]:
    """The output, and the gradients of `given` and the weights after two backward passes."""
    layer.zero_grad()
    given = given.clone().requires_grad_()
    for _ in range(2):
        output = layer(given)
        output.backward(through)
    return [output.detach(), given.grad, *(weight.grad for weight in layer.parameters())]


@pytest.mark.usefixtures("needs_operator")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 64, 32), (200, 384, 1536), (70, 37, 5), (3, 7, 48, 100)], ids=str)
def test_outputs_and_gradients_are_as_exact_as_nn_linears(shape, bias):
    *rows, inputs, outputs = shape
    own, plain = layers(inputs, outputs, bias)
    given, through = torch.randn(*rows, inputs), torch.randn(*rows, outputs)
    exact = output_and_gradients(copy.deepcopy(plain).double(), given.double(), through.double())
    found = output_and_gradients(own, given, through)
    expected = output_and_gradients(plain, given, through)
    for one, other, reference in zip(found, expected, exact, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)
        errors = [float((each.double() - reference).square().mean().sqrt()) for each in (one, other)]
        assert errors[0] <= 2 * errors[1] + 1e-7


@pytest.mark.usefixtures("needs_operator")
def test_tensors_of_any_strides():
    own, plain = layers(48, 40)
    given, through = torch.randn(6, 48, 10).transpose(1, 2), torch.randn(40, 10, 6).permute(2, 1, 0)
    for one, other in zip(
        *(output_and_gradients(each, given, through) for each in (own, plain)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("needs_operator")
def test_frozen_weights_have_no_gradient():
    own, plain = layers(48, 40)
    given = torch.randn(10, 48, requires_grad=True)
    own.weight.requires_grad_(False)
    own(given).sum().backward()
    assert own.weight.grad is None
    torch.testing.assert_close(own.bias.grad, torch.full((40,), 10.0))
    torch.testing.assert_close(given.grad, plain.weight.sum(0).expand(10, 48))


@pytest.mark.usefixtures("needs_operator")
def test_in_other_precisions_and_on_other_devices_it_is_nn_linear():
    own, plain = layers(48, 40)
    given = torch.randn(10, 48)
    assert copy.deepcopy(own).to("meta")(given.to("meta")).shape == (10, 40)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(own(given), plain(given))
    for dtype in (torch.float64, torch.bfloat16):
        assert torch.equal(own.to(dtype)(given.to(dtype)), plain.to(dtype)(given.to(dtype)))


def test_other_processors_and_layers_of_other_classes_stay(monkeypatch):
    class Doubled(nn.Linear):
        def forward(self, inputs):
            return 2 * super().forward(inputs)

    other = Doubled(4, 4)
    use_onednn_linears(other)
    assert type(other) is Doubled
    monkeypatch.setattr(module, "cpu_is_amd", lambda: False)
    onednn_trains_linears.cache_clear()
    plain = nn.Linear(4, 4)
    use_onednn_linears(plain)
    assert type(plain) is nn.Linear


@pytest.mark.parametrize(
    "operators",
    [
        {},
        {"_linear_pointwise": lambda given, *_: torch.zeros(())},
        {"_linear_pointwise": lambda given, weight, bias, *_: functional.linear(given, weight)},
    ],
    ids=["missing", "another shape", "without the bias"],
)
def test_without_the_operator_layers_stay_as_they_are(monkeypatch, operators):
    monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace(**operators))
    plain = nn.Linear(4, 4)
    use_onednn_linears(plain)
    assert type(plain) is nn.Linear
