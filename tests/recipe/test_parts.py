import pytest
from pydantic import ValidationError
from recipe.refusal import refused

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.parts import ROOMS, Part, Settings, did_you_mean, kinds, part_class

OWN_LOSSES = """
from pyserini_ance.recipe import Part

class Triplet(Part):
    margin: float = 1.0

class NoPart:
    pass
"""


@pytest.mark.parametrize(("room", "kind"), [(room, kind) for room in ROOMS for kind in kinds(room)])
def test_every_kind_is_a_part_of_its_own_name(room, kind):
    found = part_class(room, kind)
    assert issubclass(found, Part)
    assert found.model_fields["kind"].default == kind


def test_the_main_jobs_kinds_are_there():
    assert {"beir", "docstrings", "msmarco_passage", "pyserini_jsonl"} <= set(kinds("data"))
    assert {"roberta_ance", "transformer"} <= set(kinds("encoder"))
    assert {"ann", "random", "run"} <= set(kinds("negatives"))
    assert "nll" in kinds("loss")
    assert kinds("guards") == ["answers", "cross_encoder", "duplicates", "margin", "rank_floor", "ratio"]


def test_what_is_shared_in_a_room_is_no_kind():
    assert not {"table", "snapshot", "source", "guards"} & set(kinds("negatives"))


class Inner(Settings):
    depth: int = 1


class Outer(Settings):
    inner: Inner = Inner()
    rows: tuple[Inner, ...] = ()


def test_unknown_keys_are_all_refused_at_their_place():
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


def test_a_class_of_somebody_else_is_a_kind(base, write, own_losses):
    kind = "own_losses:Triplet"
    recipe = load(base, f"stages.only.terms.query.loss={{kind: '{kind}', margin: 2}}").recipe
    loss = recipe.stages["only"].terms["query"].loss
    assert isinstance(loss, Part) and (loss.kind, loss.margin) == (kind, 2.0)
    assert load(write("dumped", dump(recipe))).recipe == recipe


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("own_losses:Triplett", "kind 'own_losses:Triplett' cannot be imported: module 'own_losses' has no attribute"),
        ("nowhere_at_all:Loss", "kind 'nowhere_at_all:Loss' cannot be imported: No module named"),
        ("own_losses:NoPart", "kind 'own_losses:NoPart' is not a subclass of pyserini_ance.recipe.Part"),
    ],
)
def test_a_class_that_is_no_part_is_refused(base, own_losses, kind, message):
    assert message in refused(base, f"stages.only.terms.query.loss.kind={kind}")


def test_settings_of_somebody_elses_class_are_checked(base, own_losses):
    said = refused(base, "stages.only.terms.query.loss={kind: 'own_losses:Triplet', margins: 2}")
    assert "stages.only.terms.query.loss.margins: unknown key 'margins' (did you mean 'margin'?)" in said
