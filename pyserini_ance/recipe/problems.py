"""Pydantic's errors about a recipe, said by key, value and the file that set it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_core import ErrorDetails

from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.merging import mapping, origin_of

SHOWN_CHARACTERS = 200


def at_its_source(problem: ErrorDetails, filled: Mapping[str, str]) -> ErrorDetails:
    """The problem at the key under `stage_defaults` if it is about a value that was filled from there."""
    words = [str(word) for word in problem["loc"]]
    for end in range(len(words), 0, -1):
        if source := filled.get(".".join(words[:end])):
            return {**problem, "loc": (*source.split("."), *words[end:])}
    return problem


def new_stage(problem: ErrorDetails, raw: dict, origins: Mapping[str, str], filled: Mapping[str, str]) -> str:
    """A hint for a problem of a stage that one file adds to inherited stages: its name may be misspelt.

    "" for any other problem. filled: the keys that `stage_defaults` has set, whatever file these are in.
    """
    stages = {
        str(name): {
            origin
            for key, origin in origins.items()
            if f"{key}.".startswith(f"stages.{name}.") and key not in filled
        }
        for name in mapping(raw, "stages")
    }
    name = str(problem["loc"][1]) if problem["loc"][:1] == ("stages",) and len(problem["loc"]) > 1 else ""
    own = stages.get(name, set())
    inherited = [one for one, files in stages.items() if files - own]
    if len(own) != 1 or not inherited:
        return ""
    near = did_you_mean(name, inherited)
    return f"; {name!r} is a new stage{near}; inherited: {', '.join(inherited)}"


def explain(problem: ErrorDetails, path: Path, origins: Mapping[str, str]) -> str:
    """One line for one of pydantic's errors about file `path`: the key, the problem, the value, and the
    value's origin."""
    key, message = in_words(problem)
    origin = {origin for name, origin in origins.items() if name.startswith(f"{key}.")} or {
        origin_of(key, origins) or str(path)
    }
    return f"  {key or 'recipe'}: {message} (set in {', '.join(sorted(origin))})"


def in_words(problem: ErrorDetails) -> tuple[str, str]:
    """The key that one of pydantic's errors is about, and the problem with the value."""
    # "[key]" is pydantic's mark of a mapping's key that is wrong itself
    key = ".".join(str(word) for word in problem["loc"] if word != "[key]")
    value = "" if isinstance(problem["input"], dict) else f", got {_shown(problem['input'])}"
    return key, problem["msg"].removeprefix("Value error, ") + value


def _shown(value: Any) -> str:
    """A value for a message, on one line and cut, even if it is a DataFrame."""
    text = " ".join(repr(value).splitlines())
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
