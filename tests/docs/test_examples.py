"""The examples of the guides load, train or print what is shown, and their tables name every kind."""

import re
import shlex
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import yaml
from helpers.filter_fixture import candidates_of
from helpers.pages import ROOT, blocks, files, first_cells, guide
from helpers.stage_fixture import Training

from benchmarks.papers import __main__ as papers
from pyserini_ance.commands import evaluate
from pyserini_ance.negatives.mined import MinedSource
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.components import component_class, kinds
from pyserini_ance.recipe.load import load, read_component
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.recipe.term import Term
from pyserini_ance.runs.generation import open_generation

EXTENDING = files(guide("extending"))
STAGE = {"steps": 10, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "refresh": {"every_steps": 5}}


def data_sections(text: str) -> list[dict]:
    """The `data:` sections of a page's YAML, in its blocks and in the files that its commands write."""
    written = re.findall(r"^cat > \S+ <<'YAML'\n(.*?)^YAML$", text, re.MULTILINE | re.DOTALL)
    parts = [part for block in [*blocks(text, "yaml"), *written] for part in yaml.safe_load_all(block)]
    return [part["data"] for part in parts if isinstance(part, dict) and "data" in part]


@pytest.mark.parametrize("page", ["README", "formats", "own-data"])
def test_data_sections_are_valid_and_every_kind_has_one(page):
    text = (ROOT / "README.md").read_text(encoding="utf-8") if page == "README" else guide(page)
    sections = data_sections(text)
    assert sections
    for section in sections:
        assert read_component("data", section, str(section)).kind == section["kind"]
    if page == "formats":
        assert sorted(section["kind"] for section in sections) == [*kinds("data")]


def test_distillation_its_terms_make_a_stage_and_its_recipe_loads(tmp_path):
    page = guide("distillation")
    terms, judge, *_ = map(yaml.safe_load, blocks(page, "yaml"))
    component_class("teacher", "llm").model_validate(judge["teacher"])
    stage = Stage.model_validate({**STAGE, **terms})
    assert stage.drawing_term("distil") == "query" and list(stage.teachers) == ["distil"]
    (tmp_path / "alternation.yaml").write_text(files(page)["alternation.yaml"], encoding="utf-8")
    recipe = load(str(tmp_path / "alternation.yaml"))
    taught = {name: stage.teachers for name, stage in recipe.stages.items() if stage.teachers}
    trained = {name: teachers["query"].model for name, teachers in taught.items()}
    assert trained == {"student-1": "teachers.ranker-1", "student-2": "teachers.ranker-2"}
    assert [teacher.after for teacher in recipe.teachers.values()] == ["warm-up", "student-1"]
    (override,) = re.findall(r'stages\.distilled\.terms\.distil\.teacher="(.*?)"', page)
    recipe = load("demo/distilled", f"stages.distilled.terms.distil.teacher={override}")
    assert recipe.stages["distilled"].teachers["distil"].model == "runs/demo-ance/teachers/teacher"
    losses = {one for one in kinds("loss") if getattr(component_class("loss", one), "needs_teacher", False)}
    assert first_cells(page) == {*kinds("teacher"), *losses}
    others = guide("choosing-a-method").partition("## Losses")[2]
    assert set(re.findall(r"`(\w+)`", others)) >= set(kinds("loss")) - losses


def test_negatives_its_terms_are_valid_and_every_kind_has_its_row():
    page = guide("negatives")
    terms, term, *_ = map(yaml.safe_load, blocks(page, "yaml"))
    for each in [*terms["terms"].values(), term]:
        Term.model_validate(each)
    strategies = get_args(MinedSource.model_fields["sampling_strategy"].annotation)
    assert first_cells(page) == {*kinds("negatives"), *kinds("filters"), *strategies}


def test_the_source_and_the_filter_of_a_user_train(small_recipe, tmp_path, monkeypatch):
    for name in ("my_sources.py", "my_filters.py", "my_losses.py"):
        (tmp_path / name).write_text(EXTENDING[name])
    monkeypatch.syspath_prepend(tmp_path)
    terms = yaml.safe_load(EXTENDING["extended.yaml"])["stages"]["neighbours"]["terms"]
    training = Training(small_recipe, tmp_path / "run", terms, steps=2)
    assert training.train().weights != training.start.weights
    table = open_generation(training.run.generation("a", 0), {}).tables["query", 0]
    known_positives = training.data.split.known_positives("query")
    for query, row in enumerate(table.candidates):
        positives, found = known_positives.of(query).tolist(), row[row != PADDING]
        assert 2 <= len(found) <= 6 and not set(found.tolist()) & set(positives)
        distances = np.abs(found - positives[0])
        assert distances.tolist() == sorted(distances)
    assert set(table.dropped) == {"known positives", "my_filters:Short"}

    from my_filters import Short

    texts = ["one two", "one two three", "", "the positive"]
    found = candidates_of([[3], [3]], [[0, 1, 2], [2, 1, PADDING]], documents=texts)
    assert Short(kind="my_filters:Short").mask(found).tolist() == [[True, False, True], [True, False, False]]


def test_the_command_shown_prints_the_table_shown(shared_data, monkeypatch, capsys):
    monkeypatch.chdir(shared_data / "msmarco-passage-dl19-pool")
    shown = shlex.split(blocks(guide("evaluating"), "bash")[0].replace("\\\n", " "))
    assert shown[:2] == ["pyserini-ance", "evaluate"]
    runs = sorted(str(path) for path in Path("runs").glob("*.gz"))
    evaluate.main([word for part in shown[2:] for word in (runs if "*" in part else [part])])
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(table) == 8 and "\n".join(table) in guide("evaluating")


def test_the_papers_table_shown_is_what_is_published(tmp_path, capsys):
    papers.main(["tables", "openqa-multi", "--runs", str(tmp_path)])
    tables, _, sources = capsys.readouterr().out.rpartition("\n\n- ance: ")
    assert sources and len(tables.splitlines()) == 15 and tables in guide("evaluating")
