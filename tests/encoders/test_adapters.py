"""Adapters of LoRA: new ones change nothing, saved ones are all that is trained, merged ones are added to the
weights by the formula."""

import json
import shutil

import numpy as np
import pytest
import torch
from helpers.families import FAMILIES, LENGTHS, TEXTS, assert_the_same, bert, make_family
from helpers.stages import RANDOM, make_stage
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from pyserini_ance.encoders.adapters import FILE, check_lora, trained_weights
from pyserini_ance.encoders.config import SIDE_FILE
from pyserini_ance.encoders.load_save import encoder_to_train, load_encoder, save_as_peft, save_encoder
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.recipe.lora import Lora
from pyserini_ance.recipe.stage import Stage

HASHES = ("of queries", "of documents")


@pytest.fixture
def checkpoints(tmp_path):
    """The folder of a step's encoder, as in a run directory."""

    def make(name: str):
        folder = tmp_path / "checkpoints" / name / "encoder"
        folder.mkdir(parents=True)
        return folder

    return make


@pytest.fixture
def based(start, checkpoints):
    """An encoder that is saved whole."""

    def make(model, **settings):
        folder = checkpoints("initial")
        save_encoder(start(model, **settings), folder)
        return folder

    return make


def stage(lora: Lora | None, **more) -> Stage:
    return Stage.model_validate({**make_stage(RANDOM), "lora": lora, **more})


def changed_by_training(encoder):
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in trained_weights(encoder.towers).values():
            weight.add_(0.1 * torch.randn_like(weight))
    return encoder


@pytest.mark.parametrize("name", FAMILIES)
def test_merged_adapters_of_a_family_give_the_vectors_of_training(tmp_path, based, checkpoints, saved, name):
    (source := tmp_path / name).mkdir()
    base = based(make_family(source, name), pooling=FAMILIES[name][2], tokenization=LENGTHS)
    encoder = encoder_to_train(base, HASHES, stage(Lora(r=2)), seed=5)
    np.testing.assert_array_equal(encoder.encode(TEXTS), load_encoder(base).encode(TEXTS))
    changed_by_training(encoder)
    save_encoder(encoder, folder := checkpoints("trained"))
    merged = load_encoder(folder)
    np.testing.assert_allclose(merged.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)
    assert np.abs(merged.encode(TEXTS) - load_encoder(base).encode(TEXTS)).max() > 0.01
    assert_the_same(saved(merged), merged)
    (peft := tmp_path / "peft").mkdir()
    save_as_peft(folder, peft, str(source))
    assert {"adapter_config.json", "adapter_model.safetensors"} < {path.name for path in peft.iterdir()}
    assert not list(peft.rglob("model.safetensors"))
    assert_the_same(peft, merged)


def test_a_checkpoint_holds_what_is_trained_and_merges_by_the_formula(based, checkpoints, tiny_bert):
    base = based(tiny_bert, pooling="mean", projection=8)
    lora = Lora(r=4, alpha=6, target=("query", "dense"))
    encoder = changed_by_training(encoder_to_train(base, HASHES, stage(lora), seed=5))
    save_encoder(encoder, folder := checkpoints("trained"))
    assert sorted(path.name for path in folder.iterdir()) == [FILE, SIDE_FILE]
    weights = load_file(folder / FILE)
    before, after = (load_encoder(each).towers.queries for each in (base, folder))
    heads = [name for name in weights if "lora" not in name]
    assert sorted(name.rpartition(".")[2] for name in heads) == ["bias", "weight"]  # of the Dense, as a whole
    pairs = {}
    for name, matrix in weights.items():
        if name not in heads:
            layer, _, which = name.removesuffix(".default.weight").rpartition(".lora_")
            pairs.setdefault(layer.removeprefix("queries."), {})[which] = matrix
    layers = {name for name, layer in before.named_modules() if isinstance(layer, torch.nn.Linear)}
    assert pairs.keys() == {
        name for name in layers if name.endswith((".query", ".dense")) and "pool" not in name
    }
    old, new = before.state_dict(), after.state_dict()
    assert new.keys() == old.keys()
    for name, weight in new.items():
        expected = old[name]
        if pair := pairs.get(name.removesuffix(".weight")):
            expected = expected + 6 / 4 * pair["B"] @ pair["A"]
        if name.startswith("layers.0"):
            torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-7)
    assert all(weight.requires_grad for weight in after.parameters())


def test_training_goes_on_with_adapters_of_the_same_settings_else_on_all_weights(
    based, checkpoints, tiny_bert
):
    lora = Lora(r=2)
    trained = changed_by_training(encoder_to_train(based(tiny_bert), HASHES, stage(lora), seed=5))
    save_encoder(trained, folder := checkpoints("trained"))
    same = encoder_to_train(folder, ("x", "y"), stage(lora), seed=9)
    assert same.adapters == trained.adapters
    for name, weight in trained_weights(same.towers).items():
        torch.testing.assert_close(weight, trained_weights(trained.towers)[name], rtol=0, atol=0)
    vectors = load_encoder(folder).encode(TEXTS)
    other = encoder_to_train(folder, ("x", "y"), stage(lora, trainable="query_tower"), seed=9)
    assert other.adapters.base == folder and other.adapters.hashes == ("x", "y")
    assert not other.towers.tied and not any(
        "lora" in name for name, _ in other.towers.documents.named_modules()
    )
    np.testing.assert_array_equal(other.encode(TEXTS), vectors)
    save_encoder(changed_by_training(other), second := checkpoints("second"))
    assert [path.parent.name for path in second.rglob(FILE)] == ["queries"]
    again = load_encoder(second)
    np.testing.assert_array_equal(
        again.encode(TEXTS, "document"), load_encoder(folder).encode(TEXTS, "document")
    )
    np.testing.assert_allclose(again.encode(TEXTS), other.encode(TEXTS), atol=1e-4)
    whole = encoder_to_train(second, ("x", "y"), stage(None), seed=9)
    assert whole.adapters is None and all(weight.requires_grad for weight in whole.towers.parameters())


def test_a_base_that_was_written_anew_is_not_taken_from_memory(start, based, checkpoints, tiny_bert):
    base = based(tiny_bert, projection=8)
    save_encoder(encoder_to_train(base, HASHES, stage(Lora(r=2)), seed=5), first := checkpoints("first"))
    load_encoder(first)
    shutil.rmtree(base)
    base.mkdir()
    save_encoder(start(tiny_bert, 7, projection=8), base)
    of_new = encoder_to_train(base, ("new", "new"), stage(Lora(r=2)), seed=5)
    save_encoder(of_new, second := checkpoints("second"))
    np.testing.assert_array_equal(load_encoder(second).encode(TEXTS), load_encoder(base).encode(TEXTS))


def cut(folder, base):
    weights = load_file(folder / FILE)
    weights.popitem()
    save_file(weights, folder / FILE)


def of_another_rank(folder, base):
    side = json.loads((folder / SIDE_FILE).read_text())
    side["adapters"]["lora"]["r"] = 3
    (folder / SIDE_FILE).write_text(json.dumps(side))


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (cut, RuntimeError, "weights of other names or sizes than adapters of .*initial"),
        (of_another_rank, RuntimeError, "weights of other names or sizes"),
        (lambda folder, base: shutil.rmtree(base), FileNotFoundError, "adapters of .*initial.* alone"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(based, checkpoints, tiny_bert, damage, error, message):
    base = based(tiny_bert)
    save_encoder(encoder_to_train(base, HASHES, stage(Lora(r=2)), seed=5), folder := checkpoints("trained"))
    damage(folder, base)
    with pytest.raises(error, match=message):
        load_encoder(folder)


def test_lora_needs_layers(start, tiny_bert, tmp_path):
    with pytest.raises(
        SettingError, match=r"a\.lora\.target: .*no layers named 'quer' \(did you mean 'query'"
    ):
        check_lora(start(tiny_bert).towers, Lora(target=("quer",)), "a.lora")
    model = SentenceTransformer(modules=[StaticEmbedding(bert(), embedding_dim=16)], device="cpu")
    model.save(str(tmp_path / "static"))
    with pytest.raises(SettingError, match=r"a\.lora: the encoder has no Transformer"):
        check_lora(start(tmp_path / "static", tokenization={}).towers, Lora(), "a.lora")
