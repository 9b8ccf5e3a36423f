"""The recipes of the papers' own sets: what the papers say, written down once more, and what hangs together in them."""

import re
import shlex
from functools import cache
from typing import Any

import pytest

from pyserini_ance.encoders.checkpoint import MAY_DIFFER
from pyserini_ance.recipe.find import SHIPPED, shipped
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.published import command_of, read_published

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

# Xiong et al. 2021, section 5 and A.1; of the warm-up, and of OpenQA, what its code has: commands/run_train_warmup.sh, *_dpr.sh.
ANN = {"kind": "ann", "per_query": 1, "depth": 200}
BM25 = {"kind": "run", "per_query": 1, "depth": 100, "file": None}
RAND = {"kind": "random", "per_query": 1}
HARDEST = {"terms__query__negatives": [], "terms__query__pool": "step", "terms__query__hardest": 1}
REFRESHED = {"refresh__every_steps": 10_000, "refresh__run": "background", "refresh__adopt": "ready"}
ANCE = of("ance", ANN, batch_queries=64, optimizer__warmup_steps=5000, **LAMB, **REFRESHED)
PASSAGES = {"stages.ance.optimizer.learning_rate": 1e-6, "stages.ance.steps": 600_000}
DOCUMENTS = {"stages.ance.optimizer.learning_rate": 5e-6}
CODE_ANCE = {"kind": "mix", "depth": 20, "weights": [1], "per_query": 1, "sources.0.kind": "ann", "sources.0.depth": 200}
WARM = {"steps": 60_000, "schedule_steps": 2_190_000, "batch_queries": 32, "optimizer__learning_rate": 2e-4, "optimizer__warmup_steps": 1000, **LAMB}
AS_ANCE = {"batch_queries": 64, "optimizer__learning_rate": 5e-6, "optimizer__warmup_steps": 5000, **LAMB}
FROM_BM25 = {"start__recipe": "msmarco-passage/bm25"}
OPENQA_ANCE = of(
    "ance", {**ANN, "guards.0.kind": "answers"}, batch_queries=128, positives="first", optimizer__learning_rate=1e-5, optimizer__warmup_steps=1000,
    optimizer__max_grad_norm=2.0, **LAMB, **REFRESHED,
)  # fmt: skip
# Karpukhin et al. 2020, section 5: one of BM25's for each question, 40 epochs of 128 a step, rate 1e-5; of its code, warm-up and clipping.
DPR = {
    "encoder.tied": False,
    "encoder.model": "bert-base-uncased",
    **dict(zip(LENGTHS, (256, 256), strict=True)),
    **of("dpr", {**BM25, "guards.0.kind": "answers"}, terms__query__pool="step", batch_queries=128, positives="first"),
    **of("dpr", {}, optimizer__learning_rate=1e-5, optimizer__warmup_steps=1237, optimizer__max_grad_norm=2.0, optimizer__kind="adamw"),
}
# jingtaozhan/DRhard, star/train.py.
STAR = {"steps": 50_000, "batch_queries": 256, "optimizer__learning_rate": 1e-4, "optimizer__weight_decay": 0.01, "optimizer__warmup_steps": 1000}
# Zhan et al. 2020, sections 5.3, 6.4.1 and 6.1.
RATE = {"optimizer__learning_rate": 5e-6, "optimizer__weight_decay": 0.01, "optimizer__warmup_steps": 2000}
ONE_PRECISION = {"encoding.precision": "fp32", "test.precision": "fp32"}
LTRE = ONE_PRECISION | of("ltre", {"kind": "live"}, train="queries", steps=60_000, batch_queries=32, **ADAMW, **RATE)
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
FROM_COCONDENSER = {"encoder.model": "Luyu/co-condenser-marco", "stages.epi-3.steps": 3 * 502_939 // 8, **dict(zip(LENGTHS, (32, 128), strict=True))}
LOOKAHEAD = {"sources.0.kind": "ann", "sources.1.kind": "lookahead", "sources.0.depth": 200, "sources.1.depth": 200, "weights": [0.5, 0.5]}
# OpenMatch/ANCE-Tele, shells/ and preprocess/.
CODE = {
    f"stages.{stage}.terms.query.{key}": value
    for stage in ("epi-1", "epi-2", "epi-3")
    for key, value in {"pool": "step", "negatives.0.weights": None, "negatives.0.depth": None, "negatives.0.duplicates": "keep"}.items()
}
EPISODE = {"steps": 10_000, "batch_queries": 8, "optimizer__learning_rate": 1e-6, "optimizer__warmup_steps": 5000, **ADAMW}
CYCLIC = {**of("epi-2", {}, keep_optimizer=True, **EPISODE), **of("epi-5", {"kind": "ann", "per_query": 7, "depth": 200}, **EPISODE)}
SAID = {
    "msmarco-passage/rand": of("rand", RAND, start="initial", **WARM),
    "msmarco-passage/rand-batch": {
        **of("rand-batch", {}, terms__query__negatives=[], terms__query__pool="step", terms__query__loss__kind="ranknet", **STAR, **LAMB),
        **dict(zip(LENGTHS, (24, 120), strict=True)),
    },
    "msmarco-passage/nce": of("nce", {}, start="initial", **HARDEST, **WARM),
    "msmarco-passage/bm25": of("bm25-neg", BM25, start="initial", **WARM),
    "msmarco-passage/dpr": of("dpr", BM25, start="initial", terms__query__negatives__1__kind="random", **WARM),
    "msmarco-passage/bm25-rand": of("rand", RAND, **FROM_BM25),
    "msmarco-passage/bm25-nce": of("nce", {}, **HARDEST, **FROM_BM25),
    "msmarco-passage/bm25-dpr": of("dpr", BM25, terms__query__negatives__1__kind="random", **FROM_BM25),
    "msmarco-passage/ance": {**ANCE, **PASSAGES, **of("ance", {}, **FROM_BM25), **dict(zip(LENGTHS, (64, 512), strict=True))},
    "msmarco-passage/ance-reference": {
        **PASSAGES,
        **of("ance", CODE_ANCE, batch_queries=64, in_a_row=20, refresh__chunks=5, **{**LAMB, **REFRESHED}),
    },
    "msmarco-passage/ance-cosine": {**ANCE, **PASSAGES, "encoder.l2": True},
    "msmarco-passage/ance-bce": {**ANCE, **PASSAGES, "stages.ance.terms.query.loss.kind": "bce"},
    "msmarco-passage/ance-hinge": {**ANCE, **PASSAGES, "stages.ance.terms.query.loss.kind": "hinge"},
    "msmarco-passage/ltre-bm25": {**LTRE, **of("ltre", {}, terms__query__loss__kind="ranknet", **FROM_BM25)},
    "msmarco-passage/ltre-lambdarank": {**LTRE, **of("ltre", {}, terms__query__loss__kind="lambdarank", **FROM_BM25)},
    "msmarco-passage/ltre-ance": {**LTRE, "stages.ltre.start": {"recipe": "msmarco-passage/ance"}},
    **{f"msmarco-passage/ltre-opq{n}": {**LTRE, **of("ltre", {"index": f"OPQ{n},IVF1,PQ{n}"}, **FROM_BM25)} for n in (6, 12, 24, 48, 96)},
    "msmarco-passage/ance-tele": {**TELE, **FROM_COCONDENSER},
    "msmarco-passage/ance-tele-reference": {**TELE, **FROM_COCONDENSER, **CODE, **of("epi-1", {"per_query": 15, "sources.0.depth": 60})},
    "msmarco-passage/tele-query": {**FROM_COCONDENSER, **of("epi-1", {**ANN, "per_query": 31}), **of("epi-3", {**ANN, "per_query": 31})},
    "msmarco-passage/tele-momentum": {
        **FROM_COCONDENSER,
        **of("epi-1", {**ANN, "per_query": 31}),
        **of("epi-3", {"per_query": 31, "weights": [0.5, 0.5], "sources.0.kind": "ann", "sources.1.kind": "momentum"}),
    },
    "msmarco-passage/tele-lookahead": {
        **FROM_COCONDENSER,
        **of("epi-1", {"per_query": 31, **LOOKAHEAD}),
        **of("epi-3", {"per_query": 31, **LOOKAHEAD}),
    },
    "msmarco-passage/tele-continue": {**TELE, "stages.epi-2.refresh.first_with": "start", "stages.epi-3.start": "previous"},
    "msmarco-passage/tele-without-repeats": {**TELE, **of("epi-1", {"duplicates": "drop"}), **of("epi-3", {"duplicates": "drop"})},
    "msmarco-passage/tele-bm25": {
        **FROM_COCONDENSER,
        **of("epi-1", {"per_query": 31, "sources.0.sources.2.kind": "run"}),
        **of("epi-3", {"per_query": 31, "weights": [0.5, 0.5], "sources.1.kind": "momentum"}),
    },
    "msmarco-passage/ance-cyclic": {**CYCLIC, "stages.epi-5.schedule_steps": 10_000},
    "msmarco-passage/ance-standard": {**CYCLIC, "stages.epi-5.schedule_steps": 50_000},
    "msmarco-doc/rand": of("rand", RAND, start="initial", **AS_ANCE),
    "msmarco-doc/nce": of("nce", {}, start="initial", **HARDEST, **AS_ANCE),
    "msmarco-doc/bm25": of("bm25-neg", BM25, start="initial", **WARM),
    "msmarco-doc/dpr": of("dpr", BM25, start="initial", terms__query__negatives__1__kind="random", **AS_ANCE),
    "msmarco-doc/bm25-rand": of("rand", RAND, **FROM_BM25, **AS_ANCE),
    "msmarco-doc/bm25-nce": of("nce", {}, **HARDEST, **FROM_BM25, **AS_ANCE),
    "msmarco-doc/bm25-dpr": of("dpr", BM25, terms__query__negatives__1__kind="random", **FROM_BM25, **AS_ANCE),
    "msmarco-doc/ance-firstp": {**ANCE, **DOCUMENTS, "stages.ance.steps": 210_000, "encoder.tokenization.document.passages": 1},
    "msmarco-doc/ance-maxp": {**ANCE, **DOCUMENTS, "stages.ance.steps": 139_000, "encoder.tokenization.document.passages": 4},
    "msmarco-doc/ance-norm": {**NORM, **dict(zip(LENGTHS, (64, 512), strict=True))},
    "msmarco-doc/ance-dual": {**DUAL, "encoder.l2": False},
    "msmarco-doc/dance": {**NORM, **DUAL, "stages.dual.steps": 80_000, "stages.dual.terms.document.loss.temperature": 0.01},
    "msmarco-doc/ltre-bm25": {**LTRE, **of("ltre", {}, terms__query__loss__kind="ranknet", **FROM_BM25)},
    "msmarco-doc/ltre-lambdarank": {**LTRE, **of("ltre", {}, terms__query__loss__kind="lambdarank", **FROM_BM25)},
    "msmarco-doc/ltre-ance": {**LTRE, "stages.ltre.start": {"recipe": "msmarco-doc/ance-firstp"}},
    "msmarco-doc/ltre-lamb": of("ltre", {"kind": "live"}, train="queries", **FROM_BM25, **LAMB),
    "msmarco-doc/query-rand": of("query-rand", RAND, train="queries", **FROM_BM25, **LAMB),
    "msmarco-doc/query-bm25": of("query-bm25", {"kind": "run"}, train="queries", **FROM_BM25, **LAMB),
    "msmarco-doc/query-ann": of("query-ann", ANN, train="queries", refresh__every_steps=10_000, **FROM_BM25, **LAMB),
    "nq/dpr": {**DPR, "stages.dpr.steps": 40 * 58_880 // 128},
    "nq/ance": {**OPENQA_ANCE, "stages.ance.start": {"recipe": "nq/dpr"}, "stages.ance.steps": 136_000},
    "nq/ance-tele": {**OPENQA, "stages.epi-3.steps": 40 * 79_168 // 128},
    "nq/ance-tele-reference": {**OPENQA, **CODE, "stages.epi-3.steps": 40 * 79_168 // 128, **of("epi-1", {"sources.0.depth": 160})},
    "triviaqa/dpr": {**DPR, "stages.dpr.steps": -(-40 * 60_413 // 128)},
    "triviaqa/ance": {**OPENQA_ANCE, "stages.ance.start": {"recipe": "triviaqa/dpr"}, "stages.ance.steps": 100_000},
    "triviaqa/ance-tele": {**OPENQA, "stages.epi-3.steps": 40 * 78_785 // 128},
    "triviaqa/ance-tele-reference": {**OPENQA, **CODE, "stages.epi-3.steps": 40 * 78_785 // 128, **of("epi-1", {"sources.0.depth": 160})},
    "openqa-multi/dpr": {**DPR, "train_split.mixing": "concatenated", "stages.dpr.steps": -(-40 * (58_880 + 60_413) // 128)},
    "openqa-multi/ance": {**OPENQA_ANCE, "train_split.mixing": "concatenated", "stages.ance.steps": 300_000},
}


def test_of_each_recipe_it_is_written_down_what_its_paper_says():
    assert sorted(SAID) == RECIPES


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
    """One that trains as the released code does expects what is published of the method."""
    folder, method = name.removesuffix("-reference").split("/")
    rows = [row.figures for row in PUBLISHED[folder] if row.method == method]
    expect = recipe(name).expect
    assert bool(expect) == bool(rows)
    for split, figures in expect.items():
        for measure, value in figures.items():
            assert value in [row.get(split, {}).get(measure) for row in rows], (split, measure)


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_measures_all_that_is_published_of_its_set(name):
    """But for `eval`, whose judgments nobody else has, and for what other commands measure."""
    places = {(split, measure) for row in PUBLISHED[name.split("/")[0]] for split, figures in row.figures.items() for measure in figures}
    assert {(split, measure) for split, measure in places if split != "eval" and not command_of(measure)} <= recipe(name).test.columns.keys()


# --- what comments offer


KEY = r"(?:data|bm25|encoder|stages|test)\.[\w.-]+"
SETTING = rf"""'?{KEY}=(?:"[^"]*"|\[[^\]]*\]|\{{[^}}]*\}}|[^\s'";,]*[^\s'";,.)])'?"""
OFFERED = [
    (path, settings.group())
    for of_set in PUBLISHED
    for path in sorted((SHIPPED / of_set).glob("*.yaml"))
    for settings in re.finditer(rf"{SETTING}(?:\s+{SETTING})*", " ".join(re.findall("^# *(.*)", path.read_text(), re.MULTILINE)))
]


@pytest.mark.parametrize("path, settings", OFFERED, ids=[f"{path.parent.name}/{path.stem}: {settings}" for path, settings in OFFERED])
def test_what_a_comment_offers_can_be_set_and_changes_something(path, settings):
    """In the recipe itself, or in the first that extends the file. Training begins with another encoder, then, not with a run of the usual one."""
    name = f"{path.parent.name}/{path.stem}"
    if name not in RECIPES:
        names = (other for other in RECIPES if other.startswith(path.parent.name))
        name = next(other for other in names if re.search(rf"^extends:.*\b{path.stem}\b", (SHIPPED / f"{other}.yaml").read_text(), re.MULTILINE))
    changed = load(name, *shlex.split(settings)).recipe
    assert dump(changed) != dump(recipe(name))
    assert "encoder.model=" not in settings or not changed.outside_starts


# --- what hangs together


@pytest.mark.parametrize("name, sizes", [("msmarco-passage", [60, 120, 180]), ("nq", [160, 320, 480]), ("triviaqa", [160, 320, 480])])
def test_the_pools_of_anceteles_code_grow_by_all_of_the_former(name, sizes):
    former, found = 0, []
    for stage in recipe(f"{name}/ance-tele-reference").stages.values():
        (source,) = stage.terms["query"].negatives
        former = source.most_candidates(former)
        found.append(former)
    assert found == sizes


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
