"""The recipes of the papers' own sets: what the papers say, written down once more, and what hangs together
in them."""

import math
import re
import shlex
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from benchmarks.papers.published import read_published, section_of
from pyserini_ance.encoders.config import MAY_DIFFER
from pyserini_ance.recipe.find import SHIPPED, shipped
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.teacher_training import TRAINED

PUBLISHED = {path.parent.name: read_published(path.parent).rows for path in SHIPPED.glob("*/_published.yaml")}
RECIPES = [name for name in shipped() if name.split("/")[0] in PUBLISHED]
EPISODES = [name for name in RECIPES if "tele" in name]


@cache
def recipe(name: str) -> Recipe:
    return load(name).recipe


# --- what the papers say


def of(stage: str, negatives: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Settings of a stage, and of the first source of its queries' negatives, by their dotted keys; `__` is a
    dot."""
    drawn = {f"stages.{stage}.terms.query.negatives.0.{key}": value for key, value in negatives.items()}
    return drawn | {f"stages.{stage}.{key.replace('__', '.')}": value for key, value in settings.items()}


LAMB = {"optimizer__kind": "lamb", "lr_schedule__kind": "linear"}
ADAMW = {"optimizer__kind": "adamw", "lr_schedule__kind": "linear"}
LENGTHS = ("encoder.tokenization.query.length_tokens", "encoder.tokenization.document.length_tokens")

# Xiong et al. 2021, section 5 and A.1; of the warm-up, and of OpenQA, what its code has:
# commands/run_train_warmup.sh, *_dpr.sh.
ANN = {"kind": "ann", "num_negatives": 1, "top_k": 200}
BM25 = {"kind": "bm25", "num_negatives": 1, "top_k": 100}
RAND = {"kind": "random", "num_negatives": 1}
HARDEST = {
    "terms__query__negatives": [],
    "terms__query__in_batch_negatives": True,
    "terms__query__num_hardest": 1,
}
REFRESHED = {"refresh__every_steps": 10_000, "refresh__mode": "async", "refresh__adopt": "when_ready"}
ANCE = of("ance", ANN, batch_queries=64, lr_schedule__warmup_steps=5000, **LAMB, **REFRESHED)
PASSAGES = {"stages.ance.optimizer.learning_rate": 1e-6, "stages.ance.steps": 600_000}
DOCUMENTS = {"stages.ance.optimizer.learning_rate": 5e-6}
CODE_ANCE = {
    "kind": "mix",
    "top_k": 20,
    "weights": [1],
    "num_negatives": 1,
    "sources.0.kind": "ann",
    "sources.0.top_k": 200,
    "rolling": True,
}
WARM = {
    "steps": 60_000,
    "lr_schedule__total_steps": 2_190_000,
    "batch_queries": 32,
    "optimizer__learning_rate": 2e-4,
    "lr_schedule__warmup_steps": 1000,
    **LAMB,
}
AS_ANCE = {"batch_queries": 64, "optimizer__learning_rate": 5e-6, "lr_schedule__warmup_steps": 5000, **LAMB}
FROM_BM25 = {"init_from__recipe": "msmarco-passage/bm25"}
OPENQA_ANCE = of(
    "ance",
    {**ANN, "filters.0.kind": "answers"},
    batch_queries=128,
    positives="first",
    optimizer__learning_rate=1e-5,
    lr_schedule__warmup_steps=1000,
    optimizer__max_grad_norm=2.0,
    **LAMB,
    **REFRESHED,
)
# microsoft/ANCE, run_ann_data_gen_dpr.py.
OPENQA_CODE = {
    **OPENQA_ANCE,
    **of(
        "ance",
        {
            "top_k": 100,
            "filters.0.kind": "range_max",
            "filters.0.ranks": 100,
            "filters.1.kind": "answers",
            "min_candidates": 2,
            "on_shortage": "error",
        },
        refresh__every_steps=1000,
        refresh__restart_queries=True,
    ),
}
# Karpukhin et al. 2020, section 5: one of BM25's for each question, 40 epochs of 128 a step, rate 1e-5; of
# its code, warm-up and clipping.
DPR = {
    "encoder.tied": False,
    "encoder.model": "bert-base-uncased",
    **dict(zip(LENGTHS, (256, 256), strict=True)),
    **of(
        "dpr",
        {**BM25, "filters.0.kind": "answers"},
        terms__query__in_batch_negatives=True,
        batch_queries=128,
        positives="first",
    ),
    **of(
        "dpr",
        {},
        optimizer__learning_rate=1e-5,
        lr_schedule__warmup_steps=1237,
        optimizer__max_grad_norm=2.0,
        optimizer__kind="adamw",
    ),
}
# jingtaozhan/DRhard, star/train.py.
STAR = {
    "steps": 50_000,
    "batch_queries": 256,
    "optimizer__learning_rate": 1e-4,
    "optimizer__weight_decay": 0.01,
    "lr_schedule__warmup_steps": 1000,
}
# Zhan et al. 2020, sections 5.3, 6.4.1 and 6.1.
RATE = {"optimizer__learning_rate": 5e-6, "optimizer__weight_decay": 0.01, "lr_schedule__warmup_steps": 2000}
FIGURE_3 = {"trainable": "query_tower", "batch_queries": 32, "lr_schedule__warmup_steps": 2000, **LAMB}
ONE_PRECISION = {"encoding.precision": "fp32", "final_evaluation.precision": "fp32"}
LTRE = ONE_PRECISION | of(
    "ltre", {"kind": "live"}, trainable="query_tower", steps=60_000, batch_queries=32, **ADAMW, **RATE
)
# Li et al. 2021, section 4.
DANCE_LAMB = {
    "batch_queries": 64,
    "optimizer__learning_rate": 5e-6,
    "lr_schedule__warmup_steps": 3000,
    **LAMB,
}
NORM = {
    "encoder.normalize": True,
    **of("norm", ANN, steps=110_000, terms__query__loss__scale=1 / 0.01, **DANCE_LAMB),
}
DUAL = of("dual", ANN, terms__document__weight=0.1, **DANCE_LAMB)
# Sun et al. 2022, Tables 5 and 7.
TELE_RATE = {"optimizer__learning_rate": 5e-6, **ADAMW}
TELE = {
    **of("epi-1", {"kind": "mix", "num_negatives": 31}, steps=20_000, batch_queries=8, **TELE_RATE),
    **of(
        "epi-2",
        {"num_negatives": 31, "weights": [0.5, 0.5]},
        steps=20_000,
        refresh__initial_model="previous_stage",
    ),
    **of("epi-3", {"num_negatives": 31, "sources.0.weights": [0.5, 0.5]}, init_from="initial", evaluate=None),
    **dict(zip(LENGTHS, (32, 128), strict=True)),
}
OPENQA = {
    **of("epi-1", {"kind": "mix", "num_negatives": 11}, steps=2000, batch_queries=128, **TELE_RATE),
    **of("epi-3", {"num_negatives": 11, "sources.0.weights": [0.5, 0.5]}, init_from="initial", evaluate=None),
    **dict(zip(LENGTHS, (32, 156), strict=True)),
    "encoder.tied": False,
}
FROM_COCONDENSER = {
    "encoder.model": "Luyu/co-condenser-marco",
    "stages.epi-3.steps": 3 * 502_939 // 8,
    **dict(zip(LENGTHS, (32, 128), strict=True)),
}
LOOKAHEAD = {
    "sources.0.kind": "ann",
    "sources.1.kind": "lookahead",
    "sources.0.top_k": 200,
    "sources.1.top_k": 200,
    "weights": [0.5, 0.5],
}
# OpenMatch/ANCE-Tele, shells/ and preprocess/.
CODE = {
    f"stages.{stage}.terms.query.{key}": value
    for stage in ("epi-1", "epi-2", "epi-3")
    for key, value in {
        "in_batch_negatives": True,
        "negatives.0.weights": None,
        "negatives.0.top_k": None,
        "negatives.0.duplicates": "keep",
        "negatives.0.rolling": True,
    }.items()
}
EPISODE = {
    "steps": 10_000,
    "batch_queries": 8,
    "optimizer__learning_rate": 1e-6,
    "lr_schedule__warmup_steps": 5000,
    **ADAMW,
}
# Wang et al. 2022 (SimLM), Table 13; Zhang et al. 2021 (AR2), Table 8 and section 4.2; Zhou et al. 2022
# (SimANS), section 4.1, appendix D, and the steps of its code; Ren et al. 2021 (RocketQA v2), section 4.1,
# and RocketQA's code; Moreira et al. 2024 (NV-Retriever), Table 3.
EPOCH = 502_939
MINED = {"kind": "ann", "top_k": 200}
SIMLM = {"batch_queries": 64, "init_from": "initial", "lr_schedule__warmup_steps": 1000, **ADAMW}
SIMLM_TERM = {"terms__query__in_batch_negatives": True, "terms__query__loss__scale": 1 / 0.02}
AR2 = {"kind": "ann", "top_k": 100, "num_negatives": 15}
FOLLOWS = {"terms__query__loss__kind": "kl", "terms__query__teacher__kind": "cross_encoder"}


def steps(epochs: int, batch_queries: int) -> int:
    return -(-epochs * EPOCH // batch_queries)


DISTILLED = {
    "msmarco-passage/simlm": {
        "encoder.normalize": True,
        **dict(zip(LENGTHS, (32, 144), strict=True)),
        **of(
            "retriever-1",
            {"kind": "bm25", "top_k": 200, "num_negatives": 15},
            steps=steps(3, 64),
            optimizer__learning_rate=2e-5,
            **SIMLM,
            **SIMLM_TERM,
        ),
        **of(
            "retriever-2",
            {**MINED, "num_negatives": 15},
            steps=steps(3, 64),
            refresh__initial_model="previous_stage",
            optimizer__learning_rate=2e-5,
            **SIMLM,
            **SIMLM_TERM,
        ),
        **of(
            "distilled",
            {**MINED, "num_negatives": 23},
            steps=steps(6, 64),
            refresh__initial_model="previous_stage",
            optimizer__learning_rate=3e-5,
            terms__query__weight=0.2,
            terms__distil__loss__scale=1 / 0.02,
            terms__distil__teacher__model="intfloat/simlm-msmarco-reranker",
            **SIMLM,
            **SIMLM_TERM,
        ),
    },
    "msmarco-passage/ar2": {
        **dict(zip(LENGTHS, (32, 128), strict=True)),
        **of(
            "warm-up",
            {"kind": "bm25", "num_negatives": 1},
            steps=steps(3, 64),
            batch_queries=64,
            terms__query__in_batch_negatives=True,
            optimizer__learning_rate=1e-4,
            lr_schedule__warmup_steps=round(0.1 * steps(3, 64)),
            **ADAMW,
        ),
        **{
            key: value
            for number in range(1, 11)
            for key, value in {
                **of(
                    f"iteration-{number}",
                    AR2,
                    steps=1500,
                    batch_queries=64,
                    refresh__every_steps=1500,
                    optimizer__learning_rate=5e-6,
                    lr_schedule__warmup_steps=1500,
                    lr_schedule__total_steps=15_000,
                    lr_schedule__offset_steps=1500 * (number - 1),
                    keep_optimizer=number > 1,
                    terms__query__teacher__model=f"teachers.ranker-{number}",
                    **FOLLOWS,
                    **ADAMW,
                ),
                f"teachers.ranker-{number}.steps": 4000 if number == 1 else 500,
                f"teachers.ranker-{number}.batch_queries": 256 if number == 1 else 64,
                f"teachers.ranker-{number}.num_negatives": 15,
                f"teachers.ranker-{number}.learning_rate": 1e-5 if number == 1 else 5e-7,
            }.items()
        },
    },
    "msmarco-passage/simans": of(
        "simans",
        {**AR2, "sampling_strategy": "ambiguous", "a": 0.5, "b": 0.0},
        init_from="previous",
        terms__query__teacher__model="teachers.ranker-10",
        steps=60_000 * 9 // 10,
        batch_queries=256,
        refresh__every_steps=5000 * 9 // 10,
        optimizer__learning_rate=5e-6,
        lr_schedule__warmup_steps=5400,
        **FOLLOWS,
        **ADAMW,
    ),
    "msmarco-passage/rocketqa-v2": {
        **dict(zip(LENGTHS, (32, 128), strict=True)),
        **of(
            "warm-up",
            {},
            terms__query__negatives=[],
            terms__query__in_batch_negatives=True,
            steps=40 * EPOCH // 4096,
            batch_queries=8 * 512,
            optimizer__learning_rate=3e-5,
            **ADAMW,
        ),
        **{
            key: value
            for number, first, last in ((1, 0, 7859), (2, 7859, steps(3, 96)))
            for key, value in of(
                f"iteration-{number}",
                {"kind": "ann", "num_negatives": 64},
                terms__query__negatives__1__num_negatives=127 - 64,
                terms__query__negatives__1__filters__0__then="promote",
                steps=last - first,
                batch_queries=96,
                optimizer__learning_rate=1e-5,
                lr_schedule__warmup_steps=0,
                lr_schedule__total_steps=steps(3, 96),
                lr_schedule__offset_steps=first,
                terms__query__teacher__model=f"teachers.re-ranker-{number}",
                **FOLLOWS,
                **ADAMW,
            ).items()
        },
    },
    "msmarco-passage/nv-retriever": of(
        "nv-retriever",
        {"kind": "ranking", "top_k": 4, "num_negatives": 4, "filters.0.kind": "relative_margin"},
        terms__query__negatives__0__filters__0__margin=0.05,
        terms__query__in_batch_negatives=True,
        optimizer__learning_rate=2e-5,
        **ADAMW,
    ),
}
# texttron/tevatron, examples/coCondenser-marco and coCondenser-nq.
SELF_NEGATIVES = of(
    "self-neg",
    {"weights": [0.5, 0.5], "sources.0.kind": "bm25", "sources.1.kind": "ann", "sources.1.top_k": 200},
    init_from="initial",
    terms__query__in_batch_negatives=True,
    refresh__initial_model="previous_stage",
    **{**TELE_RATE, "lr_schedule__warmup_steps": 0},
)
OWN_SEVEN = {"kind": "ann", "num_negatives": 7, "top_k": 200}
CYCLIC_EPISODE = of("epi-2", {}, keep_optimizer=True, **EPISODE)
CYCLIC = {**CYCLIC_EPISODE, **of("epi-5", OWN_SEVEN, **EPISODE)}
SAID = {
    **DISTILLED,
    "msmarco-passage/rand": of("rand", RAND, init_from="initial", **WARM),
    "msmarco-passage/rand-batch": {
        **of(
            "rand-batch",
            {},
            terms__query__negatives=[],
            terms__query__in_batch_negatives=True,
            terms__query__loss__kind="ranknet",
            **STAR,
            **LAMB,
        ),
        **dict(zip(LENGTHS, (24, 120), strict=True)),
    },
    "msmarco-passage/nce": of("nce", {}, init_from="initial", **HARDEST, **WARM),
    "msmarco-passage/bm25": of("bm25-neg", BM25, init_from="initial", **WARM),
    "msmarco-passage/dpr": of(
        "dpr", BM25, init_from="initial", terms__query__negatives__1__kind="random", **WARM
    ),
    "msmarco-passage/bm25-rand": of("rand", RAND, **FROM_BM25),
    "msmarco-passage/bm25-nce": of("nce", {}, **HARDEST, **FROM_BM25),
    "msmarco-passage/bm25-dpr": of("dpr", BM25, terms__query__negatives__1__kind="random", **FROM_BM25),
    "msmarco-passage/ance": {
        **ANCE,
        **PASSAGES,
        **of("ance", {}, **FROM_BM25),
        **dict(zip(LENGTHS, (64, 512), strict=True)),
    },
    "msmarco-passage/ance-reference": {
        **PASSAGES,
        **of(
            "ance",
            CODE_ANCE,
            batch_queries=64,
            repeats_per_query=20,
            refresh__query_chunks=5,
            **{**LAMB, **REFRESHED},
        ),
    },
    "msmarco-passage/ance-cosine": {**ANCE, **PASSAGES, "encoder.normalize": True},
    "msmarco-passage/ance-bce": {**ANCE, **PASSAGES, "stages.ance.terms.query.loss.kind": "bce"},
    "msmarco-passage/ance-hinge": {**ANCE, **PASSAGES, "stages.ance.terms.query.loss.kind": "hinge"},
    "msmarco-passage/ltre-bm25": {**LTRE, **of("ltre", {}, terms__query__loss__kind="ranknet", **FROM_BM25)},
    "msmarco-passage/ltre-lambdarank": {
        **LTRE,
        **of("ltre", {}, terms__query__loss__kind="lambdarank", **FROM_BM25),
    },
    "msmarco-passage/ltre-ance": {**LTRE, "stages.ltre.init_from": {"recipe": "msmarco-passage/ance"}},
    **{
        f"msmarco-passage/ltre-opq{n}": {**LTRE, **of("ltre", {"index": f"OPQ{n},IVF1,PQ{n}"}, **FROM_BM25)}
        for n in (6, 12, 24, 48, 96)
    },
    "msmarco-passage/ance-tele": {**TELE, **FROM_COCONDENSER},
    "msmarco-passage/ance-tele-reference": {
        **TELE,
        **FROM_COCONDENSER,
        **CODE,
        **of("epi-1", {"num_negatives": 15, "sources.0.top_k": 60}),
    },
    "msmarco-passage/tele-query": {
        **FROM_COCONDENSER,
        **of("epi-1", {**ANN, "num_negatives": 31}),
        **of("epi-3", {**ANN, "num_negatives": 31}),
    },
    "msmarco-passage/tele-momentum": {
        **FROM_COCONDENSER,
        **of("epi-1", {**ANN, "num_negatives": 31}),
        **of(
            "epi-3",
            {
                "num_negatives": 31,
                "weights": [0.5, 0.5],
                "sources.0.kind": "ann",
                "sources.1.kind": "momentum",
            },
        ),
    },
    "msmarco-passage/tele-lookahead": {
        **FROM_COCONDENSER,
        **of("epi-1", {"num_negatives": 31, **LOOKAHEAD}),
        **of("epi-3", {"num_negatives": 31, **LOOKAHEAD}),
    },
    "msmarco-passage/tele-continue": {
        **TELE,
        "stages.epi-2.refresh.initial_model": "current",
        "stages.epi-3.init_from": "previous",
    },
    "msmarco-passage/tele-without-repeats": {
        **TELE,
        **of("epi-1", {"duplicates": "drop"}),
        **of("epi-3", {"duplicates": "drop"}),
    },
    "msmarco-passage/tele-bm25": {
        **FROM_COCONDENSER,
        **of("epi-1", {"num_negatives": 31, "sources.0.sources.2.kind": "bm25"}),
        **of("epi-3", {"num_negatives": 31, "weights": [0.5, 0.5], "sources.1.kind": "momentum"}),
    },
    "msmarco-passage/ance-cyclic": {**CYCLIC, "stages.epi-5.lr_schedule.total_steps": 10_000},
    "msmarco-passage/ance-standard": {**CYCLIC, "stages.epi-5.lr_schedule.total_steps": 50_000},
    "msmarco-passage/ance-episodes": {
        **CYCLIC_EPISODE,
        **of("epi-3", OWN_SEVEN, lr_schedule__total_steps=30_000, **EPISODE),
        "encoder.model": "Luyu/co-condenser-marco",
    },
    "msmarco-passage/dpr-in-batch": {
        **of(
            "bm25-neg",
            BM25,
            steps=3 * 502_939 // 8,
            terms__query__in_batch_negatives=True,
            init_from="initial",
        ),
        "encoder.model": "Luyu/co-condenser-marco",
        **dict(zip(LENGTHS, (32, 128), strict=True)),
    },
    "msmarco-passage/cocondenser": {
        **SELF_NEGATIVES,
        **of("bm25-neg", {"kind": "bm25", "num_negatives": 7}, steps=3 * 502_939 // 8, batch_queries=8),
        **of("self-neg", {"num_negatives": 7}, steps=-(-4 * 502_939 // 8), batch_queries=8),
        "encoder.model": "Luyu/co-condenser-marco",
        **dict(zip(LENGTHS, (32, 128), strict=True)),
    },
    "msmarco-passage/bert-reranker": {
        **of("bm25-neg", {}, **FROM_BM25, steps=1),
        **{
            f"teachers.bert-{size}.{key}": value
            for size in ("base", "large")
            for key, value in {
                "init_from": f"bert-{size}-uncased",
                "batch_queries": 128 // 2,
                "num_negatives": 1,
                "steps": 100_000,
                "learning_rate": 3e-6,
                "length_tokens": 512,
                "negatives.0.kind": "bm25",
            }.items()
        },
    },
    "msmarco-doc/rand": of("rand", RAND, init_from="initial", **AS_ANCE),
    "msmarco-doc/nce": of("nce", {}, init_from="initial", **HARDEST, **AS_ANCE),
    "msmarco-doc/bm25": of("bm25-neg", BM25, init_from="initial", **WARM),
    "msmarco-doc/dpr": of(
        "dpr", BM25, init_from="initial", terms__query__negatives__1__kind="random", **AS_ANCE
    ),
    "msmarco-doc/bm25-rand": of("rand", RAND, **FROM_BM25, **AS_ANCE),
    "msmarco-doc/bm25-nce": of("nce", {}, **HARDEST, **FROM_BM25, **AS_ANCE),
    "msmarco-doc/bm25-dpr": of(
        "dpr", BM25, terms__query__negatives__1__kind="random", **FROM_BM25, **AS_ANCE
    ),
    "msmarco-doc/ance-firstp": {
        **ANCE,
        **DOCUMENTS,
        "stages.ance.steps": 210_000,
        "encoder.tokenization.document.passages": 1,
    },
    "msmarco-doc/ance-maxp": {
        **ANCE,
        **DOCUMENTS,
        "stages.ance.steps": 139_000,
        "encoder.tokenization.document.passages": 4,
    },
    "msmarco-doc/ance-maxp-reference": {
        **DOCUMENTS,
        **of(
            "ance",
            {**CODE_ANCE, "sources.0.top_k_unit": "passage"},
            batch_queries=128,
            repeats_per_query=20,
            refresh__query_chunks=5,
            lr_schedule__warmup_steps=500,
            **{**LAMB, **REFRESHED},
        ),
        "stages.ance.optimizer.learning_rate": 1e-5,
        "stages.ance.steps": 139_000,
        "encoder.tokenization.document.passages": 4,
        "encoder.tokenization.document.special_tokens": "per_document",
        "encoder.tokenization.document.pad_passages": True,
    },
    "msmarco-doc/ance-norm": {**NORM, **dict(zip(LENGTHS, (64, 512), strict=True))},
    "msmarco-doc/ance-dual": {**DUAL, "encoder.normalize": False},
    "msmarco-doc/dance": {
        **NORM,
        **DUAL,
        "stages.dual.steps": 80_000,
        "stages.dual.terms.document.loss.scale": 1 / 0.01,
    },
    "msmarco-doc/ltre-bm25": {**LTRE, **of("ltre", {}, terms__query__loss__kind="ranknet", **FROM_BM25)},
    "msmarco-doc/ltre-lambdarank": {
        **LTRE,
        **of("ltre", {}, terms__query__loss__kind="lambdarank", **FROM_BM25),
    },
    "msmarco-doc/ltre-ance": {**LTRE, "stages.ltre.init_from": {"recipe": "msmarco-doc/ance-firstp"}},
    "msmarco-doc/ltre-lamb": of("ltre", {"kind": "live"}, **FROM_BM25, **FIGURE_3),
    "msmarco-doc/query-rand": of("query-rand", RAND, **FROM_BM25, **FIGURE_3),
    "msmarco-doc/query-bm25": of("query-bm25", {"kind": "bm25"}, **FROM_BM25, **FIGURE_3),
    "msmarco-doc/query-ann": of("query-ann", ANN, refresh__every_steps=10_000, **FROM_BM25, **FIGURE_3),
    "nq/dpr": {**DPR, "stages.dpr.steps": 40 * 58_880 // 128},
    "nq/ance": {**OPENQA_ANCE, "stages.ance.init_from": {"recipe": "nq/dpr"}, "stages.ance.steps": 136_000},
    "nq/ance-reference": {
        **OPENQA_CODE,
        "stages.ance.init_from": {"recipe": "nq/dpr"},
        "stages.ance.steps": 136_000,
    },
    "nq/ance-tele": {**OPENQA, "stages.epi-3.steps": 40 * 58_880 // 128},
    "nq/ance-tele-reference": {
        **OPENQA,
        **CODE,
        "stages.epi-3.steps": 40 * 79_168 // 128,
        "stages.epi-2.refresh.positives_top_k": 200,
        **of("epi-1", {"sources.0.top_k": 160}),
    },
    **{
        f"{folder}/cocondenser": {
            **SELF_NEGATIVES,
            **of("bm25-neg", {"num_negatives": 1, "filters.0.kind": "answers"}, steps=steps_of_40_epochs),
            **of("self-neg", {"num_negatives": 1}, steps=steps_of_40_epochs, batch_queries=128),
            "encoder.model": "Luyu/co-condenser-wiki",
            "encoder.tied": False,
            **dict(zip(LENGTHS, (32, 156), strict=True)),
        }
        for folder, steps_of_40_epochs in {"nq": 18_400, "triviaqa": 18_880}.items()
    },
    "triviaqa/dpr": {**DPR, "stages.dpr.steps": -(-40 * 60_413 // 128)},
    "triviaqa/ance": {
        **OPENQA_ANCE,
        "stages.ance.init_from": {"recipe": "triviaqa/dpr"},
        "stages.ance.steps": 100_000,
    },
    "triviaqa/ance-reference": {
        **OPENQA_CODE,
        "stages.ance.init_from": {"recipe": "triviaqa/dpr"},
        "stages.ance.steps": 100_000,
    },
    "triviaqa/ance-tele": {**OPENQA, "stages.epi-3.steps": -(-40 * 60_413 // 128)},
    "triviaqa/ance-tele-reference": {
        **OPENQA,
        **CODE,
        "stages.epi-3.steps": 40 * 78_785 // 128,
        "stages.epi-2.refresh.positives_top_k": 200,
        **of("epi-1", {"sources.0.top_k": 160}),
    },
    "openqa-multi/dpr": {
        **DPR,
        "train_split.sampling": "proportional",
        "stages.dpr.steps": -(-40 * (58_880 + 60_413) // 128),
    },
    "openqa-multi/ance": {
        **OPENQA_ANCE,
        "train_split.sampling": "proportional",
        "stages.ance.steps": 300_000,
    },
}


def test_every_paper_recipe_has_expected_values():
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
    places = {
        (split, measure)
        for row in PUBLISHED[name.split("/")[0]]
        for split, figures in row.figures.items()
        for measure in figures
    }
    assert {
        (split, measure) for split, measure in places if split != "eval" and not section_of(measure)
    } <= recipe(name).final_evaluation.columns.keys()


# --- what comments offer


KEY = r"(?:data|bm25|encoder|stages|test)\.[\w.-]+"
SETTING = rf"""'?{KEY}=(?:"[^"]*"|\[[^\]]*\]|\{{[^}}]*\}}|[^\s'";,]*[^\s'";,.)])'?"""
OFFERED = [
    (path, settings.group())
    for of_set in PUBLISHED
    for path in sorted((SHIPPED / of_set).glob("*.yaml"))
    for settings in re.finditer(
        rf"{SETTING}(?:\s+{SETTING})*", " ".join(re.findall("^# *(.*)", path.read_text(), re.MULTILINE))
    )
]


@pytest.mark.parametrize(
    "path, settings",
    OFFERED,
    ids=[f"{path.parent.name}/{path.stem}: {settings}" for path, settings in OFFERED],
)
def test_overrides_in_comments_load_and_change_the_recipe(path, settings):
    """In the recipe itself, or in the first that extends the file.

    Training begins with another encoder, then, not with a run of the usual one.
    """
    name = f"{path.parent.name}/{path.stem}"
    if name not in RECIPES:
        names = (other for other in RECIPES if other.startswith(path.parent.name))
        name = next(
            other
            for other in names
            if re.search(
                rf"^extends:.*\b{path.stem}\b", (SHIPPED / f"{other}.yaml").read_text(), re.MULTILINE
            )
        )
    changed = load(name, *shlex.split(settings)).recipe
    assert dump(changed) != dump(recipe(name))
    assert "encoder.model=" not in settings or not changed.external_starts


TAUGHT = [name for name in shipped() if any(TRAINED in need for need in recipe(name).training_needs)]


@pytest.mark.parametrize("name", TAUGHT)
def test_a_cross_encoder_learns_from_the_retriever_that_it_teaches_next(name):
    """It reads as deep as the stage that it teaches, which starts from, or mines with, the same weights."""
    whole = recipe(name)
    stages, taught = list(whole.stages), []
    for stage_name, stage in whole.stages.items():
        for teacher in stage.teachers.values():
            if not teacher.needs:
                continue
            trained = whole.teachers[teacher.model.removeprefix(TRAINED)]
            before = stages[stages.index(stage_name) - 1]
            goes_on = teacher.model in {one.model for one in whole.stages[before].teachers.values()}
            assert goes_on or trained.after == before
            assert stage.init_from == "previous" or stage.mines_with_previous
            assert {source.top_k for source in trained.negatives} == {s.top_k for s in stage.components}
            taught.append(teacher.model)
    assert list(dict.fromkeys(taught)) == [f"teachers.{name}" for name in whole.teachers]
    for former, teacher in pairwise(whole.teachers.values()):
        assert whole.teachers[teacher.init_from.removeprefix(TRAINED)] is former


def test_rocketqas_thresholds_are_logits_of_the_class_weighted_cross_encoder():
    found = set()
    for name in TAUGHT:
        whole = recipe(name)
        sources = [one for stage in whole.stages.values() for one in stage.components]
        for rule in [rule for source in sources for rule in getattr(source, "filters", ()) if rule.needs]:
            trained = whole.teachers[rule.teacher.model.removeprefix(TRAINED)]
            logit = rule.max_score - math.log(trained.num_negatives)  # the weight of its positives
            found.add((trained.loss, rule.then, round(1 / (1 + math.exp(-logit)), 2)))
    assert found == {("bce", "promote", 0.9), ("bce", "drop", 0.1)}


# --- what hangs together


@pytest.mark.parametrize(
    "name, sizes",
    [("msmarco-passage", [60, 120, 180]), ("nq", [160, 320, 480]), ("triviaqa", [160, 320, 480])],
)
def test_the_pools_of_anceteles_code_grow_by_all_previous_tables(name, sizes):
    former, found = 0, []
    for stage in recipe(f"{name}/ance-tele-reference").stages.values():
        (source,) = stage.terms["query"].negatives
        former = source.max_candidates(former)
        found.append(former)
    assert found == sizes


@pytest.mark.parametrize("name", EPISODES)
def test_episodes_stop_early_on_the_schedule_of_the_last(name):
    stages = list(recipe(name).stages.values())
    first, second, last = stages
    assert first.steps == second.steps < last.steps
    assert {stage.horizon_steps for stage in stages} == {last.steps}
    assert {stage.lr_schedule.warmup_steps for stage in stages} == {last.steps // 10}
    assert not any(stage.refresh_is_due(step) for stage in stages for step in range(1, stage.steps, 1000))


def test_standard_and_cyclic_ance_differ_in_the_rate_alone():
    standard, cyclic = (recipe(f"msmarco-passage/ance-{name}").stages for name in ("standard", "cyclic"))
    assert [stage.lr_schedule.offset_steps for stage in standard.values()] == [
        10_000 * context for context in range(5)
    ]
    alike = {
        name: stage.model_copy(
            update={
                "lr_schedule": stage.lr_schedule.model_copy(update={"offset_steps": 0, "total_steps": 10_000})
            }
        )
        for name, stage in standard.items()
    }
    assert alike == cyclic


@pytest.mark.parametrize("name", RECIPES)
def test_initial_checkpoints_ship_and_tokenize_alike(name):
    encoder = recipe(name).encoder
    for start in recipe(name).external_starts.values():
        former = recipe(start.recipe).encoder
        if "tokenization" not in start.allow_changes:
            assert encoder.tokenization.without_lengths() == former.tokenization.without_lengths()
        for key in set(type(encoder).model_fields) - {*MAY_DIFFER, *start.allow_changes, "tokenization"}:
            assert getattr(encoder, key) == getattr(former, key), key
