from pathlib import Path

import numpy as np
import pytest
from helpers.run_outcome import outcome
from helpers.stages import make_stage, recipe_file

from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.pipeline.preparation import read_collection
from pyserini_ance.recipe.load import load
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.storage.publish import read_manifest

BOTH = [{"kind": "ann", "top_k": 10}, {"kind": "lookahead", "top_k": 10}]
NEW = {"kind": "mix", "weights": [1, 1], "top_k": 6, "sources": BOTH}
POOLS = {"epi-1": NEW, "epi-2": {"kind": "mix", "sources": [NEW, {"kind": "momentum"}]}}


def stages(**refresh) -> dict:
    schedule, made = {"warmup_steps": 2, "total_steps": 12}, {}
    for steps, (name, pool) in zip((6, 7), POOLS.items(), strict=True):
        more = {"init_from": "initial", "lr_schedule": schedule, "save_every_steps": 4}
        due = {"every_steps": steps, **refresh}
        made[name] = make_stage({**pool, "num_negatives": 3}, steps=steps, refresh=due, **more)
    made["epi-2"]["refresh"]["initial_model"] = "previous_stage"
    return made


@pytest.fixture(scope="module")
def recipe(small_recipe, tmp_path_factory) -> Path:
    return recipe_file(small_recipe(stages()), tmp_path_factory.mktemp("recipe"))


def encoder_hash(run: Path, checkpoint: str) -> str:
    return read_manifest(run / "checkpoints" / checkpoint)["parts"]["encoder/model.safetensors"]["sha256"]


def test_the_second_episode_is_mined_with_the_result_of_the_first_and_starts_anew(undisturbed):
    first, second = (read_manifest(undisturbed / "negatives" / f"{name}-00000000") for name in POOLS)
    decided = read_json_lines(undisturbed / "decisions.jsonl")
    starts = {r["stage"]: r["weights"] for r in decided if r["event"] == "adopt"}
    ends = {r["stage"]: r["weights"] for r in decided if r["event"] == "stage_end"}
    initial, result = (encoder_hash(undisturbed, name) for name in ("initial-00000000", "epi-1-00000006"))
    assert second["weights"] == starts["epi-2"] == ends["epi-1"] == result
    assert first["weights"] == starts["epi-1"] == initial != second["weights"]
    assert "previous tables" in second and "previous tables" not in first


def test_its_pool_is_a_new_one_and_the_former_one_whole_with_its_origins(undisturbed):
    tables = (undisturbed / "negatives" / f"{name}-00000000" / "query.0" for name in POOLS)
    former, pool = map(NegativeTable.load, tables)
    for own, taken in zip(former.candidates.tolist(), pool.candidates.tolist(), strict=True):
        assert taken[6:] == own and PADDING not in taken and len(taken) == 12
    kinds = ("ann", "lookahead")
    new, old = ({f"{kind} of {name}-00000000": 15 * 3 for kind in kinds} for name in reversed(POOLS))
    assert pool.origin_counts() == {**new, **old} and former.origin_counts() == old


def test_at_the_end_the_training_queries_are_ranked_with_the_result(undisturbed, recipe):
    metrics = read_json_lines(undisturbed / "metrics.jsonl")
    (record,) = [each for each in metrics if each["event"] == "training_queries"]
    result = encoder_hash(undisturbed, "epi-2-00000007")
    assert (record["stage"], record["step"], record["weights"]) == ("epi-2", 7, result)
    encoder, collection = load_encoder(undisturbed / "model"), read_collection(load(recipe))
    queries, documents = collection.split("train").queries, collection.documents
    vectors = encoder.encode(documents.take(range(len(documents))), "document")
    scores = encoder.encode(queries.take(range(15)), "query") @ vectors.T
    places = (-scores).argsort(1).argsort(1) + 1
    ranks = np.load(undisturbed / "training-queries.positive_ranks.npy")
    known = [collection.split("train").qrels.relevant(query) for query in range(15)]
    assert ranks.tolist() == [places[query, own].min() for query, own in enumerate(known)]
    assert "positive_ranks" not in record


def test_killed_at_its_turns_it_comes_to_the_same_bit_by_bit(train, undisturbed, tmp_path):
    folder = tmp_path / "run"
    moments = [("kill_in_step", "6", 5), ("kill_in_tables", "epi-2", 0), ("kill_in_step", "7", 5)]
    for number, (fault, stage, step) in enumerate(moments):
        train(folder, *["--resume"] * (number > 0), code=-9, fault=fault, stage=stage, step=step)
    train(folder, "--resume")
    assert outcome(folder) == outcome(undisturbed)


def test_a_refresher_beside_makes_the_same(server, small_recipe, undisturbed, tmp_path):
    recipe, folder = small_recipe(stages(mode="async"), refresher="external"), tmp_path / "run"
    arguments = [str(recipe_file(recipe, tmp_path)), "--output", str(folder)]
    refresher, trainer = server.start("refresh", arguments), server.start("train", arguments)
    for pid in (trainer, refresher):
        server.wait(pid, code=0)
    made, expected = outcome(folder), outcome(undisturbed)
    assert made == expected | {"metrics": made["metrics"], "files": made["files"]}
    for files in (made["files"], expected["files"]):
        for name in ("refresher.json", "requests.json"):
            files.pop(name, None)
    assert made["files"] == expected["files"]
