"""Grids: recipes under several values of some keys. Every combination is a recipe with a list of overrides, and has a name."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.recipe.find import find_grid
from pyserini_ance.recipe.load import read_yaml

Point = dict[str, Any]  # a value for each dotted key
RECIPE = "recipe"  # the key whose values are recipes
NAME_CHARACTERS = 150  # file systems allow 255 bytes


@dataclass(frozen=True)
class Grid:
    """The combinations by name, in order. A key that a combination lacks is as the recipe has it; `recipe` names the recipe itself."""

    points: dict[str, Point]
    name: str = "grid"  # that of the file it was read from

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> "Grid":
        """The product of all arguments: `dotted.key=value,value`, values as in overrides, or the name of a grid file.

        Of a key that two arguments set the later values count. Raises ValueError naming the argument.
        """
        points: list[Point] = [{}]
        for argument in arguments:
            blocks = _read_line(argument) if "=" in argument else _read_file(find_grid(argument))
            points = [{**point, **other} for point, other in itertools.product(points, blocks)]
        labels = labels_of(points)
        named: dict[str, Point] = {}
        for point in points:
            if named.setdefault(name := _name(point, labels), point) != point:
                raise ValueError(f"--grid: {named[name]} and {point} would both lie in {name}; leave out one")
        files = [Path(argument).stem for argument in arguments if "=" not in argument]
        return cls(named, *files[:1])

    @property
    def labels(self) -> dict[str, str]:
        return labels_of(self.points.values())

    @property
    def names_recipes(self) -> bool:
        """Whether every combination says which recipe it is of."""
        return all(RECIPE in point for point in self.points.values())

    def overrides(self, name: str) -> list[str]:
        return [f"{key}={json.dumps(value)}" for key, value in self.points[name].items() if key != RECIPE]

    def beside(self, name: str, recipe: str) -> str | None:
        """The combination of another recipe with the same settings as `name`, if there is one."""
        wanted = {**self.points[name], RECIPE: recipe}
        return next((other for other, point in self.points.items() if point == wanted), None)


def labels_of(points: Iterable[Point]) -> dict[str, str]:
    """Each key by as few of its last words as tell it from the others."""
    keys = list(dict.fromkeys(key for point in points for key in point))
    return {key: next(end for end in _ends(key) if sum(end in _ends(other) for other in keys) == 1 or end == key) for key in keys}


def value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _ends(key: str) -> list[str]:
    """`c`, `b.c`, `a.b.c` of `a.b.c`."""
    words = key.split(".")
    return [".".join(words[i:]) for i in range(len(words) - 1, -1, -1)]


def _name(point: Point, labels: dict[str, str]) -> str:
    """What a folder may be called: `seed=42,recipe=demo-ance`."""
    full = ",".join(f"{labels[key]}={value_text(value)}" for key, value in point.items()).replace("/", "-")
    name = re.sub(r"[^\w.,=+-]", "_", full)[:NAME_CHARACTERS]
    return name if name == full else f"{name}-{hashlib.sha256(full.encode()).hexdigest()[:6]}"


def _read_line(argument: str) -> list[Point]:
    key, _, text = argument.partition("=")
    values = read_yaml(f"[{text}]", f"--grid {argument!r}")
    if not key or not values:
        raise ValueError(f"--grid {argument!r}: expected dotted.key=value,value, for example seed=1,2,3")
    return [{key: value} for value in values]


def _read_file(path: Path) -> list[Point]:
    """The combinations of a file: one mapping of keys to values or lists of them, or a list of such mappings, each a product."""
    read = read_yaml(path.read_bytes(), str(path))
    blocks = read if isinstance(read, list) else [read]
    if not all(isinstance(block, dict) and block for block in blocks):
        raise ValueError(f"{path}: expected a mapping of dotted keys to lists of values, or a list of such mappings")
    return [point for block in blocks for point in _product(block)]


def _product(block: dict[str, Any]) -> list[Point]:
    lists = [value if isinstance(value, list) else [value] for value in block.values()]
    return [dict(zip(block, values, strict=True)) for values in itertools.product(*lists)]
