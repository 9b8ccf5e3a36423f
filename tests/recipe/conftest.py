import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from pyserini_ance.recipe.load import load


@pytest.fixture
def write(tmp_path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


def refused(*arguments) -> str:
    """The error message of an invalid recipe."""
    with pytest.raises(ValueError) as error:
        load(*arguments)
    return str(error.value)
