import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.stages import RANDOM, changed, make_stage
from safetensors.torch import load_file, save_file

from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.pipeline import initial_weights
from pyserini_ance.pipeline.experiment import train
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import TrainingProgress, publish_checkpoint
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import sha256_file

STAGE = make_stage(RANDOM, steps=2)


@pytest.fixture
def made(small_recipe, tmp_path) -> RunDir:
    """A run whose first stage of two has ended, made without training."""
    recipe, run = small_recipe({"warm": STAGE, "more": STAGE}), RunDir(tmp_path / "made")
    run.create(dump(recipe))
    result = publish_checkpoint(run, initial_encoder(recipe.encoder, 0), None, TrainingProgress("warm", 2))
    RunLog(run).decide("stage_end", stage="warm", step=2, result=result.folder.name, weights=result.weights)
    run.trainer.mark("stopped", "stage more, step 0")
    return run


def recipe_from(small_recipe, init_from: dict, **more) -> Recipe:
    return small_recipe({"b": {**STAGE, "init_from": init_from}}, **more)


def read(recipe: Recipe, folder: Path, resume: bool = False) -> tuple[dict, dict]:
    """Origins and encoders."""
    run, untrained = RunDir(folder), initial_encoder(recipe.encoder, 0)
    origins = initial_weights.find_origins(recipe, run, resume)
    folders = {name: Path(one["encoder"]) for name, one in origins.items()}
    opened = {n: initial_weights.open_origin(recipe, run, n, one, untrained) for n, one in folders.items()}
    return origins, opened


def test_a_missing_start_stops_a_run_before_the_data_is_read(small_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("warm.yaml").write_text(dump(small_recipe({"a": STAGE}, name="warm")))
    recipe = changed(recipe_from(small_recipe, {"recipe": "warm.yaml"}), "data.corpus=nowhere.jsonl")
    with pytest.raises(RuntimeError, match="runs/warm holds no run; make it with: pyserini-ance train warm"):
        train(recipe, Path("run"))
    assert not Path("run").exists()


def test_weights_are_found_by_run_and_stage_by_folder_and_by_recipe(made, monkeypatch):
    encoder = made.checkpoint("warm", 2) / "encoder"
    weights = sha256_file(encoder / "model.safetensors")
    found = initial_weights.find_weights(InitFrom(folder=made.folder, stage="warm"))
    assert found == initial_weights.WeightsOrigin(str(encoder), "warm", weights)
    shutil.copytree(encoder, made.model)  # without a manifest
    for folder in (encoder, made.model):
        assert initial_weights.find_weights(InitFrom(folder=folder)).weights == weights
    monkeypatch.chdir(made.folder.parent)
    Path("small.yaml").write_text(made.recipe.read_text())  # its name is `small`
    shutil.copytree(made.folder, "runs/small")
    found = initial_weights.find_weights(InitFrom(recipe="small.yaml", stage="warm")).encoder
    assert found == "runs/small/checkpoints/warm-00000002/encoder"


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (
            {"folder": "runs/demo-bm25"},
            r"stages.b.init_from: runs/demo-bm25 holds no run and no saved encoder; make it with: "
            r"pyserini-ance train RECIPE --output runs/demo-bm25$",
        ),
        ({"recipe": "small.yaml"}, r"runs/small holds no run; make it with: pyserini-ance train small.yaml$"),
        ({"folder": "made", "stage": "wram"}, r"no stage 'wram' \(did you mean 'warm'\?\); stages: warm"),
        (
            {"folder": "made"},
            r"a run that stopped at stage more, step 0: stage more has not ended. Continue it with: "
            r".* --output made --resume",
        ),
        ({"folder": "damaged", "stage": "warm"}, "is not what .*manifest.json says was written"),
    ],
)
def test_missing_or_damaged_weights_are_told_with_a_command(made, small_recipe, monkeypatch, start, message):
    monkeypatch.chdir(made.folder.parent)
    Path("small.yaml").write_text(made.recipe.read_text())
    shutil.copytree("made", "damaged")
    path = Path("damaged/checkpoints/warm-00000002/encoder/model.safetensors")
    save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path, {"format": "pt"})
    recipe = recipe_from(small_recipe, start)
    with pytest.raises(RuntimeError, match=message):
        read(recipe, Path("run"))
    (line,) = initial_weights.describe_initial_weights(recipe)
    assert line.startswith("stages.b.init_from: missing: ") and not Path("run").exists()


def test_what_an_encoder_computes_may_change_only_if_the_stage_allows_it(made, small_recipe, tmp_path):
    place = {"folder": str(made.folder), "stage": "warm"}
    recipe = recipe_from(small_recipe, place)
    by_title = "encoder.tokenization.document.template='{title}'"
    normalized = "encoder.normalize=true"
    changes = {"pooling": "encoder.pooling=cls", "normalize": normalized, "tokenization": by_title}
    for key, change in changes.items():
        cure = "" if key == "pooling" else rf".* `allow_changes: \[{key}\]` under the stage's `init_from:`"
        with pytest.raises(ValueError, match=rf"b.init_from: encoder.{key} is .* was trained with .*{cure}"):
            read(changed(recipe, change), tmp_path / "run")
    allowed = recipe_from(small_recipe, {**place, "allow_changes": ["normalize", "tokenization"]})
    allowed = changed(allowed, normalized, by_title)
    encoder = read(allowed, tmp_path / "run")[1]["start-b"]
    assert encoder.config.tokenization == allowed.encoder.tokenization
    assert np.allclose(np.linalg.norm(encoder.encode([{"title": "the red apple"}], "document"), axis=1), 1)
    shorter = changed(recipe, "encoder.tokenization.query.length_tokens=9", "encoder.dropout=0.5")
    free = read(shorter, tmp_path / "run")[1]["start-b"]
    assert (free.length_tokens("query"), free.config.dropout) == (9, 0.5)
    with pytest.raises(ValueError, match="`allow_changes` is for encoders from outside the recipe"):
        recipe_from(small_recipe, {"stage": "a", "allow_changes": ["normalize"]})


def test_another_tokenizer_is_refused(made, small_recipe, tiny_bert, tmp_path):
    recipe = recipe_from(small_recipe, {"folder": str(made.folder), "stage": "warm"})
    other = shutil.copytree(tiny_bert, tmp_path / "other")
    tokens = json.loads((other / "tokenizer.json").read_text())
    vocab = tokens["model"]["vocab"]
    vocab["the"], vocab["of"] = vocab["of"], vocab["the"]
    (other / "tokenizer.json").write_text(json.dumps(tokens))
    with pytest.raises(ValueError, match=r"has another tokenizer or dimension \(32\) than encoder.model"):
        read(changed(recipe, f"encoder.model={other}"), tmp_path / "run")
    with pytest.raises(ValueError, match="is inside .*made, the directory of this run; pass another"):
        read(recipe, made.folder)


def test_a_run_goes_on_with_its_copy_of_the_weights(made, small_recipe, tmp_path):
    recipe = recipe_from(small_recipe, {"folder": str(made.folder), "stage": "warm"})
    run = RunDir(tmp_path / "run")
    origins, encoders = read(recipe, run.folder)
    weights = initial_weights.publish_initial_weights(recipe, run, encoders)
    assert weights.keys() == {"start-b"} and set(weights["start-b"]) == {origins["start-b"]["weights"]}
    made.folder.rename(tmp_path / "moved")
    assert read(recipe, run.folder, resume=True) == ({}, {})
    assert initial_weights.publish_initial_weights(recipe, run, {}) == weights
