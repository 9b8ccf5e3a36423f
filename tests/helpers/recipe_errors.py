"""The error message of an invalid recipe."""

import pytest

from pyserini_ance.recipe.load import load


def refused(*arguments) -> str:
    with pytest.raises(ValueError) as error:
        load(*arguments)
    return str(error.value)
