"""The memory of a step that `--print` forecasts, against that of steps that run."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from helpers.bf16_search import lower_limits
from transformers import RobertaConfig

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.families.roberta_ance import RobertaAnceTower, _model_class
from pyserini_ance.encoders.family import TwoTower
from pyserini_ance.encoders.hardware import DTYPES
from pyserini_ance.encoders.inference_copy import copied_weights
from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.pipeline import cpu_memory, memory_forecast
from pyserini_ance.pipeline.cpu_memory import stating_memory, training_memory
from pyserini_ance.pipeline.memory_forecast import encoder_sizes, step_memory
from pyserini_ance.pipeline.plan import plan
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.recipe.load import load
from pyserini_ance.runs import provenance
from pyserini_ance.runs.provenance import LIBRARY_PAGES, bytes_with_libraries
from pyserini_ance.trainer import onednn_linear
from pyserini_ance.trainer.batch import plan_batch
from pyserini_ance.trainer.dropout import CpuDropout
from pyserini_ance.trainer.objective import term_losses, weighted_sum
from pyserini_ance.trainer.step import BatchEncoder
from pyserini_ance.trainer.step_memory import (
    BatchMemory,
    KeptBytes,
    LiveBytes,
    TextMemory,
    activation_bytes,
    encoding_bytes,
    texts_of_query,
)
from pyserini_ance.vectors import sampled_search
from pyserini_ance.vectors.sampled_search import held_bytes

LENGTHS = {"query": 8, "document": 16}  # every text of the small collection is cut at its length
TERM = {"negatives": [{"kind": "random", "num_negatives": 2}], "loss": {"kind": "nll"}}
DUAL = {"query": TERM, "document": {**TERM, "anchor": "document"}}
IN_BATCH = {"query": {"in_batch_negatives": True, "loss": {"kind": "nll"}}}
CASES = {  # terms, settings of the stage, tokens per batch
    "whole": ({"query": TERM}, {}, 4096),
    "chunks of tokens": ({"query": TERM}, {}, 128),
    "several batches": (IN_BATCH, {}, 64),
    "chunks of queries": ({"query": TERM}, {"chunk_queries": 2}, 4096),
    "GradCache": (IN_BATCH, {"chunk_queries": 2}, 64),
    "dual": (DUAL, {}, 4096),
}


def small(small_recipe, terms: dict, stage: dict, tokens: int, **more):
    settings = {"steps": 1, "batch_queries": 6, "optimizer": {"learning_rate": 1e-3}, "terms": terms, **stage}
    recipe = small_recipe({"a": settings}, **more)
    tokenization = recipe.encoder.model_dump(mode="json")["tokenization"]
    for side, length in LENGTHS.items():
        tokenization[side]["length_tokens"] = length
    encoder = recipe.encoder.model_dump(mode="json") | {"tokenization": tokenization}
    encoding = {"precision": "fp32", "training_tokens_per_batch": tokens}
    return small_recipe({"a": settings}, encoder=encoder, encoding=encoding, **more)


def kept_by_a_step(recipe, precision: str) -> tuple[int, int]:
    """The bytes that a real step keeps at its peak, and what is forecast for it."""
    data, encoder = tokenize(recipe, read_collection(recipe)), initial_encoder(recipe.encoder, 0)
    stage, towers, tokens = recipe.stages["a"], encoder.towers, recipe.encoding.training_tokens_per_batch
    memory = {side: TextMemory.count(towers, side, n, "cpu", precision) for side, n in LENGTHS.items()}
    towers.train()
    autocast = nullcontext if precision == "fp32" else lambda: torch.autocast("cpu", torch.bfloat16)
    runner = BatchEncoder(stage, data, encoder, autocast, tokens, (3, 0), World())
    batch = plan_batch(stage, 0, 0, 3, data.anchor_sets, {})
    assert min(len(batch.unique("query")), len(batch.unique("document"))) >= 6
    with KeptBytes(towers.parameters()) as kept:
        for chunk in runner.encode(batch, 0):
            losses = term_losses(stage.terms, chunk.batch, data.anchor_sets, chunk.vectors, chunk.passages)
            chunk.backward(weighted_sum(stage.terms, losses))
    # A text that several queries have drawn is encoded once.
    drawn, chunks = texts_of_query(stage, 1, 1), runner._chunks(batch)
    unique = {side: max(len(chunk.unique(side)) / len(chunk.queries) for chunk in chunks) for side in LENGTHS}
    texts = {side: min(drawn[side], unique[side]) for side in LENGTHS}
    return kept.peak, activation_bytes(stage, texts, LENGTHS, memory, tokens, "cpu")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_the_forecast_is_what_a_step_keeps(small_recipe, case, precision):
    kept, forecast = kept_by_a_step(small(small_recipe, *CASES[case]), precision)
    assert forecast == pytest.approx(kept, rel=0.1)


@pytest.fixture(scope="module")
def ance_towers() -> TwoTower:
    """RoBERTa-base with the head of ANCE, without values."""
    with torch.device("meta"):
        config = RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1)
        config.head_dimension = 768
        return TwoTower(RobertaAnceTower(_model_class()(config), True, False))


def test_maxp_on_ms_marco_fits_a_gpu_of_80_gb(ance_towers):
    recipe = load("msmarco-doc/ance-maxp").recipe
    stage, sides = recipe.stages["ance"], recipe.encoder.tokenization
    lengths = {side: sides.side(side).length_tokens for side in LENGTHS}
    assert lengths["document"] * sides.document.passages == 2048
    memory = {side: TextMemory.count(ance_towers, side, n, "cuda", "bf16") for side, n in lengths.items()}
    texts = texts_of_query(stage, 1, 4)
    assert texts == {"query": 1, "document": 8}
    bytes_kept = activation_bytes(stage, texts, lengths, memory, None, "cuda")
    state = 16 * sum(p.numel() for p in ance_towers.parameters())
    assert state + bytes_kept < 80e9
    # Per layer and token: 26 H + 4 I bytes in bf16, with H 768, I 3,072, and the numbers of norms and heads.
    per_token = memory["document"].per_text / 512 / 12
    assert per_token == pytest.approx(26 * 768 + 4 * 3072, rel=0.1)
    whole = stage.model_copy(update={"chunk_queries": stage.batch_queries})
    assert state + activation_bytes(whole, texts, lengths, memory, None, "cuda") > 80e9


def test_a_batch_of_any_shape_keeps_what_batches_of_two_lengths_imply(small_recipe):
    towers = initial_encoder(small(small_recipe, *CASES["whole"]).encoder, 0).towers
    memory, freed = BatchMemory.count(towers, "document", 16, "fp32")
    towers.train()
    for shape in ((5, 11), (3, 7), (4, 16)):
        with KeptBytes(towers.parameters()) as kept, LiveBytes() as live, CpuDropout():
            vectors = towers("document", torch.ones(shape, dtype=torch.int64), None)
        assert memory.of(*shape) == pytest.approx(kept.now, rel=0.02)
        assert freed.of(*shape) == pytest.approx(live.made - live.now, rel=0.02)
        del vectors


def test_live_bytes_are_those_of_tensors_that_are_there():
    with LiveBytes() as live:
        first = torch.ones(1000)
        second = first.view(10, 100).T * 2
        assert (live.now, live.peak, live.made) == (8000, 8000, 8000)
        del first
        second.add_(1)
        assert (live.now, live.peak, live.made) == (4000, 8000, 8000)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_encoding_is_counted_as_a_batch_takes(small_recipe, precision):
    encoder = initial_encoder(small(small_recipe, *CASES["whole"]).encoder, 0)
    towers = encoder.towers.eval()
    weights = dict(towers.tower("document").named_parameters())
    copied = copied_weights(towers.tower("document"), DTYPES[precision])
    weights |= {name: weights[name].to(DTYPES[precision]) for name in copied}
    with LiveBytes() as live, torch.no_grad():
        towers("document", torch.ones((3, 16), dtype=torch.int64), None, weights)
    most, made = encoding_bytes(encoder, "document", (3, 16), DTYPES[precision])
    assert (most, made) == (pytest.approx(live.peak, rel=0.05), pytest.approx(live.made, rel=0.05))


def test_the_plan_says_what_each_stage_takes_on_a_cpu(small_recipe, monkeypatch):
    monkeypatch.setattr(memory_forecast, "GIB", 1 << 10)
    recipe = small(small_recipe, *CASES["whole"], device="cpu", precision="fp32")
    data, sizes = tokenize(recipe, read_collection(recipe)), encoder_sizes(recipe)
    (line,) = [line for line in plan(recipe).splitlines() if line.startswith("memory on a CPU")]
    forecast = training_memory(recipe, "a", data, sizes, {"libraries": sizes.libraries})
    assert line == f"memory on a CPU per process, stage a: about {forecast.describe()}"
    weights = 4 * sum(p.numel() for p in initial_encoder(recipe.encoder, 0).towers.parameters())
    assert (forecast.parts["weights"], forecast.parts["moments"]) == (weights, 2 * weights)
    assert f"(libraries {sizes.libraries / 1024:.2f}, " in line and not forecast.files
    batch = plan_batch(recipe.stages["a"], 0, 0, recipe.seed, data.anchor_sets, {})
    kept = sum(
        BatchMemory(*sizes.batches[side][0]).of(len(batch.unique(side)), length)
        for side, length in LENGTHS.items()
    )
    assert forecast.parts["activations"] == kept


def test_a_stage_states_what_its_process_has_and_what_comes(small_recipe):
    recipe = small(small_recipe, *CASES["whole"], device="cpu", precision="fp32")
    data, sizes = tokenize(recipe, read_collection(recipe)), encoder_sizes(recipe)
    held = np.ones(256 << 20, np.uint8)  # stands for an earlier stage's memory
    before = bytes_with_libraries()
    with stating_memory(recipe, "a", data, World()) as stated:
        come = training_memory(recipe, "a", data, sizes, {}).total
        assert stated == pytest.approx(before + come, rel=0.02)
        assert stated > held.nbytes + sizes.libraries


@pytest.mark.parametrize(
    ("precision", "is_amd", "primitives"),
    [("fp32", False, 0), ("fp32", True, 32 << 20), ("bf16", False, 32 << 20)],
)
def test_primitives_count_where_onednn_multiplies(small_recipe, monkeypatch, precision, is_amd, primitives):
    monkeypatch.setattr(onednn_linear, "onednn_trains_linears", lambda: is_amd)
    recipe = small(small_recipe, *CASES["whole"], device="cpu", precision=precision)
    data, sizes = tokenize(recipe, read_collection(recipe)), encoder_sizes(recipe)
    assert training_memory(recipe, "a", data, sizes, {}).parts.get("oneDNN primitives", 0) == primitives


@pytest.mark.parametrize(
    ("in_memory", "stated"),
    [
        ({"RssAnon": 100, "RssFile": 10}, 100 + LIBRARY_PAGES),
        ({"RssAnon": 100, "RssFile": 2 * LIBRARY_PAGES}, 100 + 2 * LIBRARY_PAGES),
        ({}, None),
    ],
    ids=["pages to come", "all read", "untold"],
)
def test_pages_of_libraries_count_before_they_are_read(monkeypatch, in_memory, stated):
    monkeypatch.setattr(provenance, "resident_bytes", in_memory.get)
    assert bytes_with_libraries() == stated


def test_mining_adds_vectors_candidates_and_the_pages_of_files(small_recipe):
    mined = {"query": {"negatives": [{"kind": "ann", "top_k": 4}], "loss": {"kind": "nll"}}}
    recipe = small(small_recipe, mined, {"refresh": {"every_steps": 1}}, 4096)
    data, sizes = tokenize(recipe, read_collection(recipe)), encoder_sizes(recipe)
    many = sizes._replace(batches={side: [[0.0] * 3] * 2 for side in LENGTHS})  # steps that keep nothing
    forecast = training_memory(recipe, "a", data, many, {})
    documents, queries = len(data.documents), len(data.split.queries)
    assert forecast.files["vectors"] == 4 * documents * sizes.dimension
    assert forecast.files["checkpoint"] == sizes.weights
    assert forecast.parts["query vectors"] == 2 * 4 * queries * sizes.dimension
    assert forecast.parts["candidates"] == 2 * 8 * queries * 4
    elsewhere = small(small_recipe, mined, {"refresh": {"every_steps": 1, "mode": "async"}}, 4096)
    assert not training_memory(elsewhere, "a", data, many, {}).files


@pytest.mark.parametrize(
    "source, is_held",
    [
        ({"top_k": 4}, True),
        ({"top_k": 4, "index": "OPQ2,IVF1,PQ2"}, False),
        ({"top_k": 1000}, False),  # too deep for the small collection
    ],
)
def test_live_searches_hold_the_documents_in_bf16(small_recipe, monkeypatch, source, is_held):
    lower_limits(monkeypatch)
    monkeypatch.setattr(cpu_memory, "cpu_has_fast_bf16", lambda: True)
    monkeypatch.setattr(sampled_search, "FEWEST_DOCUMENTS", 1)
    live = {"query": {"negatives": [{"kind": "live", **source}], "loss": {"kind": "nll"}}}
    recipe = small(small_recipe, live, {"trainable": "query_tower"}, 4096)
    data, sizes = tokenize(recipe, read_collection(recipe)), encoder_sizes(recipe)
    counted = held_bytes(len(data.documents), sizes.dimension) if is_held else 0
    forecast = training_memory(recipe, "a", data, sizes, {})
    assert forecast.parts["documents in bf16"] == counted
    bounded = recipe.model_copy(update={"encoding": recipe.encoding.model_copy(update={"memory_gib": 1.0})})
    assert not training_memory(bounded, "a", data, sizes, {}).parts["documents in bf16"]


def test_gradcache_keeps_one_batch(small_recipe):
    whole, cached = (small(small_recipe, *CASES[case]) for case in ("several batches", "GradCache"))
    data, sizes = tokenize(whole, read_collection(whole)), encoder_sizes(whole)
    kept = [training_memory(r, "a", data, sizes, {}).parts["activations"] for r in (whole, cached)]
    assert kept[1] == max(
        BatchMemory(*sizes.batches[side][0]).of(count, LENGTHS[side])
        for side, count in {"query": 2, "document": 2}.items()
    )
    assert kept[0] > 2 * kept[1]


def test_a_plan_made_without_a_gpu_tells_of_both_devices(small_recipe):
    recipe = small(small_recipe, *CASES["whole"])
    data = tokenize(recipe, read_collection(recipe))
    recipe = recipe.model_copy(update={"device": "auto", "precision": "auto"})
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert memory_forecast.devices(recipe) == ["cpu", "cuda"]
    line = step_memory(recipe, data, encoder_sizes(recipe), "cuda")
    assert line.startswith("GPU memory per process: about 0.0") and "in bf16)" in line


def test_an_encoder_that_needs_values_has_a_plan_without_activations(small_recipe, monkeypatch):
    def looks_at_values(towers, side, ids, mask, weights=None):
        return ids.float() * float(ids.sum())

    monkeypatch.setattr(TwoTower, "forward", looks_at_values)
    recipe = small(small_recipe, *CASES["whole"], seed=2)
    recipe = recipe.model_copy(update={"encoder": recipe.encoder.model_copy(update={"dropout": 0.3})})
    assert encoder_sizes(recipe).texts == {"cpu": None}
    assert "in stage a; the activations of this encoder cannot be counted" in plan(recipe)
