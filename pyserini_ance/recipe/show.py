"""A recipe as YAML with the origin of each value beside it."""

from collections.abc import Iterator

import yaml

from pyserini_ance.recipe.load import LoadedRecipe, dump, origin_of


def annotated(loaded: LoadedRecipe) -> str:
    """The resolved recipe, still YAML; `# <file or command line>` stands after each value that is not a default."""
    text = dump(loaded.recipe)
    lines = text.splitlines()
    for key, last_line in _values(yaml.compose(text), ""):
        if origin := origin_of(key, loaded.origins):
            lines[last_line] = f"{lines[last_line]:<60} # {origin}"
    return "\n".join(lines)


def _values(node: yaml.Node, key: str) -> Iterator[tuple[str, int]]:
    """Dotted key and last line of every single value, empty mappings and lists included."""
    if isinstance(node, yaml.ScalarNode) or not node.value:
        yield key, node.end_mark.line
    elif isinstance(node, yaml.MappingNode):
        for name, inner in node.value:
            yield from _values(inner, f"{key}.{name.value}".lstrip("."))
    else:
        for place, inner in enumerate(node.value):
            yield from _values(inner, f"{key}.{place}")
