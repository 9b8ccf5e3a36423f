"""The page on teachers: its recipe loads, and its tables name every kind."""

import re
from pathlib import Path

import yaml

from pyserini_ance.recipe.components import component_class, kinds
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.trainer.losses.base import DistillationLoss

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "distillation.md").read_text(encoding="utf-8")


def test_the_terms_shown_make_a_stage():
    shown = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    terms = yaml.safe_load(shown[1])["terms"]
    stage = Stage.model_validate(
        {
            "steps": 10,
            "batch_queries": 4,
            "optimizer": {"learning_rate": 1e-3},
            "refresh": {"every_steps": 5},
            "terms": terms,
        }
    )
    assert stage.drawing_term("distil") == "query" and list(stage.teachers) == ["distil"]


def test_the_alternation_loads(tmp_path):
    title = "alternation.yaml"
    shown = re.search(rf'```yaml title="{title}"\n(.*?)```', PAGE, re.DOTALL)
    (tmp_path / title).write_text(shown[1], encoding="utf-8")
    recipe = load(str(tmp_path / title)).recipe
    taught = {name: stage.teachers for name, stage in recipe.stages.items() if stage.teachers}
    assert {name: teachers["query"].trained for name, teachers in taught.items()} == {
        "student-1": "ranker-1",
        "student-2": "ranker-2",
    }
    assert [teacher.after for teacher in recipe.teachers.values()] == ["warm-up", "student-1"]


def test_the_override_of_a_teacher_loads():
    (override,) = re.findall(r'stages\.distilled\.terms\.distil\.teacher="(.*?)"', PAGE)
    recipe = load("demo/distilled", f"stages.distilled.terms.distil.teacher={override}").recipe
    assert recipe.stages["distilled"].teachers["distil"].model == "runs/demo-ance/teachers/teacher"


def test_every_teacher_and_every_loss_with_a_teacher_has_its_row():
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    losses = {kind for kind in kinds("loss") if issubclass(component_class("loss", kind), DistillationLoss)}
    assert rows == {*kinds("teacher"), *losses}


def test_the_ratio_of_probabilities_is_what_the_page_says():
    import torch

    top, half = torch.tensor([1.0, 0.5]).div(0.1).softmax(0).tolist()
    assert 145 < top / half < 155
