from pathlib import Path

import pytest
from helpers.recipe_errors import refused
from pydantic import ValidationError

from pyserini_ance.recipe.components import (
    COMPONENT_PACKAGES,
    Component,
    Settings,
    absolute,
    component_class,
    did_you_mean,
    kinds,
)
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.models import Recipe

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


NEGATIVES = [{"kind": "ranking", "file": "runs/bm25.trec"}, {"kind": "random"}]


def recipe(**more) -> Recipe:
    stage = {
        "steps": 4,
        "batch_queries": 1,
        "optimizer": {"learning_rate": 1.0},
        "terms": {"query": {"negatives": NEGATIVES}},
        "init_from": {"folder": "start"},
    }
    settings = {
        "name": "r",
        "data": {"kind": "beir", "folder": "data/mine"},
        "encoder": {"kind": "transformer", "model": "bert"},
        "cache": "cache",
        "stages": {"a": stage},
    }
    return Recipe.model_validate({**settings, **more})


def test_paths_start_at_the_root_wherever_the_recipe_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = absolute(recipe())
    assert made.cache == tmp_path / "cache" and made.data.folder == tmp_path / "data" / "mine"
    assert made.stages["a"].init_from.folder == tmp_path / "start"
    assert made.sources[0].file == tmp_path / "runs" / "bm25.trec"
    assert made.data.splits["dev"] == Path("qrels/dev.tsv")  # relative to the folder
    assert Recipe.model_validate(made.model_dump(mode="json")) == made == absolute(made)
    assert made.name == "r" and made.stages["a"].steps == 4


def test_a_name_is_a_path_where_there_is_such_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()  # by chance: `bm25.index: build` is no folder
    assert absolute(recipe()).encoder.model == "bert" and absolute(recipe()).bm25.index == "build"
    (tmp_path / "bert").mkdir()
    assert absolute(recipe()).encoder.model == str(tmp_path / "bert")
