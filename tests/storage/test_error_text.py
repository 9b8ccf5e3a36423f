import pytest

from pyserini_ance.storage.error_text import text_of


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("steps is -1"), "steps is -1"),
        (RuntimeError(), "RuntimeError"),
        (KeyError("oops"), "KeyError: 'oops'"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_the_text_of_an_error_ends_with_its_notes(error, text):
    assert text_of(error) == text
    error.add_note("raised in mask of own:Short")
    assert text_of(error) == f"{text}\nraised in mask of own:Short"
