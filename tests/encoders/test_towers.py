import pytest
import torch
import transformers
from torch import nn

from pyserini_ance.encoders.hub import resolve_model
from pyserini_ance.encoders.towers import TwoTower, longest_input

TINY = dict(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1)
TINY |= dict(intermediate_size=4, max_position_embeddings=20)
NOWHERE = ("./nowhere", "~/nowhere-at-all", "/nowhere/at/all", "runs/a/modell")
MISSING = {name: f"encoder.model '{name}': no such folder" for name in NOWHERE}
MISSING["python:no_such_package/model"] = "'no_such_package' is installed; try `pip install no-such-package`"
MISSING["python:no_such.package/model"] = "'no_such.package' is installed; try `pip install no-such.package`"
MISSING["python:pytset/model"] = r"'pytset' is installed \(did you mean 'pytest'\?\); try `pip install"


@pytest.mark.parametrize("name, expected", [("Bert", 20), ("Roberta", 18), ("MPNet", 18), ("Electra", 20)])
def test_the_longest_input_works_and_one_more_does_not(name, expected):
    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**TINY)).eval()
    assert longest_input(model) == expected
    ids = torch.full((1, expected + 1), 5)
    assert model(input_ids=ids[:, :expected]).last_hidden_state.shape == (1, expected, 4)
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=ids)


@pytest.mark.parametrize("name, message", MISSING.items())
def test_a_model_that_is_missing_is_named(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model" / "model").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=message):
        resolve_model(name)


def test_models_are_found(tmp_path, monkeypatch):
    (tmp_path / "carrier" / "model").mkdir(parents=True)
    (tmp_path / "carrier" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert resolve_model("python:carrier/model") == str(tmp_path / "carrier" / "model")
    for name in (str(tmp_path), "FacebookAI/roberta-base", "runs/teacher"):  # the latter may be on the hub
        assert resolve_model(name) == name
    (tmp_path / "runs").mkdir()
    with pytest.raises(FileNotFoundError, match="encoder.model 'runs/teacher': no such folder"):
        resolve_model("runs/teacher")


@pytest.mark.parametrize("value", ["yes", 1, {"query": True}])
def test_a_switch_that_is_none_is_refused(config, value):
    with pytest.raises(ValueError, match="normalize\n  Value error, expected true or false"):
        config("x", normalize=value)


class Scale(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, side, ids, mask):
        return (ids * mask).float() * self.factor


def test_each_side_goes_through_its_tower():
    towers, ids, mask = TwoTower(Scale(2.0), Scale(3.0)), torch.tensor([[1, 5]]), torch.tensor([[1, 0]])
    assert not towers.tied and len(list(towers.parameters())) == 2
    assert towers("query", ids, mask).tolist() == [[2.0, 0.0]]
    assert towers("document", ids, mask).tolist() == [[3.0, 0.0]]


def test_tied_towers_share_every_weight_until_they_part():
    towers = TwoTower(Scale(2.0))
    assert towers.tied and len(list(towers.parameters())) == 1
    query, document, mask = torch.tensor([[1]]), torch.tensor([[4]]), torch.tensor([[1]])
    (towers("query", query, mask) + towers("document", document, mask)).sum().backward()
    assert towers.queries.factor.grad.item() == 5.0
    with pytest.raises(ValueError, match="the document tower cannot be frozen alone, the towers are tied"):
        towers.freeze("document")
    towers.untie()
    towers.untie()
    towers.queries.factor.data.fill_(5.0)
    assert not towers.tied and towers.documents.factor.item() == 2.0


def test_a_frozen_tower_has_no_gradients_and_no_dropout():
    towers = TwoTower(nn.Sequential(Scale(2.0), nn.Dropout(0.5)), nn.Sequential(Scale(3.0), nn.Dropout(0.5)))
    towers.freeze("document")
    assert towers.trains("query") and not towers.trains("document")
    for training in (True, False, True):
        towers.train(training)
        assert towers.training == towers.queries[1].training == training and not towers.documents[1].training
