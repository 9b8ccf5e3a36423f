import pytest

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.recipe.components import component_class

ANN = {"kind": "ann", "top_k": 12}
AMBIGUOUS = "is a setting of sampling_strategy: ambiguous, but sampling_strategy is"
STUDENT = {"kind": "teacher", "teacher": {"kind": "student"}}


def mix(*sources: dict, **more) -> dict:
    return {"kind": "mix", "sources": list(sources), **more}


@pytest.mark.parametrize(
    ("group", "settings", "message"),
    [
        ("negatives", {"kind": "ann", "top_k": "all"}, "1 validation error(.*\n)+.*`auto` or a number"),
        ("negatives", {"kind": "live", "num_negatives": 20}, "set top_k=20, and remove num_negatives"),
        ("negatives", {"kind": "ann", "a": 2}, f"a {AMBIGUOUS} random"),
        ("negatives", {**ANN, "sampling_strategy": "stratified", "b": 1}, f"b {AMBIGUOUS} stratified"),
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
