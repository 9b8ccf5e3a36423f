"""The text of an error, for messages in one line and for records of why something ended."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def naming_own(kind: str, method: str) -> Iterator[None]:
    """Add to an exception in a method of a class of the user's own, `package.module:Class`, a note that names
    the class."""
    try:
        yield
    except Exception as error:
        if ":" in kind:
            error.add_note(f"raised in {method} of {kind}")
        raise


def text_of(error: BaseException) -> str:
    """The error's own text and the notes on it; the type comes first if the text says little without it.

    ValueError, OSError and RuntimeError are written for users; the text of a KeyError is a key alone.
    """
    text, name = str(error), type(error).__name__
    if not isinstance(error, ValueError | OSError | RuntimeError):
        text = f"{name}: {text}" if text else name
    return "\n".join([text or name, *getattr(error, "__notes__", ())])
