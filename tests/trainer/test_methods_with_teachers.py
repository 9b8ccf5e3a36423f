"""The last stages of methods later than ANCE-Tele, as demo's recipes have them, on the small collection."""

from typing import Any

import pytest
from helpers.stage_fixture import Training

from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.recipe.load import load
from pyserini_ance.runs.generation import open_generation

STAGES = {
    "simans": "ance",
    "simlm": "distilled",
    "rocketqa-v2": "iteration-2",
    "ar2": "iteration-2",
    "nv-retriever": "nv-retriever",
    "gpl": "gpl",
}
TAUGHT = {"simlm": {"distil"}, "rocketqa-v2": {"query"}, "ar2": {"query"}, "gpl": {"query"}}


def shrunk(settings: Any, teacher: str) -> Any:
    """The settings with a cross-encoder that is there, and at most as deep as the collection allows."""
    if isinstance(settings, list):
        return [shrunk(part, teacher) for part in settings]
    if not isinstance(settings, dict):
        return settings
    changed = {"model": teacher, "trained": None} if settings.get("kind") == "cross_encoder" else {}
    changed |= {"top_k": min(settings["top_k"], 8)} if "top_k" in settings else {}
    return {**{key: shrunk(value, teacher) for key, value in settings.items()}, **changed}


@pytest.mark.parametrize("method", STAGES)
def test_the_last_stage_of_a_method_trains(small_recipe, tmp_path, tiny_cross_encoder, method):
    settings = load(f"demo/{method}").recipe.stages[STAGES[method]].model_dump(mode="json")
    terms = shrunk(settings["terms"], str(tiny_cross_encoder))
    training = Training(small_recipe, tmp_path / "run", terms, steps=2, refresh={"every_steps": 1})
    trained = load_encoder(training.train().folder / "encoder")
    start = load_encoder(training.start.folder / "encoder")
    weights = zip(trained.towers.parameters(), start.towers.parameters(), strict=True)
    assert any((after != before).any() for after, before in weights)
    for step in (0, 1):
        scores = open_generation(training.run.generation("a", step), {}).teacher_scores
        assert {name for name, scored in scores.items() if len(scored.scores)} == TAUGHT.get(method, set())
