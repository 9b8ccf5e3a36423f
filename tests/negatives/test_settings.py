import numpy as np
import pytest

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.rankings import Ranking
from pyserini_ance.recipe.components import component_class
from pyserini_ance.recipe.stage import Stage

ANN = {"kind": "ann", "top_k": 12}
AMBIGUOUS = "is a setting of sampling_strategy: ambiguous, but sampling_strategy is"
STUDENT = {"kind": "teacher", "teacher": {"kind": "student"}}


def mix(*sources: dict, **more) -> dict:
    return {"kind": "mix", "sources": list(sources), **more}


@pytest.mark.parametrize(
    ("group", "settings", "message"),
    [
        (
            "negatives",
            {"kind": "ann", "top_k": "all"},
            "1 validation error.*\n.*\n.*expected `auto` or a number",
        ),
        ("negatives", {"kind": "live", "num_negatives": 20}, "set top_k=20, and remove num_negatives"),
        ("negatives", {"kind": "ann", "a": 2}, f"a {AMBIGUOUS} random"),
        (
            "negatives",
            {"kind": "ann", "sampling_strategy": "stratified", "b": 1},
            f"b {AMBIGUOUS} stratified",
        ),
        ("negatives", {"kind": "lookahead", "sampling_strategy": "ambiguous"}, "no score; use stratified"),
        ("negatives", {"kind": "ann", "rolling": True, "sampling_strategy": "top"}, "but .* is top"),
        ("negatives", mix(ANN, {"kind": "random"}), "sources.1: `random` has no table.*next to the mix"),
        ("negatives", mix({**ANN, "num_negatives": 3}), "sources.0.num_negatives has no effect inside a mix"),
        ("negatives", mix(ANN, {**ANN, "sampling_strategy": "top"}), "sources.1.sampling_strategy has no"),
        ("negatives", mix(ANN, {"kind": "momentum", "on_shortage": "fill_random"}), "sources.1.on_shortage"),
        ("negatives", mix({**ANN, "rolling": True}), "sources.0.rolling has no effect inside a mix"),
        ("negatives", mix(ANN, filters=["duplicates"]), "unknown key 'filters'"),
        ("negatives", mix(ANN, weights=[1]), "set both `weights` and `top_k`"),
        ("negatives", mix(ANN, weights=[1, 2], top_k=5), "2 weights for 1 sources; pass one for each"),
        ("filters", STUDENT, "takes one of `max_score` .*found neither.*list the filter twice"),
        ("filters", {**STUDENT, "max_score": 1, "margin": 0}, "found max_score and margin"),
        ("teacher", {"kind": "hybrid", "weights": [1]}, "1 weights for 2 teachers; pass one for each"),
    ],
)
def test_settings_without_effect_or_sense_are_refused(group, settings, message):
    with pytest.raises(ValueError, match=message):
        component_class(group, settings["kind"]).model_validate(settings)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("live", {}, "cannot serve a term with `anchor: document`"),
        ("bm25", {}, "cannot serve a term with `anchor: document`"),
        ("ann", {"top_k_unit": "passage"}, "top_k_unit: passage counts passages of documents"),
    ],
)
def test_sources_of_documents_cannot_serve_documents(split_of, kind, settings, message):
    source = component_class("negatives", kind)(**settings)
    source.check_data(AnchorSet(split_of([0], [1]), "query", 9))
    with pytest.raises(ValueError, match=message):
        source.check_data(AnchorSet(split_of([0], [1]), "document", 2))


def test_momentum_needs_a_previous_stage(split_of, snapshot_of):
    snapshot = snapshot_of(split_of([0]), np.ones((1, 1)), np.ones((2, 1)))
    with pytest.raises(ValueError, match="no tables of a previous stage; remove this source from the first"):
        component_class("negatives", "momentum")().mine(snapshot, snapshot.anchor_set("query"))


def test_a_missing_ranking_is_reported_with_its_key(tmp_path):
    key = r"stages\.<stage>\.terms\.<term>\.negatives\.<position>\.file="
    with pytest.raises(FileNotFoundError, match=rf"no file .*nowhere\.trec.*{key}"):
        _ = Ranking(file=tmp_path / "nowhere.trec").files


def test_live_sources_need_frozen_documents():
    terms = {"query": {"negatives": ["live"]}}
    stage = {"steps": 1, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}, "terms": terms}
    with pytest.raises(ValueError, match="document vectors that do not change; set trainable: query_tower"):
        Stage.model_validate(stage)
    assert Stage.model_validate({**stage, "trainable": "query_tower"}).terms["query"].negatives[0].live
