import pytest

from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.pipeline import plan as plan_module
from pyserini_ance.pipeline.plan import plan
from pyserini_ance.pyserini_bridge import vector_files

STAGE = {
    "steps": 20,
    "batch_queries": 2,
    "optimizer": {"learning_rate": 1e-3},
    "terms": {"query": {"negatives": [{"kind": "ann", "top_k": 5}]}},
}
STATIC = {**STAGE, "terms": {"query": {"negatives": [{"kind": "random"}]}}}
READY = {"mode": "async", "adopt": "when_ready"}


@pytest.mark.parametrize(
    ("stage", "row"),
    [
        (STATIC, ["sync", "0", "0", "0"]),
        ({**STAGE, "refresh": {"every_steps": 5}}, ["sync", "4", "0", "120"]),
        ({**STAGE, "refresh": {"every_steps": 5, "mode": "async"}}, ["async, +5", "3", "0", "90"]),
        (
            {**STAGE, "refresh": {"every_steps": 5, **READY}, "evaluate": {"every_steps": 10}},
            ["async, when_ready", "4", "3", "150"],
        ),
        ({**STATIC, "evaluate": {"every_steps": 10, **READY}}, ["async, when_ready", "0", "3", "90"]),
    ],
)
def test_a_stage_says_who_makes_what_and_how_much(small_recipe, stage, row):
    assert cells(plan(small_recipe({"b": stage})), "b")[5:-1] == row


def test_what_has_no_effect_or_repeats_queries_is_warned_of(small_recipe):
    rare = {**STAGE, "refresh": {"every_steps": 21}, "batch_queries": 16}
    assert plan(small_recipe({"b": rare})).splitlines()[-3:] == [
        "",
        "WARNING: stages.b.refresh.every_steps is 21, but the stage has 20 steps: its negatives are mined at "
        "its start and never refreshed",
        "WARNING: stages.b.batch_queries is 16, but there are 15 training queries: a batch has the same "
        "query more than once",
    ]
    limits = {**STAGE, "refresh": {"every_steps": 20}, "batch_queries": 15}
    assert "WARNING" not in plan(small_recipe({"b": limits}))


def test_the_share_of_texts_that_are_cut_is_said(small_recipe):
    text = plan(small_recipe({"b": STATIC}))
    (line,) = [line for line in text.splitlines() if line.startswith("length: ")]
    assert line == (
        "length: 26.7 % of the documents are cut at 32 tokens, median 25 tokens; "
        "of the queries, at 24 tokens: train 0.0 %, median 13; test 0.0 %, median 13"
    )


def test_documents_in_passages_are_counted_as_such(small_recipe):
    for empty, said in ((False, "30 in 81 passages of"), (True, "30 in 90 passages, 9 of them empty, of")):
        encoder = small_recipe({"b": STATIC}).encoder.model_dump(mode="json")
        encoder["tokenization"]["document"].update(length_tokens=10, passages=3, pad_passages=empty)
        assert f"documents: {said}" in plan(small_recipe({"b": STATIC}, encoder=encoder))


def test_vectors_are_mapped(small_recipe, monkeypatch):
    """In units of a vector: 30 documents, of which 8 are written to the index at a time."""
    monkeypatch.setattr(vector_files, "ROWS_PER_BLOCK", 8)
    recipe = small_recipe({"b": STATIC})
    vector = 4 * initial_encoder(recipe.encoder, recipe.seed).dimension
    monkeypatch.setattr(plan_module, "GIB", vector)
    monkeypatch.setattr(plan_module, "MIB", vector)
    line = "vectors: 30.00 GiB, mapped from disk, and written to the index 8.0 MiB at a time"
    assert line in plan(recipe).splitlines()
    bounded = plan(small_recipe({"b": STATIC}, encoding={"memory_gib": 0.5}))
    assert f"{line}; searching them takes at most 0.5 GiB\n" in bounded


@pytest.mark.parametrize(("sampling", "epochs"), [("proportional", "2.0"), ("equal", "dev 4.0, train 1.3")])
def test_splits_that_are_drawn_evenly_have_epochs_of_their_own(small_recipe, sampling, epochs):
    text = plan(small_recipe({"b": STATIC}, train_split={"splits": ["dev", "train"], "sampling": sampling}))
    assert (
        cells(text, "b")[3:5] == ["40", epochs] and "queries: dev+train 20, dev 5, test 5, train 15" in text
    )


def cells(text: str, stage: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {stage} ")]
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_a_stage_says_how_its_learning_rate_changes(small_recipe):
    lamb = {"kind": "lamb", "learning_rate": 1e-6}
    stages = {
        "a": STATIC,
        "b": {
            **STATIC,
            "optimizer": lamb,
            "lr_schedule": {"kind": "cosine", "warmup_steps": 5000},
            "steps": 20000,
        },
        "c": {
            **STATIC,
            "optimizer": lamb,
            "lr_schedule": {"warmup_steps": 5000, "total_steps": 1000000, "offset_steps": 600000},
        },
        "d": {**STATIC, "optimizer": {"learning_rate": 0.5}, "lr_schedule": {"kind": "constant"}},
    }
    text = plan(small_recipe(stages))
    assert [cells(text, name)[-1] for name in stages] == [
        "adamw 0.001, linear to 0 at 20",
        "lamb 1e-06, warm-up 5,000, cosine to 0 at 20,000",
        "lamb 1e-06, warm-up 5,000, linear to 0 at 1,000,000, from 600,000 on",
        "adamw 0.5, constant",
    ]


def test_what_is_kept_and_in_work_at_once_is_in_the_disk_that_a_run_takes(small_recipe):
    background = {**STAGE, "refresh": {"every_steps": 5, "mode": "async", "adopt": {"after_steps": 9}}}
    text = plan(small_recipe({"a": STATIC, "b": background}, retention={"save_total_limit": 3}))
    assert "in the run directory: 10 checkpoints of " in text
    assert "\n- drawn queries: " in text and "\n- mode: sync, training waits" in text
    assert ", 6 of them with moments of " in text and ", 5 times the vectors of " in text
