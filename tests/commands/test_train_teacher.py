"""What the command refuses before it reads data."""

import pytest

from pyserini_ance.commands import train_teacher


def test_a_wrong_value_of_an_option_is_named(runs, tmp_path):
    arguments = [runs[0], "--output", str(tmp_path / "out"), "--learning-rate", "-1"]
    with pytest.raises(ValueError, match=r"^--learning-rate: Input should be greater than 0, got -1\.0$"):
        train_teacher.main(arguments)
