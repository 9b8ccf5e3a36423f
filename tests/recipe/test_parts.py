import pytest
from pydantic import ValidationError

from pyserini_ance.recipe.parts import ROOMS, Part, Settings, did_you_mean, kinds, part_class


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
