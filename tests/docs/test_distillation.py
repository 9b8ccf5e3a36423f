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


def test_the_alternation_loads_with_the_overrides_shown(tmp_path):
    title = "student.yaml"
    shown = re.search(rf'```yaml title="{title}"\n(.*?)```', PAGE, re.DOTALL)
    (tmp_path / title).write_text(shown[1], encoding="utf-8")
    commands = re.findall(rf"^pyserini-ance train {title} (.*)$", PAGE.replace("\\\n", ""), re.MULTILINE)
    found = []
    for command in commands:
        _, _, *overrides = command.split()
        stage = load(str(tmp_path / title), *overrides).recipe.stages["student"]
        found.append((str(stage.init_from), stage.terms["query"].teacher.model))
    assert found == [("run runs/demo-ance", "runs/teacher-1"), ("run runs/student-1", "runs/teacher-2")]


def test_every_teacher_and_every_loss_with_a_teacher_has_its_row():
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    losses = {kind for kind in kinds("loss") if issubclass(component_class("loss", kind), DistillationLoss)}
    assert rows == {*kinds("teacher"), *losses}


def test_the_ratio_of_probabilities_is_what_the_page_says():
    import torch

    top, half = torch.tensor([1.0, 0.5]).div(0.1).softmax(0).tolist()
    assert 145 < top / half < 155
