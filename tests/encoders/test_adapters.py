"""LoRA: new adapters change nothing, saved ones are all that is trained, merged ones follow the formula."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from helpers.families import FAMILIES, LENGTHS, TEXTS, assert_the_same, bert, make_family
from helpers.stages import RANDOM, make_stage
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import AutoModel, AutoTokenizer

from pyserini_ance.encoders.adapters import FILE, check_trainable, trained_weights
from pyserini_ance.encoders.config import SIDE_FILE
from pyserini_ance.encoders.load_save import encoder_to_train, load_encoder, save_as_peft
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.recipe.stage import Lora, Stage
from pyserini_ance.runs.any_encoder import load_any_encoder
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir


@pytest.fixture
def published(tmp_path):
    """Publish an encoder as the checkpoint of a step."""
    run = RunDir(tmp_path / "run")
    return lambda encoder, name: publish_checkpoint(run, encoder, None, TrainingProgress(name, 0))


@pytest.fixture
def based(start, published):
    """A checkpoint with all weights."""
    return lambda model, **settings: published(start(model, **settings), "initial")


def adapted(base: Checkpoint, lora: Lora | None = Lora(r=2), seed: int = 5, **more):
    return encoder_to_train(base.encoder, base.hashes, stage(lora, **more), seed)


def stage(lora: Lora | dict | None, **more) -> Stage:
    return Stage.model_validate({**make_stage(RANDOM), "lora": lora, **more})


def changed_by_training(encoder):
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in trained_weights(encoder.towers).values():
            weight.add_(0.1 * torch.randn_like(weight))
    return encoder


@pytest.mark.parametrize("name", FAMILIES)
def test_merged_adapters_of_a_family_give_vectors_as_trained(tmp_path, start, based, published, saved, name):
    (source := tmp_path / name).mkdir()
    base = based(make_family(source, name), pooling=FAMILIES[name][2], tokenization=LENGTHS)
    encoder = adapted(base)
    np.testing.assert_array_equal(encoder.encode(TEXTS), load_encoder(base.encoder).encode(TEXTS))
    assert published(encoder, "new").hashes == base.hashes
    trained = published(changed_by_training(encoder), "trained")
    assert trained.weights != base.weights
    merged = load_encoder(trained.encoder)
    np.testing.assert_allclose(merged.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)
    assert np.abs(merged.encode(TEXTS) - load_encoder(base.encoder).encode(TEXTS)).max() > 0.01
    assert_the_same(saved(merged), merged)
    (peft := tmp_path / "peft").mkdir()
    save_as_peft(trained.encoder, peft, str(source))
    assert {"adapter_config.json", "adapter_model.safetensors"} < {path.name for path in peft.iterdir()}
    assert not list(peft.rglob("model.safetensors"))
    assert_the_same(peft, merged)
    started = start(peft)
    np.testing.assert_allclose(started.encode(TEXTS), merged.encode(TEXTS), atol=1e-5)
    assert_the_same(saved(started), started)


def test_of_two_towers_peft_gets_the_adapters_of_documents(tmp_path, based, published, tiny_bert):
    trained = changed_by_training(adapted(based(tiny_bert, tied=False, tokenization=LENGTHS)))
    (peft := tmp_path / "peft").mkdir()
    save_as_peft(published(trained, "trained").encoder, peft, str(tiny_bert))
    found = SentenceTransformer(str(peft), device="cpu").encode_document(TEXTS)
    np.testing.assert_allclose(found, trained.encode(TEXTS, side="document"), atol=1e-5)


@pytest.mark.parametrize("more", [{}, {"modules_to_save": ["norm"]}, {"trainable_token_indices": [7]}])
def test_an_adapter_of_peft_alone_is_added_to_its_base(start, saved, to_hub, tmp_path, more):
    base = make_family(tmp_path / "base", "Qwen3")
    model = AutoModel.from_pretrained(base)
    lora = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, **more)
    peft = get_peft_model(model, lora)
    for name in more.get("modules_to_save", ()):
        peft.base_model.model.get_submodule(name).modules_to_save["default"].weight.data.mul_(2)
    peft.save_pretrained(tmp_path / "peft")
    peft.merge_and_unload().save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "merged")
    settings = {"pooling": "lasttoken", "tokenization": LENGTHS}
    encoder, merged = (start(tmp_path / name, **settings) for name in ("peft", "merged"))
    np.testing.assert_allclose(encoder.encode(TEXTS), merged.encode(TEXTS), atol=1e-6)
    assert not np.allclose(encoder.encode(TEXTS), start(base, **settings).encode(TEXTS), atol=0.01)
    assert_the_same(saved(encoder), encoder)
    last = {"pooling": "lasttoken"}
    to_hub(tmp_path / "peft", "org/lora")  # as repllama: without a tokenizer
    of_folder, of_hub = (load_any_encoder(name, given=last) for name in (tmp_path / "merged", "org/lora"))
    np.testing.assert_allclose(of_folder.encode(TEXTS), of_hub.encode(TEXTS), atol=1e-6)


def test_a_checkpoint_holds_what_is_trained_and_merges_by_the_formula(based, published, tiny_bert):
    base = based(tiny_bert, pooling="mean", projection=8)
    encoder = changed_by_training(adapted(base, Lora(r=4, alpha=6, target=("query", "dense"))))
    folder = published(encoder, "trained").encoder
    assert sorted(path.name for path in folder.iterdir()) == [FILE, SIDE_FILE]
    weights = load_file(folder / FILE)
    before, after = (load_encoder(each).towers.queries for each in (base.encoder, folder))
    heads = [name for name in weights if "lora" not in name]
    assert sorted(name.rpartition(".")[2] for name in heads) == ["bias", "weight"]  # of the Dense, as a whole
    pairs = {}
    for name, matrix in weights.items():
        if name not in heads:
            layer, _, which = name.removesuffix(".default.weight").rpartition(".lora_")
            pairs.setdefault(layer.removeprefix("queries."), {})[which] = matrix
    layers = {name for name, layer in before.named_modules() if isinstance(layer, torch.nn.Linear)}
    named = {name for name in layers if name.endswith((".query", ".dense"))}
    assert pairs.keys() == {name for name in named if "pooler" not in name}
    old, new = before.state_dict(), after.state_dict()
    assert new.keys() == old.keys()
    for name, weight in new.items():
        expected = weights.get(f"queries.{name}", old[name])
        if pair := pairs.get(name.removesuffix(".weight")):
            expected = expected + 6 / 4 * pair["B"] @ pair["A"]
        torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-7)
    assert all(weight.requires_grad for weight in after.parameters())


def test_training_goes_on_with_adapters_of_the_same_settings_else_on_all_weights(based, published, tiny_bert):
    trained = changed_by_training(adapted(based(tiny_bert)))
    first = published(trained, "trained")
    same = adapted(first, Lora(r=2, dropout=0.1), seed=9)
    assert same.adapters.base == trained.adapters.base
    for name, weight in trained_weights(same.towers).items():
        torch.testing.assert_close(weight, trained_weights(trained.towers)[name], rtol=0, atol=0)
    other = adapted(first, trainable="query_tower")
    assert other.adapters.base == first.encoder and other.adapters.hashes == first.hashes
    assert {weight.device.type for weight in other.towers.documents.parameters()} == {"meta"}
    np.testing.assert_array_equal(other.encode(TEXTS), load_encoder(first.encoder).encode(TEXTS))
    second = published(changed_by_training(other), "second")
    assert [path.parent.name for path in second.encoder.rglob(FILE)] == ["queries"]
    again, before = load_encoder(second.encoder), load_encoder(first.encoder)
    np.testing.assert_array_equal(again.encode(TEXTS, "document"), before.encode(TEXTS, "document"))
    np.testing.assert_allclose(again.encode(TEXTS), other.encode(TEXTS), atol=1e-4)
    whole = adapted(second, None)
    assert whole.adapters is None and all(weight.requires_grad for weight in whole.towers.parameters())


def test_a_base_that_was_written_anew_is_not_taken_from_memory(start, based, published, tiny_bert):
    base = based(tiny_bert, projection=8)
    first = published(adapted(base), "first")
    load_encoder(first.encoder)
    shutil.rmtree(base.folder)
    anew = published(start(tiny_bert, 7, projection=8), "initial")
    second = published(adapted(anew), "second")
    expected = load_encoder(anew.encoder).encode(TEXTS)
    np.testing.assert_array_equal(load_encoder(second.encoder).encode(TEXTS), expected)
    for opened, folder in ((load_encoder, first.encoder), (Checkpoint.open, first.folder)):
        with pytest.raises(RuntimeError, match="first-.* adapters of other weights than those in .*initial"):
            opened(folder)


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
        (lambda folder, base: os.truncate(folder / FILE, 100), RuntimeError, "is damaged"),
        (lambda folder, base: shutil.rmtree(base), FileNotFoundError, "adapters of .*initial.* alone"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(based, published, tiny_bert, damage, error, message):
    base = based(tiny_bert)
    folder = published(adapted(base), "trained").encoder
    damage(folder, base.folder)
    with pytest.raises(error, match=message):
        load_encoder(folder)


def test_a_recipe_starts_from_merged_adapters_alone(start, based, published, tiny_bert):
    trained = published(adapted(based(tiny_bert)), "trained")
    with pytest.raises(ValueError, match=r"holds adapters alone; set encoder\.model to RUN/model"):
        start(trained.encoder)


def test_lora_fits_the_layers(start, tiny_bert):
    towers = start(tiny_bert).towers
    with pytest.raises(SettingError, match=r"a\.lora\.target: .*the name 'quer' \(did you mean 'query'"):
        check_trainable(towers, stage({"target": ["quer"]}), "a")
    with pytest.raises(SettingError, match=r"a\.lora\.target: no linear layer has the name 'LayerNorm'"):
        check_trainable(towers, stage({"target": ["LayerNorm"]}), "a")


def test_token_vectors_have_no_layers(start, tmp_path):
    model = SentenceTransformer(modules=[StaticEmbedding(bert(), embedding_dim=16)], device="cpu")
    model.save(str(tmp_path / "static"))
    towers = start(tmp_path / "static", tokenization={}).towers
    with pytest.raises(SettingError, match=r"a\.lora: the encoder has no Transformer"):
        check_trainable(towers, stage({}), "a")
    with pytest.raises(SettingError, match="shard: the encoder has no Transformer"):
        check_trainable(towers, stage(None), "a", shards=True)
    with pytest.raises(SettingError, match=r"a\.gradient_checkpointing: the model does not support it"):
        check_trainable(towers, stage(None, gradient_checkpointing=True), "a")
