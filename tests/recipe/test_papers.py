"""The recipes of the papers' own sets: what the papers say, written down once more, and what hangs together in them."""

from functools import cache
from typing import Any

import pytest

from pyserini_ance.encoders.checkpoint import MAY_DIFFER
from pyserini_ance.recipe.find import SHIPPED, shipped
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.published import read_published

PUBLISHED = {path.parent.name: read_published(path.parent).rows for path in SHIPPED.glob("*/_published.yaml")}
RECIPES = [name for name in shipped() if name.split("/")[0] in PUBLISHED]
EPISODES = [name for name in RECIPES if "tele" in name]


@cache
def recipe(name: str) -> Recipe:
    return load(name).recipe


# --- what the papers say


def of(stage: str, negatives: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Settings of a stage, and of the first source of its queries' negatives, by their dotted keys; `__` is a dot."""
    drawn = {f"stages.{stage}.terms.query.negatives.0.{key}": value for key, value in negatives.items()}
    return drawn | {f"stages.{stage}.{key.replace('__', '.')}": value for key, value in settings.items()}


LAMB = {"optimizer__kind": "lamb", "optimizer__decay": "linear"}
ADAMW = {"optimizer__kind": "adamw", "optimizer__decay": "linear"}
LENGTHS = ("encoder.tokenization.query.length_tokens", "encoder.tokenization.document.length_tokens")

# Xiong et al. 2021, section 5 and A.1.
ANN = {"kind": "ann", "per_query": 1, "depth": 200}
REFRESHED = {"refresh__every_steps": 10_000, "refresh__run": "background", "refresh__adopt": "ready"}
ANCE = of("ance", ANN, batch_queries=64, optimizer__warmup_steps=5000, **LAMB, **REFRESHED)
PASSAGES = {"stages.ance.optimizer.learning_rate": 1e-6, "stages.ance.steps": 600_000}
DOCUMENTS = {"stages.ance.optimizer.learning_rate": 5e-6}
# Zhan et al. 2020, sections 5.3, 6.4.1 and 6.1.
RATE = {"optimizer__learning_rate": 5e-6, "optimizer__weight_decay": 0.01, "optimizer__warmup_steps": 2000}
LTRE = of("ltre", {"kind": "live"}, train="queries", steps=60_000, batch_queries=32, **ADAMW, **RATE)
# Li et al. 2021, section 4.
DANCE_LAMB = {"batch_queries": 64, "optimizer__learning_rate": 5e-6, "optimizer__warmup_steps": 3000, **LAMB}
NORM = {"encoder.l2": True, **of("norm", ANN, steps=110_000, terms__query__loss__temperature=0.01, **DANCE_LAMB)}
DUAL = of("dual", ANN, terms__document__weight=0.1, **DANCE_LAMB)
# Sun et al. 2022, Tables 5 and 7.
TELE_RATE = {"optimizer__learning_rate": 5e-6, **ADAMW}
TELE = {
    **of("epi-1", {"kind": "mix", "per_query": 31}, steps=20_000, batch_queries=8, **TELE_RATE),
    **of("epi-2", {"per_query": 31, "weights": [0.5, 0.5]}, steps=20_000, refresh__first_with="previous"),
    **of("epi-3", {"per_query": 31, "sources.0.weights": [0.5, 0.5]}, start="initial", evaluate=None),
    **dict(zip(LENGTHS, (32, 128), strict=True)),
}
OPENQA = {
    **of("epi-1", {"kind": "mix", "per_query": 11}, steps=2000, batch_queries=128, **TELE_RATE),
    **of("epi-3", {"per_query": 11, "sources.0.weights": [0.5, 0.5]}, start="initial", evaluate=None),
    **dict(zip(LENGTHS, (32, 156), strict=True)),
    "encoder.tied": False,
}
EPISODE = {"steps": 10_000, "batch_queries": 8, "optimizer__learning_rate": 1e-6, "optimizer__warmup_steps": 5000, **ADAMW}
CYCLIC = {**of("epi-2", {}, keep_optimizer=True, **EPISODE), **of("epi-5", {"kind": "ann", "per_query": 7, "depth": 200}, **EPISODE)}
SAID = {
    "msmarco-passage/ance": {**ANCE, **PASSAGES, **dict(zip(LENGTHS, (64, 512), strict=True))},
    "msmarco-passage/ance-cosine": {**ANCE, **PASSAGES, "encoder.l2": True},
    "msmarco-passage/ltre-bm25": LTRE,
    "msmarco-passage/ltre-ance": {**LTRE, "stages.ltre.start": {"recipe": "msmarco-passage/ance"}},
    "msmarco-passage/ltre-opq12": {**LTRE, **of("ltre", {"index": "OPQ12,IVF1,PQ12"})},
    "msmarco-passage/ance-tele": {**TELE, "encoder.model": "Luyu/co-condenser-marco", "stages.epi-3.steps": 3 * 502_939 // 8},
    "msmarco-passage/tele-continue": {**TELE, "stages.epi-2.refresh.first_with": "start", "stages.epi-3.start": "previous"},
    "msmarco-passage/ance-cyclic": {**CYCLIC, "stages.epi-5.schedule_steps": 10_000},
    "msmarco-passage/ance-standard": {**CYCLIC, "stages.epi-5.schedule_steps": 50_000},
    "msmarco-doc/ance-firstp": {**ANCE, **DOCUMENTS, "stages.ance.steps": 210_000, "encoder.tokenization.document.passages": 1},
    "msmarco-doc/ance-maxp": {**ANCE, **DOCUMENTS, "stages.ance.steps": 139_000, "encoder.tokenization.document.passages": 4},
    "msmarco-doc/ance-norm": {**NORM, **dict(zip(LENGTHS, (64, 512), strict=True))},
    "msmarco-doc/ance-dual": {**DUAL, "encoder.l2": False},
    "msmarco-doc/dance": {**NORM, **DUAL, "stages.dual.steps": 80_000, "stages.dual.terms.document.loss.temperature": 0.01},
    "msmarco-doc/ltre-bm25": LTRE,
    "msmarco-doc/ltre-lamb": of("ltre", {"kind": "live"}, train="queries", **LAMB),
    "msmarco-doc/query-ann": of("query-ann", ANN, train="queries", refresh__every_steps=10_000, **LAMB),
    "nq/dpr": {"encoder.tied": False, **of("dpr", {"kind": "run"}, steps=40 * 58_880 // 128, batch_queries=128, terms__query__pool="step")},
    "nq/ance": of("ance", ANN, start={"recipe": "nq/dpr"}, **LAMB, **REFRESHED),
    "nq/ance-tele": {**OPENQA, "encoder.model": "Luyu/co-condenser-wiki", "stages.epi-3.steps": 40 * 79_168 // 128},
    "triviaqa/ance-tele": {**OPENQA, "encoder.model": "Luyu/co-condenser-wiki", "stages.epi-3.steps": 40 * 78_785 // 128},
}


@pytest.mark.parametrize("name", SAID)
def test_a_recipe_says_what_its_paper_says(name):
    settings = recipe(name).model_dump(mode="json")
    assert {key: at(settings, key) for key in SAID[name]} == SAID[name]


def at(settings: Any, key: str) -> Any:
    for part in key.split("."):
        settings = settings[int(part) if part.isdecimal() else part]
    return settings


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_expects_what_is_published_of_its_method(name):
    folder, method = name.split("/")
    rows = [row.figures for row in PUBLISHED[folder] if row.method == method]
    expect = recipe(name).expect
    assert bool(expect) == bool(rows)
    for split, figures in expect.items():
        for measure, value in figures.items():
            assert value in [row.get(split, {}).get(measure) for row in rows], (split, measure)


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_measures_all_that_is_published_of_its_set(name):
    """But for `eval`, whose judgments nobody else has."""
    places = {(split, measure) for row in PUBLISHED[name.split("/")[0]] for split, figures in row.figures.items() for measure in figures}
    assert {place for place in places if place[0] != "eval"} <= recipe(name).test.columns.keys()


# --- what hangs together


@pytest.mark.parametrize("name", EPISODES)
def test_episodes_stop_early_on_the_schedule_of_the_last(name):
    stages = list(recipe(name).stages.values())
    first, second, last = stages
    assert first.steps == second.steps < last.steps
    assert {stage.horizon_steps for stage in stages} == {last.steps}
    assert {stage.optimizer.warmup_steps for stage in stages} == {last.steps // 10}
    assert not any(stage.refresh_is_due(step) for stage in stages for step in range(1, stage.steps, 1000))


def test_standard_and_cyclic_ance_differ_in_the_rate_alone():
    standard, cyclic = (recipe(f"msmarco-passage/ance-{name}").stages for name in ("standard", "cyclic"))
    assert [stage.schedule_offset_steps for stage in standard.values()] == [10_000 * episode for episode in range(5)]
    alike = {"schedule_offset_steps": 0, "schedule_steps": 10_000}
    assert {name: stage.model_copy(update=alike) for name, stage in standard.items()} == cyclic


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_stage_starts_from_ships_and_reads_texts_alike(name):
    encoder = recipe(name).encoder
    for start in recipe(name).outside_starts.values():
        former = recipe(start.recipe).encoder
        if "tokenization" not in start.changes:
            assert encoder.tokenization.without_lengths() == former.tokenization.without_lengths()
        for key in set(type(encoder).model_fields) - {*MAY_DIFFER, *start.changes, "tokenization"}:
            assert getattr(encoder, key) == getattr(former, key), key
