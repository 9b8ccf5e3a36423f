"""The settings in which two recipes differ."""

import json
from collections.abc import Iterator
from typing import Any

SHOWN = 3  # differing keys in a sentence
ABSENT = object()


def differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (dotted key, old value, new value) where settings from JSON differ; positions count from 0."""
    if isinstance(old, list) and isinstance(new, list):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            inner = f"{key}.{name}" if key else str(name)
            yield from differences(old.get(name, ABSENT), new.get(name, ABSENT), inner)
        return
    if old != new:
        yield key, _short(old), _short(new)


def _short(value: Any) -> str:
    if value is ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
