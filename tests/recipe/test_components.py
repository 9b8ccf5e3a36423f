import pytest
from helpers.recipe_errors import refused
from pydantic import ValidationError

from pyserini_ance.recipe.components import (
    COMPONENT_PACKAGES,
    Component,
    Settings,
    component_class,
    did_you_mean,
    kinds,
)
from pyserini_ance.recipe.load import dump, load

OWN_LOSSES = """
from pyserini_ance.recipe import Component

class Triplet(Component):
    margin: float = 1.0

class NoComponent:
    pass
"""


@pytest.mark.parametrize(
    ("room", "kind"), [(room, kind) for room in COMPONENT_PACKAGES for kind in kinds(room)]
)
def test_every_kind_is_a_component_with_its_name(room, kind):
    found = component_class(room, kind)
    assert issubclass(found, Component)
    assert found.model_fields["kind"].default == kind


def test_main_kinds_exist():
    assert {"beir", "docstrings", "msmarco_passage", "pyserini_jsonl"} <= set(kinds("data"))
    assert {"roberta_ance", "transformer"} <= set(kinds("encoder"))
    assert {"ann", "bm25", "random", "ranking"} <= set(kinds("negatives"))
    assert "nll" in kinds("loss")
    assert kinds("filters") == [
        "absolute_margin",
        "answers",
        "duplicates",
        "max_score",
        "range_max",
        "range_min",
        "relative_margin",
        "teacher",
        "training_positives",
    ]


def test_shared_modules_are_not_kinds():
    assert not {"table", "snapshot", "source", "guards"} & set(kinds("negatives"))


class Inner(Settings):
    depth: int = 1


class Outer(Settings):
    inner: Inner = Inner()
    rows: tuple[Inner, ...] = ()


def test_all_unknown_keys_are_reported_at_their_location():
    with pytest.raises(ValidationError) as error:
        Outer.model_validate({"inner": {"dept": 5, "other": 6}, "rows": [{}, {"depht": 7}]})
    problems = {problem["loc"]: (problem["msg"], problem["input"]) for problem in error.value.errors()}
    assert problems == {
        ("inner", "dept"): ("unknown key 'dept' (did you mean 'depth'?); keys here: depth", 5),
        ("inner", "other"): ("unknown key 'other'; keys here: depth", 6),
        ("rows", 1, "depht"): ("unknown key 'depht' (did you mean 'depth'?); keys here: depth", 7),
    }


def test_braces_in_an_unknown_key_are_just_braces():
    with pytest.raises(ValidationError, match=r"unknown key '\{message\}'"):
        Inner.model_validate({"{message}": 1})


def test_did_you_mean():
    assert did_you_mean("stpes", ["steps", "seed"]) == " (did you mean 'steps'?)"
    assert did_you_mean("xyz", ["steps", "seed"]) == ""


@pytest.fixture
def own_losses(tmp_path, monkeypatch):
    (tmp_path / "own_losses.py").write_text(OWN_LOSSES)
    monkeypatch.syspath_prepend(tmp_path)


def test_an_external_class_is_a_kind(base, write, own_losses):
    kind = "own_losses:Triplet"
    recipe = load(base, f"stages.only.terms.query.loss={{kind: '{kind}', margin: 2}}").recipe
    loss = recipe.stages["only"].terms["query"].loss
    assert isinstance(loss, Component) and (loss.kind, loss.margin) == (kind, 2.0)
    assert load(write("dumped", dump(recipe))).recipe == recipe


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "own_losses:Triplett",
            "kind 'own_losses:Triplett' cannot be imported: module 'own_losses' has no attribute",
        ),
        (
            "nowhere_at_all.inner:Loss",
            "kind 'nowhere_at_all.inner:Loss' cannot be imported: No module named 'nowhere_at_all'. "
            "Type the command in the folder of nowhere_at_all, or add this folder to PYTHONPATH",
        ),
        ("own_losses.Triplet", "(a class of your own is module:Class: 'own_losses:Triplet'); kinds: "),
        (
            "own_losses:NoComponent",
            "kind 'own_losses:NoComponent' is not a subclass of pyserini_ance.recipe.Component",
        ),
    ],
)
def test_a_class_that_is_not_a_component_is_rejected(base, own_losses, kind, message):
    assert message in refused(base, f"stages.only.terms.query.loss.kind={kind}")


def test_settings_of_an_external_class_are_validated(base, own_losses):
    said = refused(base, "stages.only.terms.query.loss={kind: 'own_losses:Triplet', margins: 2}")
    assert "stages.only.terms.query.loss.margins: unknown key 'margins' (did you mean 'margin'?)" in said
