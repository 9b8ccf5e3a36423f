"""Paths of a recipe that hold in every working directory."""

from pathlib import Path

from pyserini_ance.recipe.absolute_paths import absolute
from pyserini_ance.recipe.models import Recipe

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
