"""The recipes of the papers' sets: what the papers say, once more, and what hangs together in them."""

import json
import math
import re
import shlex
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from benchmarks.papers.published import read_published, section_of
from pyserini_ance.encoders.config import MAY_DIFFER
from pyserini_ance.recipe.load import SHIPPED, dump, load, shipped
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.trained_teacher import TRAINED

PUBLISHED = {path.parent.name: read_published(path.parent).rows for path in SHIPPED.glob("*/_published.yaml")}
RECIPES = [name for name in shipped() if name.split("/")[0] in PUBLISHED]
EPISODES = [name for name in RECIPES if "tele" in name]


@cache
def recipe(name: str) -> Recipe:
    return load(name)


# --- what the papers say, as overrides: dotted.key=value


def every(*settings: str) -> str:
    return " ".join(settings)


def of(stage: str, *settings: str) -> str:
    """Settings of a stage."""
    return every(*(f"stages.{stage}.{each}" for each in every(*settings).split()))


def drawn(settings: str) -> str:
    """Settings of the first source of the queries' negatives, within a stage."""
    return every(*(f"terms.query.negatives.0.{each}" for each in settings.split()))


def lengths(query: int, document: int) -> str:
    sides = {"query": query, "document": document}
    return every(*(f"encoder.tokenization.{side}.length_tokens={n}" for side, n in sides.items()))


def epochs(number: int, batch_queries: int, queries: int = 502_939) -> int:
    """Steps, the last of which may be shorter."""
    return -(-number * queries // batch_queries)


LAMB = "optimizer.kind=lamb lr_schedule.kind=linear"
ADAMW = "optimizer.kind=adamw lr_schedule.kind=linear"
IN_BATCH = "terms.query.in_batch_negatives=true"
ANEW, PREVIOUS = "init_from=initial", "refresh.initial_model=previous_stage"
# Xiong et al. 2021, section 5 and A.1; of the warm-up, and of OpenQA, what its code has:
# commands/run_train_warmup.sh, *_dpr.sh.
ANN = drawn("kind=ann num_negatives=1 top_k=200")
BM25 = drawn("kind=bm25 num_negatives=1 top_k=100")
RAND = drawn("kind=random num_negatives=1")
AND_RANDOM = "terms.query.negatives.1.kind=random"
HARDEST = every("terms.query.negatives=[] terms.query.num_hardest=1", IN_BATCH)
REFRESHED = "refresh.every_steps=10000 refresh.mode=async refresh.adopt=when_ready"
ANCE = of("ance", ANN, "batch_queries=64 lr_schedule.warmup_steps=5000", LAMB, REFRESHED)
PASSAGES = of("ance", "optimizer.learning_rate=1e-6 steps=600000")
DOCUMENTS = of("ance", "optimizer.learning_rate=5e-6")
MIX = drawn("kind=mix num_negatives=1 top_k=20 weights=[1] sources.0.kind=ann sources.0.top_k=200")
CODE_ANCE = every(MIX, drawn("rolling=true"), "repeats_per_query=20 refresh.query_chunks=5", LAMB, REFRESHED)
WARM_UP = "lr_schedule.total_steps=2190000 lr_schedule.warmup_steps=1000"
WARM = every("steps=60000 batch_queries=32 optimizer.learning_rate=2e-4", WARM_UP, LAMB)
AS_ANCE = every("batch_queries=64 optimizer.learning_rate=5e-6 lr_schedule.warmup_steps=5000", LAMB)
FROM_BM25 = "init_from.recipe=msmarco-passage/bm25"
ANSWERS = drawn("filters.0.kind=answers")
OPENQA = "batch_queries=128 positives=first optimizer.learning_rate=1e-5 optimizer.max_grad_norm=2.0"
OPENQA_ANCE = of("ance", ANN, ANSWERS, OPENQA, "lr_schedule.warmup_steps=1000", LAMB, REFRESHED)
NQ_ANCE = of("ance", 'init_from={"recipe":"nq/dpr"} steps=136000')
TRIVIAQA_ANCE = of("ance", 'init_from={"recipe":"triviaqa/dpr"} steps=100000')
# microsoft/ANCE, run_ann_data_gen_dpr.py.
RANKS = drawn(
    "top_k=100 filters.0.kind=range_max filters.0.ranks=100 filters.1.kind=answers min_candidates=2"
)
OPENQA_REFRESH = "refresh.every_steps=1000 refresh.restart_queries=true"
OPENQA_CODE = every(OPENQA_ANCE, of("ance", RANKS, OPENQA_REFRESH))
# Karpukhin et al. 2020, section 5: one of BM25's for each question, 40 epochs of 128 a step, rate 1e-5; of
# its code, warm-up and clipping.
DPR_STAGE = of("dpr", BM25, ANSWERS, IN_BATCH, OPENQA, "lr_schedule.warmup_steps=1237 optimizer.kind=adamw")
DPR = every("encoder.tied=false encoder.model=bert-base-uncased", lengths(256, 256), DPR_STAGE)
# jingtaozhan/DRhard, star/train.py.
STAR_RATE = "optimizer.learning_rate=1e-4 optimizer.weight_decay=0.01 lr_schedule.warmup_steps=1000"
STAR = every("steps=50000 batch_queries=256", STAR_RATE, LAMB)
# Zhan et al. 2020, sections 5.3, 6.4.1 and 6.1.
RATE = "optimizer.learning_rate=5e-6 optimizer.weight_decay=0.01 lr_schedule.warmup_steps=2000"
FIGURE_3 = every("trainable=query_tower batch_queries=32 lr_schedule.warmup_steps=2000", LAMB)
LIVE = every(drawn("kind=live"), "trainable=query_tower steps=60000 batch_queries=32", ADAMW, RATE)
LTRE = every("encoding.precision=fp32 final_evaluation.precision=fp32", of("ltre", LIVE))
RANKNET, LAMBDARANK = "terms.query.loss.kind=ranknet", "terms.query.loss.kind=lambdarank"
# Li et al. 2021, section 4.
DANCE_RATE = every("batch_queries=64 optimizer.learning_rate=5e-6 lr_schedule.warmup_steps=3000", LAMB)
NORM_STAGE = of("norm", ANN, "steps=110000 terms.query.loss.scale=100", DANCE_RATE)
NORM = every("encoder.normalize=true", NORM_STAGE)
DUAL = of("dual", ANN, "terms.document.weight=0.1", DANCE_RATE)
# Sun et al. 2022, Tables 5 and 7.
TELE_RATE = every("optimizer.learning_rate=5e-6", ADAMW)
OF_MIX, HALVES = drawn("kind=mix"), drawn("weights=[0.5,0.5]")
LAST = every(drawn("sources.0.weights=[0.5,0.5]"), ANEW)
OF_31, OF_11 = drawn("num_negatives=31"), drawn("num_negatives=11")
TELE = every(
    of("epi-1", OF_MIX, OF_31, "steps=20000 batch_queries=8", TELE_RATE),
    of("epi-2", OF_31, HALVES, "steps=20000", PREVIOUS),
    of("epi-3", OF_31, LAST, "evaluate=null"),
    lengths(32, 128),
)
OPENQA_TELE = every(of("epi-1", OF_MIX, OF_11, "steps=2000 batch_queries=128", TELE_RATE), lengths(32, 156))
OPENQA_TELE = every(OPENQA_TELE, of("epi-3", OF_11, LAST, "evaluate=null"), "encoder.tied=false")
OF_15, WITHOUT_REPEATS = drawn("num_negatives=15 sources.0.top_k=60"), drawn("duplicates=drop")
COCONDENSER = every("encoder.model=Luyu/co-condenser-marco", lengths(32, 128))
FROM_COCONDENSER = every(COCONDENSER, of("epi-3", f"steps={3 * 502_939 // 8}"))
BOTH = drawn("sources.0.kind=ann sources.1.kind=lookahead sources.0.top_k=200 sources.1.top_k=200")
LOOKAHEAD = every(OF_31, BOTH, HALVES)
# OpenMatch/ANCE-Tele, shells/ and preprocess/.
CODE_STAGE = every(IN_BATCH, drawn("weights=null top_k=null duplicates=keep rolling=true"))
CODE = every(*(of(stage, CODE_STAGE) for stage in ("epi-1", "epi-2", "epi-3")))
TELE_TOP_K = of("epi-1", drawn("sources.0.top_k=160")), of("epi-2", "refresh.positives_top_k=200")
OPENQA_TELE_CODE = every(OPENQA_TELE, CODE, *TELE_TOP_K)
EPISODE_RATE = every("optimizer.learning_rate=1e-6 lr_schedule.warmup_steps=5000", ADAMW)
EPISODE = every("steps=10000 batch_queries=8", EPISODE_RATE)
OWN_SEVEN = drawn("kind=ann num_negatives=7 top_k=200")
CYCLIC_EPISODE = of("epi-2", "keep_optimizer=true", EPISODE)
CYCLIC = every(CYCLIC_EPISODE, of("epi-5", OWN_SEVEN, EPISODE))
# Wang et al. 2022 (SimLM), Table 13; Zhang et al. 2021 (AR2), Table 8 and section 4.2; Zhou et al. 2022
# (SimANS), section 4.1, appendix D, and the steps of its code; Ren et al. 2021 (RocketQA v2), section 4.1,
# and RocketQA's code; Moreira et al. 2024 (NV-Retriever), Table 3.
SIMLM_TERM = every(IN_BATCH, "terms.query.loss.scale=50")
SIMLM = every("batch_queries=64 lr_schedule.warmup_steps=1000", ANEW, ADAMW, SIMLM_TERM)
SIMLM_1 = every(drawn("kind=bm25 top_k=200 num_negatives=15"), f"steps={epochs(3, 64)}")
SIMLM_2 = every(drawn("kind=ann top_k=200 num_negatives=15"), f"steps={epochs(3, 64)}", PREVIOUS)
SIMLM_3 = every(drawn("kind=ann top_k=200 num_negatives=23"), f"steps={epochs(6, 64)}", PREVIOUS)
SIMLM_TAUGHT = "terms.distil.loss.scale=50 terms.distil.teacher.model=intfloat/simlm-msmarco-reranker"
AR2 = drawn("kind=ann top_k=100 num_negatives=15")
FOLLOWS = every("terms.query.loss.kind=kl terms.query.teacher.kind=cross_encoder", ADAMW)
AR2_WARM_UP = f"batch_queries=64 steps={epochs(3, 64)} lr_schedule.warmup_steps={round(0.1 * epochs(3, 64))}"
AR2_RATE = "optimizer.learning_rate=5e-6 lr_schedule.warmup_steps=1500 lr_schedule.total_steps=15000"
AR2_STEPS = every("steps=1500 batch_queries=64 refresh.every_steps=1500", AR2_RATE)
AMBIGUOUS = drawn("sampling_strategy=ambiguous a=0.5")
SIMANS_STEPS = f"steps={60_000 * 9 // 10} batch_queries=256 refresh.every_steps={5000 * 9 // 10}"
SIMANS_RATE = "optimizer.learning_rate=5e-6 lr_schedule.warmup_steps=5400"
ROCKETQA_BATCHES = f"steps={40 * 502_939 // 4096} batch_queries={8 * 512} optimizer.learning_rate=3e-5"
ROCKETQA_SECOND = f"terms.query.negatives.1.num_negatives={127 - 64}"
ROCKETQA = every(
    drawn("kind=ann num_negatives=64"),
    ROCKETQA_SECOND,
    "terms.query.negatives.1.filters.0.then=promote",
    "batch_queries=96 optimizer.learning_rate=1e-5 lr_schedule.warmup_steps=0",
    f"lr_schedule.total_steps={epochs(3, 96)}",
    FOLLOWS,
)
NV_MARGIN = "filters.0.kind=relative_margin filters.0.margin=0.05"
NV_RETRIEVER = drawn(f"kind=ranking top_k=4 num_negatives=4 {NV_MARGIN}")
# texttron/tevatron, examples/coCondenser-marco and coCondenser-nq.
SELF = every(ANEW, IN_BATCH, PREVIOUS, TELE_RATE, "lr_schedule.warmup_steps=0", HALVES)
SELF_NEGATIVES = of("self-neg", drawn("sources.0.kind=bm25 sources.1.kind=ann sources.1.top_k=200"), SELF)


def ar2(number: int) -> str:
    """An iteration, and the ranker that teaches it."""
    teacher = f"teachers.ranker-{number}"
    taught = f"terms.query.teacher.model={teacher} keep_optimizer={'true' if number > 1 else 'false'}"
    stage = every(AR2, AR2_STEPS, f"lr_schedule.offset_steps={1500 * (number - 1)}", taught, FOLLOWS)
    trained = {"steps": 500, "batch_queries": 64, "num_negatives": 15, "learning_rate": 5e-7}
    if number == 1:
        trained |= {"steps": 4000, "batch_queries": 256, "learning_rate": 1e-5}
    return every(of(f"iteration-{number}", stage), *(f"{teacher}.{key}={n}" for key, n in trained.items()))


def rocketqa(number: int, first: int, last: int) -> str:
    taught = f"terms.query.teacher.model=teachers.re-ranker-{number}"
    length = f"steps={last - first} lr_schedule.offset_steps={first}"
    return of(f"iteration-{number}", ROCKETQA, length, taught)


def bert_reranker(size: str) -> str:
    started = f"init_from=bert-{size}-uncased learning_rate=3e-6 length_tokens=512"
    settings = f"{started} steps=100000 batch_queries={128 // 2} num_negatives=1 negatives.0.kind=bm25"
    return every(*(f"teachers.bert-{size}.{each}" for each in settings.split()))


def openqa_cocondenser(steps: int) -> str:
    return every(
        SELF_NEGATIVES,
        of("bm25-neg", drawn("num_negatives=1"), ANSWERS, f"steps={steps}"),
        of("self-neg", drawn("num_negatives=1"), f"steps={steps} batch_queries=128"),
        "encoder.model=Luyu/co-condenser-wiki encoder.tied=false",
        lengths(32, 156),
    )


MSMARCO_PASSAGE = {
    "simlm": [
        "encoder.normalize=true",
        lengths(32, 144),
        of("retriever-1", SIMLM_1, SIMLM, "optimizer.learning_rate=2e-5"),
        of("retriever-2", SIMLM_2, SIMLM, "optimizer.learning_rate=2e-5"),
        of("distilled", SIMLM_3, SIMLM, "optimizer.learning_rate=3e-5 terms.query.weight=0.2", SIMLM_TAUGHT),
    ],
    "ar2": [
        lengths(32, 128),
        of("warm-up", drawn("kind=bm25 num_negatives=1"), IN_BATCH, AR2_WARM_UP, ADAMW),
        of("warm-up", "optimizer.learning_rate=1e-4"),
        *map(ar2, range(1, 11)),
    ],
    "simans": [
        of("simans", AR2, AMBIGUOUS, "init_from=previous", SIMANS_STEPS, SIMANS_RATE, FOLLOWS),
        of("simans", "terms.query.teacher.model=teachers.ranker-10"),
    ],
    "rocketqa-v2": [
        lengths(32, 128),
        of("warm-up", "terms.query.negatives=[]", IN_BATCH, ROCKETQA_BATCHES, ADAMW),
        rocketqa(1, 0, 7859),
        rocketqa(2, 7859, epochs(3, 96)),
    ],
    "nv-retriever": [of("nv-retriever", NV_RETRIEVER, IN_BATCH, "optimizer.learning_rate=2e-5", ADAMW)],
    "rand": [of("rand", RAND, ANEW, WARM)],
    "rand-batch": [of("rand-batch", "terms.query.negatives=[]", IN_BATCH, RANKNET, STAR), lengths(24, 120)],
    "nce": [of("nce", ANEW, HARDEST, WARM)],
    "bm25": [of("bm25-neg", BM25, ANEW, WARM)],
    "dpr": [of("dpr", BM25, ANEW, AND_RANDOM, WARM)],
    "bm25-rand": [of("rand", RAND, FROM_BM25)],
    "bm25-nce": [of("nce", HARDEST, FROM_BM25)],
    "bm25-dpr": [of("dpr", BM25, AND_RANDOM, FROM_BM25)],
    "ance": [ANCE, PASSAGES, of("ance", FROM_BM25), lengths(64, 512)],
    "ance-reference": [PASSAGES, of("ance", CODE_ANCE, "batch_queries=64")],
    "ance-cosine": [ANCE, PASSAGES, "encoder.normalize=true"],
    "ance-bce": [ANCE, PASSAGES, of("ance", "terms.query.loss.kind=bce")],
    "ance-hinge": [ANCE, PASSAGES, of("ance", "terms.query.loss.kind=hinge")],
    "ltre-bm25": [LTRE, of("ltre", RANKNET, FROM_BM25)],
    "ltre-lambdarank": [LTRE, of("ltre", LAMBDARANK, FROM_BM25)],
    "ltre-ance": [LTRE, of("ltre", 'init_from={"recipe":"msmarco-passage/ance"}')],
    **{
        f"ltre-opq{n}": [LTRE, of("ltre", drawn(f"index=OPQ{n},IVF1,PQ{n}"), FROM_BM25)]
        for n in (6, 12, 24, 48, 96)
    },
    "ance-tele": [TELE, FROM_COCONDENSER],
    "ance-tele-reference": [TELE, FROM_COCONDENSER, CODE, of("epi-1", OF_15)],
    "tele-query": [FROM_COCONDENSER, of("epi-1", ANN, OF_31), of("epi-3", ANN, OF_31)],
    "tele-momentum": [
        FROM_COCONDENSER,
        of("epi-1", ANN, OF_31),
        of("epi-3", OF_31, HALVES, drawn("sources.0.kind=ann sources.1.kind=momentum")),
    ],
    "tele-lookahead": [FROM_COCONDENSER, of("epi-1", LOOKAHEAD), of("epi-3", LOOKAHEAD)],
    "tele-continue": [TELE, of("epi-2", "refresh.initial_model=current"), of("epi-3", "init_from=previous")],
    "tele-without-repeats": [TELE, of("epi-1", WITHOUT_REPEATS), of("epi-3", WITHOUT_REPEATS)],
    "tele-bm25": [
        FROM_COCONDENSER,
        of("epi-1", OF_31, drawn("sources.0.sources.2.kind=bm25")),
        of("epi-3", OF_31, HALVES, drawn("sources.1.kind=momentum")),
    ],
    "ance-cyclic": [CYCLIC, of("epi-5", "lr_schedule.total_steps=10000")],
    "ance-standard": [CYCLIC, of("epi-5", "lr_schedule.total_steps=50000")],
    "ance-episodes": [
        CYCLIC_EPISODE,
        of("epi-3", OWN_SEVEN, "lr_schedule.total_steps=30000", EPISODE),
        "encoder.model=Luyu/co-condenser-marco",
    ],
    "dpr-in-batch": [of("bm25-neg", BM25, f"steps={3 * 502_939 // 8}", IN_BATCH, ANEW), COCONDENSER],
    "cocondenser": [
        SELF_NEGATIVES,
        of("bm25-neg", drawn("kind=bm25 num_negatives=7"), f"steps={3 * 502_939 // 8} batch_queries=8"),
        of("self-neg", drawn("num_negatives=7"), f"steps={epochs(4, 8)} batch_queries=8"),
        COCONDENSER,
    ],
    "bert-reranker": [of("bm25-neg", FROM_BM25, "steps=1"), bert_reranker("base"), bert_reranker("large")],
}
CODE_MAXP = "batch_queries=128 lr_schedule.warmup_steps=500 optimizer.learning_rate=1e-5 steps=139000"
MSMARCO_DOC = {
    "rand": [of("rand", RAND, ANEW, AS_ANCE)],
    "nce": [of("nce", ANEW, HARDEST, AS_ANCE)],
    "bm25": [of("bm25-neg", BM25, ANEW, WARM)],
    "dpr": [of("dpr", BM25, ANEW, AND_RANDOM, AS_ANCE)],
    "bm25-rand": [of("rand", RAND, FROM_BM25, AS_ANCE)],
    "bm25-nce": [of("nce", HARDEST, FROM_BM25, AS_ANCE)],
    "bm25-dpr": [of("dpr", BM25, AND_RANDOM, FROM_BM25, AS_ANCE)],
    "ance-firstp": [ANCE, DOCUMENTS, of("ance", "steps=210000"), "encoder.tokenization.document.passages=1"],
    "ance-maxp": [ANCE, DOCUMENTS, of("ance", "steps=139000"), "encoder.tokenization.document.passages=4"],
    "ance-maxp-reference": [
        of("ance", CODE_ANCE, drawn("sources.0.top_k_unit=passage"), CODE_MAXP),
        "encoder.tokenization.document.passages=4 encoder.tokenization.document.pad_passages=true",
        "encoder.tokenization.document.special_tokens=per_document",
    ],
    "ance-norm": [NORM, lengths(64, 512)],
    "ance-dual": [DUAL, "encoder.normalize=null"],
    "dance": [NORM, DUAL, of("dual", "steps=80000 terms.document.loss.scale=100")],
    "ltre-bm25": [LTRE, of("ltre", RANKNET, FROM_BM25)],
    "ltre-lambdarank": [LTRE, of("ltre", LAMBDARANK, FROM_BM25)],
    "ltre-ance": [LTRE, of("ltre", 'init_from={"recipe":"msmarco-doc/ance-firstp"}')],
    "ltre-lamb": [of("ltre", drawn("kind=live"), FROM_BM25, FIGURE_3)],
    "query-rand": [of("query-rand", RAND, FROM_BM25, FIGURE_3)],
    "query-bm25": [of("query-bm25", drawn("kind=bm25"), FROM_BM25, FIGURE_3)],
    "query-ann": [of("query-ann", ANN, "refresh.every_steps=10000", FROM_BM25, FIGURE_3)],
}
NQ = {
    "dpr": [DPR, of("dpr", f"steps={40 * 58_880 // 128}")],
    "ance": [OPENQA_ANCE, NQ_ANCE],
    "ance-reference": [OPENQA_CODE, NQ_ANCE],
    "ance-tele": [OPENQA_TELE, of("epi-3", f"steps={40 * 58_880 // 128}")],
    "ance-tele-reference": [OPENQA_TELE_CODE, of("epi-3", f"steps={40 * 79_168 // 128}")],
    "cocondenser": [openqa_cocondenser(18_400)],
}
TRIVIAQA = {
    "dpr": [DPR, of("dpr", f"steps={epochs(40, 128, 60_413)}")],
    "ance": [OPENQA_ANCE, TRIVIAQA_ANCE],
    "ance-reference": [OPENQA_CODE, TRIVIAQA_ANCE],
    "ance-tele": [OPENQA_TELE, of("epi-3", f"steps={epochs(40, 128, 60_413)}")],
    "ance-tele-reference": [OPENQA_TELE_CODE, of("epi-3", f"steps={40 * 78_785 // 128}")],
    "cocondenser": [openqa_cocondenser(18_880)],
}
OPENQA_DPR = [DPR, of("dpr", f"steps={epochs(40, 128, 58_880 + 60_413)}")]
OPENQA_MULTI = {"dpr": OPENQA_DPR, "ance": [OPENQA_ANCE, of("ance", "steps=300000")]}
SETS = {"msmarco-passage": MSMARCO_PASSAGE, "msmarco-doc": MSMARCO_DOC}
SETS |= {"nq": NQ, "triviaqa": TRIVIAQA, "openqa-multi": OPENQA_MULTI}
SAID = {f"{of_set}/{name}": said for of_set, recipes in SETS.items() for name, said in recipes.items()}


def value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_every_paper_recipe_has_expected_values():
    assert sorted(SAID) == RECIPES


@pytest.mark.parametrize("name", SAID)
def test_a_recipe_says_what_its_paper_says(name):
    settings = recipe(name).model_dump(mode="json")
    parts = (each.partition("=") for each in every(*SAID[name]).split())
    said = {key: value_of(text) for key, _, text in parts}
    assert {key: at(settings, key) for key in said} == said


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
    figures = [each for row in PUBLISHED[name.split("/")[0]] for each in row.figures.items()]
    places = {(split, measure) for split, measures in figures for measure in measures}
    columns = recipe(name).final_evaluation.columns.keys()
    assert {place for place in places if place[0] != "eval" and not section_of(place[1])} <= columns


# --- what comments offer


KEY = r"(?:data|bm25|encoder|stages|test)\.[\w.-]+"
SETTING = rf"""'?{KEY}=(?:"[^"]*"|\[[^\]]*\]|\{{[^}}]*\}}|[^\s'";,]*[^\s'";,.)])'?"""
OFFERED = [
    (path, settings.group())
    for of_set in PUBLISHED
    for path in sorted((SHIPPED / of_set).glob("*.yaml"))
    for comments in [" ".join(re.findall("^# *(.*)", path.read_text(), re.MULTILINE))]
    for settings in re.finditer(rf"{SETTING}(?:\s+{SETTING})*", comments)
]


@pytest.mark.parametrize("path, settings", OFFERED, ids=[f"{path.stem}: {given}" for path, given in OFFERED])
def test_overrides_in_comments_load_and_change_the_recipe(path, settings):
    """In the recipe, or the first that extends the file; with another encoder it starts from no run."""
    name = f"{path.parent.name}/{path.stem}"
    if name not in RECIPES:
        names = (other for other in RECIPES if other.startswith(path.parent.name))
        texts = {other: (SHIPPED / f"{other}.yaml").read_text() for other in names}
        name = next(one for one in texts if re.search(rf"(?m)^extends:.*\b{path.stem}\b", texts[one]))
    changed = load(name, *shlex.split(settings))
    assert dump(changed) != dump(recipe(name))
    assert "encoder.model=" not in settings or not changed.external_starts


@pytest.fixture(scope="module")
def taught() -> list[Recipe]:
    """Shipped recipes that train cross-encoders."""
    recipes = (recipe(name) for name in shipped())
    return [each for each in recipes if any(TRAINED in need for need in each.training_needs)]


def test_a_cross_encoder_learns_from_the_retriever_that_it_teaches_next(taught):
    """It reads as deep as the stage that it teaches, which starts from, or mines with, the same weights."""
    for whole in taught:
        stages, used = list(whole.stages), []
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
                used.append(teacher.model)
        assert list(dict.fromkeys(used)) == [f"teachers.{name}" for name in whole.teachers]
        for former, teacher in pairwise(whole.teachers.values()):
            assert whole.teachers[teacher.init_from.removeprefix(TRAINED)] is former


def test_rocketqas_thresholds_are_logits_of_the_class_weighted_cross_encoder(taught):
    found = set()
    for whole in taught:
        sources = [one for stage in whole.stages.values() for one in stage.components]
        for rule in [rule for source in sources for rule in getattr(source, "filters", ()) if rule.needs]:
            trained = whole.teachers[rule.teacher.model.removeprefix(TRAINED)]
            logit = rule.max_score - math.log(trained.num_negatives)  # the weight of its positives
            found.add((rule.then, round(1 / (1 + math.exp(-logit)), 2)))
    assert found == {("promote", 0.9), ("drop", 0.1)}


# --- what hangs together


@pytest.mark.parametrize("name, first", [("msmarco-passage", 60), ("nq", 160), ("triviaqa", 160)])
def test_the_pools_of_anceteles_code_grow_by_all_previous_tables(name, first):
    former, found = 0, []
    for stage in recipe(f"{name}/ance-tele-reference").stages.values():
        (source,) = stage.terms["query"].negatives
        former = sum(former if one.uses_previous_tables else one.top_k for one in source.sources)
        found.append(former)
    assert found == [first, 2 * first, 3 * first]


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
    offsets = [stage.lr_schedule.offset_steps for stage in standard.values()]
    assert offsets == [10_000 * context for context in range(5)]
    anew = {"offset_steps": 0, "total_steps": 10_000}
    rates = {name: stage.lr_schedule.model_copy(update=anew) for name, stage in standard.items()}
    assert cyclic == {name: standard[name].model_copy(update={"lr_schedule": rates[name]}) for name in rates}


@pytest.mark.parametrize("name", RECIPES)
def test_initial_checkpoints_ship_and_tokenize_alike(name):
    encoder = recipe(name).encoder
    for start in recipe(name).external_starts.values():
        former = recipe(start.recipe).encoder
        if "tokenization" not in start.allow_changes:
            assert encoder.tokenization.without_lengths() == former.tokenization.without_lengths()
        for key in set(type(encoder).model_fields) - {*MAY_DIFFER, *start.allow_changes, "tokenization"}:
            assert getattr(encoder, key) == getattr(former, key), key
