"""Settings whose paths do not depend on the working directory, as a run directory keeps them."""

from pathlib import Path
from typing import Any

from pyserini_ance.recipe.components import Settings


def absolute[T: Settings](settings: T) -> T:
    """The same settings with absolute paths.

    A name that is also a file or folder here is one: libraries look for it there first.
    """
    made = {}
    for name, value in settings:
        if name in settings.names_or_paths and isinstance(value, str) and Path(value).exists():
            made[name] = str(Path(value).absolute())
        elif name not in settings.nested_paths:
            made[name] = _absolute(value)
    # What did not change does not become a setting that was given.
    return settings.model_copy(
        update={name: new for name, new in made.items() if new != getattr(settings, name)}
    )


def _absolute(value: Any) -> Any:
    if isinstance(value, Settings):
        return absolute(value)
    if isinstance(value, Path):
        return value.expanduser().absolute()
    if type(value) in (tuple, list):
        return type(value)(map(_absolute, value))
    if isinstance(value, dict):
        return {key: _absolute(inner) for key, inner in value.items()}
    return value
