"""Documents as passages."""

from typing import NamedTuple


class Passage(NamedTuple):
    """A document, or a part of one."""

    id: str
    title: str
    text: str
