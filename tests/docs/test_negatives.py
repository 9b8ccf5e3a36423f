"""The source and filter in docs/guides/extending.md train; docs/guides/negatives.md has a row for every
kind.
"""

import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import yaml

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.negatives.mined import MinedSource
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.recipe.components import kinds
from pyserini_ance.recipe.term import Term
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import TrainingProgress, publish_checkpoint
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.executors import SyncExecutor
from pyserini_ance.trainer.trainer import StageTrainer

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
PAGE = (GUIDES / "negatives.md").read_text(encoding="utf-8")
EXTENDING = (GUIDES / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```\w+ title="(\S+)"\n(.*?)^```$', EXTENDING, re.MULTILINE | re.DOTALL))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def shown(tmp_path, monkeypatch) -> dict:
    """The files of the page, where a user would write them; the terms of its recipe."""
    for name in ("my_sources.py", "my_filters.py", "my_losses.py"):
        (tmp_path / name).write_text(FILES[name])
    monkeypatch.syspath_prepend(tmp_path)
    return yaml.safe_load(FILES["extended.yaml"])["stages"]["neighbours"]["terms"]


def test_the_source_and_the_guard_shown_train(shown, small_recipe, tmp_path):
    recipe = small_recipe(
        {"a": {"steps": 2, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "terms": shown}}
    )
    run, data = RunDir(tmp_path / "run"), tokenize(recipe, read_collection(recipe))
    start = publish_checkpoint(run, initial_encoder(recipe.encoder, 0), None, TrainingProgress("initial", 0))
    executor = SyncExecutor(Refresher(recipe, data, run, World()).make)
    result = StageTrainer(recipe, "a", data, run, World(), lambda product: executor, start).train()
    assert result.weights != start.weights
    table = open_generation(run.generation("a", 0), {}).tables["query", 0]
    known_positives = data.split.known_positives("query")
    for query, row in enumerate(table.candidates):
        positives, found = known_positives.of(query).tolist(), row[row != PADDING]
        assert 2 <= len(found) <= 6 and not set(found.tolist()) & set(positives)
        distances = np.abs(found - positives[0])
        assert distances.tolist() == sorted(distances)
    assert set(table.dropped) == {"known positives", "my_filters:Short"}


def test_the_guard_shown_marks_short_texts(shown):
    from helpers.filter_fixture import candidates_of
    from my_filters import Short

    found = candidates_of(
        [[3], [3]], [[0, 1, 2], [2, 1, PADDING]], documents=["one two", "one two three", "", "the positive"]
    )
    assert Short(kind="my_filters:Short").mask(found).tolist() == [[True, False, True], [True, False, False]]


def test_the_terms_shown_are_valid_and_every_kind_has_its_row():
    for term in yaml.safe_load(blocks("yaml")[0])["terms"].values():
        Term.model_validate(term)
    Term.model_validate(yaml.safe_load(blocks("yaml")[1]))
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    strategies = get_args(MinedSource.model_fields["sampling_strategy"].annotation)
    assert rows == {*kinds("negatives"), *kinds("filters"), *strategies}
