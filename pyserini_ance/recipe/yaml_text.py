"""YAML for recipes, overrides and grids: numbers, switches and null as version 1.2 has them, all else text.

010 is text, which a number's setting reads as ten and a folder's as it is written; so is 1e-6. 1:30, on and
2026-01-01 are text too. Of version 1.1, `<<` merges and 1_000 stay.
"""

import re
from functools import lru_cache
from typing import Any

import yaml

TAG = "tag:yaml.org,2002:"
RESOLVED = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", "<<", ["<"]),
)
HASH = "\ue000"  # stands for `#` while an argument is parsed


class _Loader(yaml.SafeLoader):
    """Rejects a repeated key, of which plain YAML silently uses the last. Keys are text."""

    def construct_text_mapping(self, node: yaml.MappingNode) -> dict:
        seen = set()
        for key, _ in node.value:
            line = f"{self.name}:{key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError(f"{line}: a key is a list or mapping; quote text in brackets")
            if key.value in seen:
                raise ValueError(f"{line}: key {key.value!r} is written twice in one mapping; keep one")
            seen.add(key.value)
            if key.tag != f"{TAG}merge":
                key.tag = f"{TAG}str"
        return self.construct_mapping(node, deep=True)


class _ArgumentLoader(_Loader):
    # Also the bytes of a path that are not UTF-8, as Python decodes arguments.
    NON_PRINTABLE = re.compile(  # type: ignore[misc]
        yaml.reader.Reader.NON_PRINTABLE.pattern[:-1] + "\udc80-\udcff]"
    )

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        node.value = node.value.replace(HASH, "#")
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes text that version 1.1 or 1.2 reads as something else."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in RESOLVED:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(TAG + _tag, re.compile(rf"(?:{_pattern})\Z"), _first)
_Loader.add_constructor(f"{TAG}map", _Loader.construct_text_mapping)


def read_yaml(text: str | bytes, origin: str) -> Any:
    """The parsed YAML. Raises ValueError naming `origin`, the file or argument that the text comes from."""
    return copy_of(_parsed(text, origin, False))


def read_argument(text: str, origin: str) -> Any:
    """The parsed YAML of an argument, in which `#` begins no comment: a folder may be called `x #2`."""
    return copy_of(_parsed(text.replace("#", HASH), origin, True))


@lru_cache(512)  # a grid's recipes, and a command at each of its steps, read the same files
def _parsed(text: str | bytes, origin: str, is_argument: bool) -> Any:
    try:
        loader = (_ArgumentLoader if is_argument else _Loader)(text)
        loader.name = origin  # shown in errors
        return loader.get_single_data()
    except yaml.YAMLError as error:
        raise ValueError(f"{origin} is not YAML: {error}") from error


def copy_of(value: Any) -> Any:
    """A deep copy that also separates YAML aliases, which are one object in two places: merging writes in
    place."""
    if isinstance(value, dict):
        return {key: copy_of(inner) for key, inner in value.items()}
    return [copy_of(inner) for inner in value] if isinstance(value, list) else value


def to_yaml(value: Any, **style: Any) -> str:
    """`value` as YAML, which `read_yaml` and readers of version 1.1 read alike."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **style)
