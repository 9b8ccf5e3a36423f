"""A small recipe to make run directories of."""

from pathlib import Path

import pytest
from helpers.base_recipe import BASE


@pytest.fixture
def base(tmp_path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(BASE)
    return path
