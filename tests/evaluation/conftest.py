"""A small recipe to make run directories of."""

from pathlib import Path

import pytest

BASE = """
data: {kind: beir, folder: some/where}
encoder: {kind: transformer, model: some-model}
stages:
  only:
    steps: 10
    batch_queries: 4
    optimizer: {learning_rate: 1e-3}
    terms: {query: {negatives: [{kind: random}]}}
"""


@pytest.fixture
def base(tmp_path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(BASE)
    return path
