"""A small recipe that loads, and a way to write more of them into one folder."""

import textwrap
from collections.abc import Callable
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
    terms:
      query: {negatives: [{kind: random}, {kind: bm25, top_k: 50}], loss: {kind: nll, scale: 2}}
"""


@pytest.fixture
def write(tmp_path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


@pytest.fixture
def base(write) -> Path:
    return write("base", BASE)
