"""A small recipe that loads, and a way to write more of them into one folder."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.base_recipe import BASE


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
