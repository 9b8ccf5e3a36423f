"""What docs/negatives.md shows is run: its source and its guard train two steps on the small collection."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import start_encoder
from pyserini_ance.experiment.experiment import accelerator_of
from pyserini_ance.experiment.prepare import read_collection, tokenise
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.parts import kinds
from pyserini_ance.recipe.stage import Term
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import Place, publish_checkpoint
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.desks import Inline
from pyserini_ance.trainer.trainer import StageTraining

PAGE = (Path(__file__).parents[2] / "docs" / "negatives.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def shown(tmp_path, monkeypatch) -> dict:
    """The page's files where a user would write them; the terms that name them."""
    source, guard = blocks("python")
    (tmp_path / "my_sources.py").write_text(source)
    (tmp_path / "my_guards.py").write_text(guard)
    monkeypatch.syspath_prepend(tmp_path)
    return yaml.safe_load(blocks("yaml")[1])["terms"]


def test_the_source_and_the_guard_shown_train(shown, small_recipe, tmp_path):
    recipe = small_recipe({"a": {"steps": 2, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "terms": shown}})
    run, data = RunDir(tmp_path / "run"), tokenise(recipe, read_collection(recipe))
    start = publish_checkpoint(run, start_encoder(recipe.encoder, 0), None, Place("initial", 0))
    desk = Inline(Refresher(recipe, data, run, "cpu", World()).make)
    result = StageTraining(recipe, "a", data, run, accelerator_of(recipe), World(), lambda product: desk).train(start)
    assert result.weights != start.weights
    table = open_generation(run.generation("a", 0), {}).tables["query", 0]
    relation = data.split.relation("query")
    for query, row in enumerate(table.candidates):
        positives, found = relation.of(query).tolist(), row[row != PADDING]
        assert 2 <= len(found) <= 6 and not set(found.tolist()) & set(positives)
        distances = np.abs(found - positives[0])
        assert distances.tolist() == sorted(distances)
    assert set(table.dropped) == {"known positives", "my_guards:Short"}


def test_the_guard_shown_marks_short_texts(shown):
    from my_guards import Short
    from negatives.guards.given import candidates_of

    found = candidates_of([[3], [3]], [[0, 1, 2], [2, 1, PADDING]], documents=["one two", "one two three", "", "the positive"])
    assert Short(kind="my_guards:Short").mark(found).tolist() == [[True, False, True], [True, False, False]]


def test_the_terms_shown_are_valid_and_every_kind_has_its_row():
    for term in yaml.safe_load(blocks("yaml")[0])["terms"].values():
        Term.model_validate(term)
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert rows == {*kinds("negatives"), *kinds("guards")}
