"""Settings that are refused: each is named once, with its key, what was expected, and the cure."""

import pytest
from helpers.recipe_errors import refused

from pyserini_ance.recipe.load import load


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sead=1", "sead: unknown key 'sead' (did you mean 'seed'?); keys here: bm25, cache, "),
        ("refresh.every_steps=30", "unknown key 'refresh' (a key of stages: stages.NAME.refresh)"),
        ("batch_queries=3", "unknown key 'batch_queries' (a key of stages: stages.NAME.batch_queries)"),
        ("stages.only.stepz=5", "stages.only.stepz: unknown key 'stepz' (did you mean 'steps'?)"),
        (
            "stages.only.terms.query.negatives.1.topk=5",
            "query.negatives.1.topk: unknown key 'topk' (did you mean 'top_k'?)",
        ),
        ("5=1", "5: unknown key '5'"),
        (
            "data.kind=bier",
            "data: unknown kind 'bier' of data (did you mean 'beir'?); kinds: beir, datasets, docstrings, ",
        ),
        ("encoder.kind=checkpoint", "encoder: unknown kind 'checkpoint' of encoder"),
        (
            "stages.only.terms.query.loss.kind=5",
            "stages.only.terms.query.loss: expected a mapping with `kind`, one of: ",
        ),
        ("data=5", "data: expected a mapping with `kind`, one of: beir, "),
        (
            "stages.only.terms.query.negatives=[{top_k: 5}]",
            "negatives.0: expected a mapping with `kind`, one of: ",
        ),
        ("stages.only.steps=0", "stages.only.steps: Input should be greater than 0, got 0"),
        ("seed=", "seed: Input should be a valid integer, got None"),
        ("stages.only.optimizer.learning_rate=.inf", "learning_rate: Input should be a finite number"),
        ("stages.only.terms.query.weight=.nan", "weight: Input should be a finite number"),
        (
            "stages.only.lr_schedule.total_steps=5",
            "stages.only: lr_schedule.total_steps 5 ends before steps 10",
        ),
        (
            "stages.only.lr_schedule.offset_steps=-1",
            "stages.only.lr_schedule.offset_steps: Input should be greater than or equal to 0, got -1",
        ),
        (
            "stages.only.terms.query.loss={kind: hinge, scale: 20}",
            "stages.only.terms.query.loss.scale: unknown key 'scale'; keys here: kind, margin",
        ),
        (
            "stages.only.terms.query.loss={kind: lambdarank, measure: MAP}",
            "query.loss.measure: Input should be 'RR', 'nDCG' or 'adore_rr', got 'MAP'",
        ),
        (
            "stages.only.refresh={every_steps: 5}",
            "stages.only: `refresh:` is set, but no source of negatives is mined with the model",
        ),
        (
            "stages.only.terms.query.negatives=[{kind: ann}]",
            "stages.only: a source of negatives is mined with the model; set how often",
        ),
        (
            "stages.only.terms.query.negatives=[]",
            "stages.only.terms.query: a term needs negatives: list a source",
        ),
        ("stages.only.keep_optimizer=true", "stages.only is the first stage: there is no optimizer to keep"),
        (
            "stages.next={trainable: query_tower, keep_optimizer: true, steps: 1, batch_queries: 1, "
            "optimizer: {learning_rate: 1}, terms: {q: {in_batch_negatives: true}}}",
            "stages.next trains other towers than the previous stage: there are no moments to keep",
        ),
        (
            "encoder.document_model=other",
            "encoder: document_model is set, but the towers share their weights",
        ),
        ("stages.only.terms=null", "stages.only.terms: Input should be a valid dictionary, got None"),
        ("stages=5", "stages: Input should be a valid dictionary, got 5"),
        ("stages.Two={}", "stages.Two."),
        (
            "stages.bm25={steps: 1, batch_queries: 1, "
            "optimizer: {learning_rate: 1}, terms: {q: {in_batch_negatives: true}}}",
            "stage name 'bm25'",
        ),
        ("bm25.hits=40", "a `bm25` source has top_k 50, but bm25.hits is 40; set bm25.hits=50"),
        (
            "stages.only.terms.query.negatives.1="
            "{kind: bm25, filters: [answers, {kind: range_min, ranks: 10}]}",
            "a `bm25` source with its filters reads 210 documents, but bm25.hits is 200; set bm25.hits=210",
        ),
        (
            "stages.only.terms.query.negatives.1={kind: bm25, filters: [answer]}",
            "unknown kind 'answer' of filters (did you mean 'answers'?)",
        ),
        ("bm25=null", "kind `bm25` needs BM25, but `bm25: null`"),
        (
            "refresher.device=gpu",
            "refresher.device: String should match pattern '^(auto|cpu|cuda(:\\d+)?)$', got 'gpu'",
        ),
        (
            "refresher.process=2",
            "refresher.process: unknown key 'process' (did you mean 'processes'?); keys here: device, ",
        ),
        (
            "retention.vectors=1",
            "retention.vectors: unknown key 'vectors'; keys here: keep_negatives, save_total_limit, got 1",
        ),
        ("retention.keep_negatives=0", "retention.keep_negatives: expected `all` or a number from 1, got 0"),
        (
            "retention.keep_negatives=some",
            "retention.keep_negatives: expected `all` or a number from 1, got 'some'",
        ),
        (
            "encoder.tokenization.query={length_tokens: 5, template: nothing}",
            "a template needs at least one field",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_key(base, override, message):
    said = refused(base, override)
    assert said.startswith(f"recipe {base}, with {override} is not valid:\n") and message in said


def test_moments_cannot_change_their_optimizer(base, write):
    two = (
        "steps: 1, batch_queries: 1, keep_optimizer: true, "
        "optimizer: {learning_rate: 1}, terms: {q: {in_batch_negatives: true}}"
    )
    kept = write("kept", f"extends: base\nstages: {{two: {{{two}}}}}")
    load(kept), load(kept, "stages.only.optimizer.kind=lamb", "stages.two.optimizer.kind=lamb")
    said = refused(kept, "stages.two.optimizer.kind=lamb")
    assert (
        "stages.two.keep_optimizer: its optimizer is lamb, that of stages.only is adamw; use one "
        "kind for both" in said
    )


LATE, AT_ONCE = (
    "mode: async, adopt: when_ready",
    "mode: sync adopts at once; remove `adopt`, or set mode: async",
)


@pytest.mark.parametrize(
    ("refresh", "key", "message"),
    [
        ("mode: elsewhere", ".mode", "Input should be 'sync' or 'async', got 'elsewhere'"),
        ("mode: async, adopt: soon", ".adopt", "expected `when_ready` or `{after_steps: N}`, got 'soon'"),
        ("mode: async, adopt: 3", ".adopt", "expected `when_ready` or `{after_steps: N}`, got 3"),
        ("mode: async, adopt: [soon]", ".adopt", "expected `when_ready` or `{after_steps: N}`, got ['soon']"),
        (
            "mode: async, adopt: {after_steps: 0}",
            ".adopt.after_steps",
            "Input should be greater than 0, got 0",
        ),
        (
            "mode: async, adopt: {after: 3}",
            ".adopt.after",
            "unknown key 'after' (did you mean 'after_steps'?); keys here: after_steps, got 3",
        ),
        ("adopt: when_ready", "", AT_ONCE),
        ("adopt: {after_steps: 3}", "", AT_ONCE),
        (
            f"{LATE}, max_stale: 9",
            ".max_stale",
            "unknown key 'max_stale' (did you mean 'max_staleness_steps'?)",
        ),
    ],
)
def test_a_wrong_refresh_is_named_once(base, refresh, key, message):
    _, said = refused(
        base,
        "stages.only.terms.query.negatives=[{kind: ann}]",
        f"stages.only.refresh={{every_steps: 4, {refresh}}}",
    ).splitlines()
    assert said.startswith(f"  stages.only.refresh{key}: {message}")


@pytest.mark.parametrize(
    ("refresh", "bound", "least"),
    [
        ("mode: sync", 2, 3),
        ("mode: async", 6, 7),
        ("mode: async, adopt: {after_steps: 3}", 5, 6),
        (LATE, 3, 4),
    ],
)
def test_a_staleness_bound_that_cannot_hold_is_rejected_with_the_least(base, refresh, bound, least):
    settings = f"every_steps: 4, {refresh}, max_staleness_steps"
    overrides = [
        "stages.only.terms.query.negatives=[{kind: ann}]",
        f"stages.only.refresh={{{settings}: {bound}}}",
    ]
    assert (
        f"stages.only.refresh: max_staleness_steps {bound} cannot be kept: with every_steps 4 and this "
        "`adopt` negatives are up to "
        f"{least} steps old; raise it to {least}, or refresh more often"
    ) in refused(base, *overrides)
    assert (
        load(base, overrides[0], f"stages.only.refresh={{{settings}: {least}}}")
        .recipe.stages["only"]
        .refresh.max_staleness_steps
        == least
    )


@pytest.mark.parametrize(
    ("evaluate", "message"),
    [
        (
            "patience: 2, keep_best: false",
            "only.evaluate: patience ends a stage at its best checkpoint; it needs keep_best: true",
        ),
        (
            "mode: sync, adopt: when_ready",
            "only.evaluate: mode: sync adopts at once; remove `adopt`, or set mode: async",
        ),
        (
            "adopt: when_ready",
            "only: evaluate.adopt is set, but a sync evaluation is adopted at once; remove it, or set "
            "evaluate.mode: async",
        ),
        ("adopt: soon", "only.evaluate.adopt: expected `when_ready` or `{after_steps: N}`, got 'soon'"),
        ("patience: 0", "only.evaluate.patience: Input should be greater than 0, got 0"),
    ],
)
def test_a_wrong_evaluate_is_named_once(base, evaluate, message):
    _, said = refused(base, f"stages.only.evaluate={{every_steps: 4, {evaluate}}}").splitlines()
    assert said.startswith(f"  stages.{message}")
