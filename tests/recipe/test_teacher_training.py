"""Cross-encoders that a recipe trains: what is refused, and with which words."""

import pytest

from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.teacher_training import TeacherStart, TrainedTeacher

ANN = "[{kind: ann, top_k: 8}]"


def loaded(*overrides: str):
    return load("demo/ar2", *overrides).recipe


def test_teachers_follow_their_stages_in_the_order_of_the_recipe():
    recipe = loaded(f"teachers.more={{after: warm-up, negatives: {ANN}}}")
    assert list(recipe.teachers_after("warm-up")) == ["ranker-1", "more"]
    assert list(recipe.teachers_after("iteration-1")) == ["ranker-2"]
    assert not recipe.teachers_after("iteration-2")
    assert recipe.training_needs == {"bm25", "teachers.ranker-1", "teachers.ranker-2"}


def test_without_steps_a_teacher_sees_each_query_once():
    teacher = TrainedTeacher(after="a", negatives=[{"kind": "ann"}], batch_queries=8)
    assert teacher.steps_over(17) == 3
    assert teacher.model_copy(update={"steps": 2}).steps_over(17) == 2


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["teachers.ranker-1.after=warmup"],
            "no stage 'warmup' (did you mean 'warm-up'?); stages: warm-up, ",
        ),
        (
            ["teachers.ranker-1.after=iteration-1"],
            "stages.iteration-1.terms.query.teacher: `teachers` has no",
        ),
        (["stages.iteration-1.terms.query.teacher.trained=ranker"], "(did you mean 'ranker-1'?); trained be"),
        (
            ["teachers.ranker-2.init_from={teacher: ranker-2}"],
            "init_from.teacher: `teachers` has no 'ranker-2'",
        ),
        (["teachers.ranker-2.init_from={teacher: a, model: b}"], "expected `initial`, `{teacher: NAME}`, or"),
        (["teachers.ranker-2.init_from=ranker-1"], "expected `initial`, `{teacher: NAME}`, or `{model: "),
        (
            ["teachers.ranker-1.negatives=[random]"],
            "`random` is not mined from the result of a stage; use ann",
        ),
        (["teachers.ranker-1.negatives=[momentum]"], "`momentum` is not mined from the result of a stage"),
        (
            ["teachers.ranker-1.negatives=[{kind: ann, num_negatives: 3}]"],
            "num_negatives of `ann` has no effect here: a list's negatives are drawn at random",
        ),
        (["teachers.ranker-1.negatives=[{kind: ann, rolling: true}]"], "rolling of `ann` has no effect here"),
        (
            ["teachers.ranker-1.negatives=[{kind: ann, sampling_strategy: ambiguous}]"],
            "sampling_strategy of `ann` has no effect here",
        ),
        (
            ["teachers.ranker-1.negatives=[{kind: ann, on_shortage: fill_random}]"],
            "on_shortage of `ann` has no effect here",
        ),
        (
            [f"teachers.warm-up={{after: warm-up, negatives: {ANN}}}"],
            "teachers.warm-up: a stage has this name; give the teacher another one",
        ),
        (["teachers.ranker-3=null"], "null removes an inherited teacher, but no teacher 'ranker-3'"),
        (["teachers.Ranker={after: warm-up, negatives: [ann]}"], "teacher name 'Ranker': use small letters"),
        (
            ["stages.iteration-1.terms.query.teacher.model=a"],
            "takes one of `model` (a folder or hub name) and",
        ),
        (
            ["teachers.ranker-1.negatives=[{kind: bm25, top_k: 50}]", "bm25=null"],
            "teachers.ranker-1.negatives.0: a source or a teacher of kind `bm25` needs BM25",
        ),
    ],
)
def test_a_wrong_teacher_is_named_with_its_key(overrides, message):
    with pytest.raises(ValueError) as error:
        loaded(*overrides)
    assert message in str(error.value)


def test_the_start_of_a_teacher_in_words():
    assert str(TeacherStart(teacher="a")) == "teacher a" and str(TeacherStart(model="b")) == "b"
