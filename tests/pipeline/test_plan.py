import pytest
from helpers.stages import RANDOM, changed, make_stage
from safetensors.torch import load_file

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.pipeline import plan as plan_module
from pyserini_ance.pipeline.experiment import train
from pyserini_ance.pipeline.plan import documents_encoded, plan
from pyserini_ance.pipeline.preparation import prepare
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.run_log import RunLog

STAGE = make_stage({"kind": "ann", "top_k": 5}, steps=20, batch_queries=2)
STATIC = make_stage(RANDOM, steps=20, batch_queries=2)
OFTEN = {"refresh": {"every_steps": 3}, "evaluate": {"every_steps": 2}}
MEASURED = make_stage({"kind": "ann", "top_k": 5}, steps=6, batch_queries=2, **OFTEN)
SIZES = [("both", "adamw", 1, 2), ("query_tower", "lamb", 2, 2), ("both", "adamw_8bit", 1, 0.5)]
# Stages, and how many of 100 documents they encode.
ENCODED = [({"steps": 10}, 0), ({"steps": 10, "refresh": 4}, 300), ({"steps": 10, "evaluate": 4}, 400)]
ENCODED += [({"steps": 8, "evaluate": 4}, 300), ({"steps": 3, "evaluate": 4}, 200)]
ENCODED += [({"steps": 8, "refresh": 4}, 200)]  # nothing is mined after the last step
ENCODED += [({"steps": 8, "evaluate": 4, "sample_documents": 500}, 300)]  # a sample of all
BOTH = {"steps": 8, "refresh": 4, "evaluate": 4}
ENCODED += [(BOTH, 300)]  # steps 0 and 4 are encoded once
ENCODED += [({**BOTH, "sample_documents": 50}, 250)]  # step 4 finds its sample among the refresh's
ENCODED += [({**BOTH, "trainable": "query_tower"}, 100)]  # and never again
# Tables that are adopted when ready may be skipped.
ENCODED += [({**BOTH, "sample_documents": 50, "adopt": "when_ready"}, 350)]
LATE = {"mode": "async", "adopt": 2}
SHARED = [({}, {}, {0, 4}), (LATE, {}, {0, 4})]
SHARED += [(LATE, {"mode": "sync"}, set())]  # training would wait for what it hands over
SHARED += [({"initial_model": "previous_stage"}, {}, {4})]  # other weights mine the first tables
# Refreshes before steps 0 and 3, dev of 2, 4 and 6; documents that are encoded once take the 10 s measured.
FROZEN = [("both", 2 * 3 + 3 * 100), ("query_tower", 10 + 2 * 3)]


def test_what_has_no_effect_or_repeats_queries_is_warned_of(small_recipe):
    rare = {**STAGE, "refresh": {"every_steps": 21}, "batch_queries": 16, "lr_schedule": {"warmup_steps": 21}}
    assert plan(small_recipe({"b": rare})).splitlines()[-4:] == [
        "",
        "WARNING: stages.b.refresh.every_steps is 21, but the stage has 20 steps: its negatives are mined at "
        "its start and never refreshed",
        "WARNING: stages.b.lr_schedule.warmup_steps is 21, but the schedule has 20 steps: the rate never "
        "rises to optimizer.learning_rate",
        "WARNING: stages.b.batch_queries is 16, but there are 15 training queries: a batch has the same "
        "query more than once",
    ]
    limits = {**STAGE, "refresh": {"every_steps": 20}, "batch_queries": 15}
    limits["lr_schedule"] = {"warmup_steps": 20}
    assert "WARNING" not in plan(small_recipe({"b": limits}))


@pytest.mark.parametrize("trainable, kind, towers, of_moments", SIZES)
def test_one_line_of_sizes(small_recipe, monkeypatch, trainable, kind, towers, of_moments):
    """In units of a vector."""
    recipe = small_recipe({"b": {**STATIC, "trainable": trainable}})
    recipe = changed(recipe, f"stages.b.optimizer={{kind: {kind}, learning_rate: 1}}")
    encoder = initial_encoder(recipe.encoder, recipe.seed)
    monkeypatch.setattr(plan_module, "GIB", 4 * encoder.dimension)
    weights = towers * sum(p.numel() for p in encoder.towers.parameters()) / encoder.dimension
    moments = f"its moments while its stage runs {of_moments * weights:.2f} GiB"
    sizes = f"a checkpoint {weights:.2f} GiB, {moments}"
    assert f"sizes: vectors 30.00 GiB, {sizes}" in plan(recipe).splitlines()


def test_a_dimension_above_the_models_is_named(small_recipe):
    key = "stages.b.terms.query.dimensions"
    recipe = changed(small_recipe({"b": STATIC}), f"{key}={{8: 1, 4096: 0.5}}")
    with pytest.raises(ValueError, match=rf"\.yaml: {key} has 4096, .* have \d+ numbers"):
        plan(recipe)
    recipe = changed(small_recipe({"b": STATIC}), "encoding.search=4096")
    with pytest.raises(ValueError, match=r"\.yaml: encoding.search is 4096, but .*; lower it"):
        plan(recipe)


@pytest.mark.parametrize("trainable", ["both", "query_tower"])
def test_the_size_of_adapters_is_that_of_the_file(small_recipe, tmp_path, trainable):
    recipe = small_recipe({"b": {**STATIC, "steps": 1, "lora": {"r": 2}, "trainable": trainable}})
    train(recipe, tmp_path)
    [file] = (tmp_path / "checkpoints" / "b-00000001").rglob("adapters.safetensors")
    size = sum(weight.nbytes for weight in load_file(file).values()) / 2**20
    assert f"; of adapters in stage b {size:.2f} MiB\n" in plan(recipe) and size > 0.005


def stage_of(steps: int, refresh=None, evaluate=None, sample_documents=None, adopt=None, **more) -> Stage:
    due = {
        "refresh": refresh and {"every_steps": refresh, "mode": "async" if adopt else "sync", "adopt": adopt},
        "evaluate": evaluate and {"every_steps": evaluate, "sample_documents": sample_documents},
    }
    kind = {"kind": "ann" if refresh else "random"}
    return Stage.model_validate(make_stage(kind, steps=steps, **due, **more))


@pytest.mark.parametrize("stage, encoded", ENCODED)
def test_documents_that_a_stage_encodes(stage, encoded):
    assert documents_encoded(stage_of(**stage), 100) == encoded


@pytest.mark.parametrize("refresh, evaluate, steps", SHARED)
def test_dev_shares_the_encoding_of_all_documents_for_tables(refresh, evaluate, steps):
    due = {"refresh": {"every_steps": 4, **refresh}, "evaluate": {"every_steps": 4, **evaluate}}
    stage = Stage.model_validate(make_stage({"kind": "ann"}, steps=8, **due))
    assert {step for step in range(9) if stage.encodes_all_documents(step)} == steps


@pytest.mark.parametrize("trainable, expected", FROZEN)
def test_frozen_documents_are_encoded_once(small_recipe, tmp_path, monkeypatch, trainable, expected):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spent = {"step": 4.0, "refresh": 3.0, "documents": 10.0 * (trainable == "query_tower")}
    monkeypatch.setattr(RunLog, "seconds_spent", lambda log, stage: spent)
    monkeypatch.setattr(plan_module, "_seconds_to_encode", lambda *given: 100.0)
    recipe = small_recipe({"only": {**MEASURED, "trainable": trainable}}, cache=str(tmp_path / "cache"))
    report = plan_module.dry_run(recipe, prepare(recipe, World()), 2, World())
    cells = [cell.strip() for cell in report.splitlines()[3].split("|")[1:-1]]
    assert cells == ["only", "2.000", "12.0", f"{expected:.1f}"]
