"""Tables as Markdown with aligned columns, and as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """A Markdown table with aligned columns; numbers are flush right.

    Floats have 4 decimals, in columns `... seconds` and `... ms` 1; missing values are `-`.
    """
    cells = [[_text(row.get(column), column) for column in columns] for row in rows]
    widths = [max(map(len, texts)) for texts in zip(columns, *cells, strict=True)]
    right = [any(isinstance(row.get(column), int | float) for row in rows) for column in columns]
    rule = [
        f"{'-' * (width - 1)}:" if flush else "-" * width for width, flush in zip(widths, right, strict=True)
    ]
    return "\n".join(_line(line, widths, right) for line in (columns, rule, *cells))


def as_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """The table as CSV, with every digit."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = zip(texts, widths, right, strict=True)
    return (
        f"| {' | '.join(text.rjust(width) if flush else text.ljust(width) for text, width, flush in cells)} |"
    )


def _text(value: Any, column: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}" if column.endswith(("seconds", " ms")) else f"{value:.4f}"
    return str(value).replace("|", "\\|")
