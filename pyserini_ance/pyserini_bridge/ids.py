"""Ids that Pyserini's files can carry: one word each, since runs are split at blanks."""

from collections.abc import Sequence

SHOWN = 5


def refuse_unwritable(ids: Sequence[str], what: str) -> None:
    """Raises ValueError for ids that are empty or hold blanks or line ends; `what` they are names them in the message."""
    if bad := [id for id in ids if id.split() != [id]]:
        shown = ", ".join(map(repr, bad[:SHOWN]))
        raise ValueError(
            f"{len(bad)} {what} ids are empty or hold blanks or line ends, which no run can carry: {shown}. Rename them."
        )
