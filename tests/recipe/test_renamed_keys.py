"""Keys, values and kinds of earlier versions: each is refused by the name that it has now."""

import pytest
from helpers.recipe_errors import refused

from pyserini_ance.recipe.renamed_keys import KEYS, KINDS, VALUES

STAGE, TERM = "stages.only", "stages.only.terms.query"
DOCUMENT = "encoder.tokenization.document"


def source(text: str) -> str:
    return f"{TERM}.negatives=[{{{text}}}]"


def filtered(text: str) -> str:
    return source(f"kind: ann, filters: [{text}]")


def loss(text: str) -> str:
    return f"{TERM}.loss={{kind: lambdarank, {text}}}"


IN_ANN = f"{TERM}.negatives=[{{{{kind: ann, {{}}}}}}]"  # to be formatted


def pair(old: str, now: str, *values: tuple[str, str], within="{}") -> list[tuple[str, str]]:
    """A key of which some values have other names, too: as the old key, and as the new one with the old
    value."""
    cases = [(within.format(f"{old}: {a}"), f"`{old}: {a}` is now `{now}: {b}`") for a, b in values]
    return cases + [(within.format(f"{now}: {a}"), f"`{now}: {a}` is now `{now}: {b}`") for a, b in values]


def at(key: str, old: str, now: str, *values: tuple[str, str]) -> list[tuple[str, str]]:
    """The same, for a key below `key`."""
    return pair(old, now, *values, within=f"{key}={{{{{{}}}}}}")


CASES = [
    (source("kind: random, per_query: 2"), "`per_query` is now `num_negatives`"),
    *[
        (source(f"kind: {kind}, depth: 5"), "`depth` is now `top_k`")
        for kind in ("ann", "lookahead", "live", "bm25", "ranking", "mix")
    ],
    (source("kind: ann, guards: [duplicates]"), "`guards` is now `filters`"),
    (source("kind: ann, spare: 5"), "`spare` is now `oversample`"),
    (source("kind: bm25, file: a.trec"), "`file` is now a key of kind `ranking`"),
    (source("kind: live, no_relevant: append"), "`no_relevant` is now `if_no_positive`"),
    (filtered("{kind: max_score, above: 1}"), "`above` is now `max_score`"),
    (
        filtered("{kind: cross_encoder, model: m, max_score: 0.1}"),
        "kind `cross_encoder` is now `teacher`, with `teacher: {kind: cross_encoder, model: NAME}`; its "
        "`max_score` is a logit, for a probability p log(p / (1 - p))",
    ),
    (filtered("{kind: relative_margin, ratio: 0.95}"), "`ratio` is now `margin`, which is 1 - ratio"),
    *pair("sample", "sampling_strategy", ("uniform", "random"), ("hardest", "top"), within=IN_ANN),
    *pair("when_short", "on_shortage", ("random", "fill_random"), within=IN_ANN),
    *at(TERM, "pool", "in_batch_negatives", ("own", "false"), ("step", "true")),
    (f"{TERM}.hardest=1", "`hardest` is now `num_hardest`"),
    (loss("measure: sum_RR"), "`measure: sum_RR` is now `measure: adore_rr`"),
    *at(f"{STAGE}.refresh", "run", "mode", ("inline", "sync"), ("background", "async")),
    *at(f"{STAGE}.evaluate", "run", "mode", ("inline", "sync"), ("background", "async")),
    (f"{STAGE}.refresh={{adopt: ready}}", "`adopt: ready` is now `adopt: when_ready`"),
    (f"{STAGE}.evaluate={{adopt: ready}}", "`adopt: ready` is now `adopt: when_ready`"),
    (f"{STAGE}.refresh={{chunks: 5}}", "`chunks` is now `query_chunks`"),
    *at(
        f"{STAGE}.refresh",
        "first_with",
        "initial_model",
        ("start", "current"),
        ("previous", "previous_stage"),
    ),
    (f"{STAGE}.in_a_row=2", "`in_a_row` is now `repeats_per_query`"),
    (f"{STAGE}.train=both", "`train` is now `trainable`"),
    *at(STAGE, "train", "trainable", ("queries", "query_tower")),
    (f"{STAGE}.start=initial", "`start` is now `init_from`"),
    (f"{STAGE}.init_from={{run: a, changes: [tokenization]}}", "`changes` is now `allow_changes`"),
    (
        f"{STAGE}.init_from={{run: a, allow_changes: [tokenization, l2]}}",
        "`allow_changes: l2` is now `allow_changes: normalize`",
    ),
    (f"{STAGE}.schedule_steps=20", "`schedule_steps` is now `total_steps` of `lr_schedule`"),
    (f"{STAGE}.schedule_cycle_steps=5", "`schedule_cycle_steps` is now `cycle_steps` of `lr_schedule`"),
    (f"{STAGE}.schedule_offset_steps=5", "`schedule_offset_steps` is now `offset_steps` of `lr_schedule`"),
    (
        f"{STAGE}.optimizer.warmup_steps=2",
        "`warmup_steps` is now `warmup_steps` of the stage's `lr_schedule`",
    ),
    (f"{STAGE}.optimizer.decay=cosine", "`decay` is now `kind` of the stage's `lr_schedule`"),
    ("every_stage.steps=20", "every_stage: `every_stage` is now `stage_defaults`"),
    ("keep={checkpoints: 2}", "`keep` is now `retention`"),
    ("retention.checkpoints=2", "`checkpoints` is now `save_total_limit`"),
    ("retention.tables=2", "`tables` is now `keep_negatives`"),
    *at("refresher", "start", "launch", ("child", "subprocess"), ("elsewhere", "external")),
    ("refresher.wait_seconds=2", "`wait_seconds` is now `refresher_timeout_seconds`"),
    ("refresher.leave_after_seconds=2", "`leave_after_seconds` is now `trainer_timeout_seconds`"),
    ("test.hits=20", "`test` is now `final_evaluation`"),
    ("about=text", "`about` is now `description`"),
    *pair(
        "mixing",
        "sampling",
        ("even", "equal"),
        ("concatenated", "proportional"),
        within="train_split={{splits: [a, b], {}}}",
    ),
    ("encoder.l2=true", "`l2` is now `normalize`"),
    *[
        (f"{DOCUMENT}.special_tokens={a}", f"`special_tokens: {a}` is now `special_tokens: per_{a}`")
        for a in ("passage", "document")
    ],
    *at(DOCUMENT, "empty_passages", "pad_passages", ("drop", "false"), ("index", "true")),
    (source("kind: run"), "kind `run` is now `bm25` (or `ranking`, with a `file`)"),
    (f"{TERM}.negatives=[run]", "kind `run` is now `bm25` (or `ranking`, with a `file`)"),
    (filtered("{kind: rank_floor, ranks: 2}"), "kind `rank_floor` is now `range_min`"),
    (filtered("{kind: margin, margin: 2}"), "kind `margin` is now `absolute_margin`"),
    (
        filtered("{kind: ratio, ratio: 0.9}"),
        "kind `ratio` is now `relative_margin`, with `margin: 1 - ratio`",
    ),
]


@pytest.mark.parametrize(("override", "message"), CASES, ids=[override for override, _ in CASES])
def test_renamed_keys_are_rejected_with_the_new_name(base, override, message):
    assert message in refused(base, override)


def test_a_key_of_a_file_is_named_with_the_file(base, write):
    top = write("top", "extends: base\nevery_stage: {batch_queries: 8}\n")
    assert refused(top).splitlines()[1:] == [
        f"  every_stage: `every_stage` is now `stage_defaults` (set in {top})"
    ]


def test_every_renamed_key_has_a_case():
    messages = [message for _, message in CASES]

    def said(text: str) -> bool:
        return any(message.startswith(text) or f": {text}" in message for message in messages)

    assert [row for row in KEYS if not (said(f"`{row.old}` is now {row.now}") or said(f"`{row.old}: "))] == []
    pairs = [(key, old, now) for key, names in VALUES.items() for old, now in names.items()]
    assert [p for p in pairs if not said(f"`{p[0]}: {p[1]}` is now `{p[0]}: {p[2]}`")] == []
    assert [kind for (_, kind), now in KINDS.items() if not said(f"kind `{kind}` is now {now}")] == []
