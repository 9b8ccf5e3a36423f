"""A recipe as `train --print` shows it: its resolved YAML, with the origin of each value."""

from collections.abc import Iterator
from typing import Any

import yaml

from pyserini_ance.recipe.load import LoadedRecipe, dump
from pyserini_ance.recipe.merging import origin_of


def annotated_yaml(loaded: LoadedRecipe) -> str:
    """The resolved recipe as YAML, with `# <file or command line>` after each value that is not a default."""
    text = dump(loaded.recipe)
    lines = text.splitlines()
    root = yaml.compose(text)
    assert root is not None
    given = loaded.recipe.model_dump(mode="json", exclude_unset=True)
    for key, last_line in _values(root, ""):
        # A list has one origin, but its items may leave out keys; so may a component that is only a name.
        is_set = key in loaded.origins or _is_given(key, given)
        if is_set and (origin := origin_of(key, loaded.origins)):
            lines[last_line] = f"{lines[last_line]:<60} # {origin}"
    return "\n".join(lines)


def _is_given(key: str, given: Any) -> bool:
    for word in key.split("."):
        if isinstance(given, list):
            given = dict(enumerate(given)).get(int(word))
        elif isinstance(given, dict) and word in given:
            given = given[word]
        else:
            return False
    return True


def _values(node: yaml.Node, key: str) -> Iterator[tuple[str, int]]:
    """Dotted key and last line of every scalar, and of every empty mapping or list."""
    if isinstance(node, yaml.ScalarNode) or not node.value:
        yield key, node.end_mark.line
    elif isinstance(node, yaml.MappingNode):
        for name, inner in node.value:
            yield from _values(inner, f"{key}.{name.value}".lstrip("."))
    else:
        for position, inner in enumerate(node.value):
            yield from _values(inner, f"{key}.{position}")
