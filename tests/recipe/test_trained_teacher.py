from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.trained_teacher import TrainedTeacher

ANN = "[{kind: ann, top_k: 8}]"


def test_teachers_follow_their_stages_in_the_order_of_the_recipe():
    recipe = load("demo/ar2", f"teachers.more={{after: warm-up, negatives: {ANN}}}")
    assert list(recipe.teachers_after("warm-up")) == ["ranker-1", "more"]
    assert list(recipe.teachers_after("iteration-1")) == ["ranker-2"]
    assert not recipe.teachers_after("iteration-2")
    assert recipe.training_needs == {"bm25", "teachers.ranker-1", "teachers.ranker-2"}


def test_without_steps_a_teacher_sees_each_query_once():
    teacher = TrainedTeacher(after="a", negatives=[{"kind": "ann"}], batch_queries=8)
    assert teacher.steps_over(17) == 3
    assert teacher.model_copy(update={"steps": 2}).steps_over(17) == 2
