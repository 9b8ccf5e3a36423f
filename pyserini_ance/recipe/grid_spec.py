"""Grids: recipes under several values of some keys.

Every combination is a named list of overrides of a recipe.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.recipe.load import find_grid
from pyserini_ance.recipe.yaml_text import read_argument, read_yaml

Point = dict[str, Any]  # a value for each dotted key
RECIPE, SEED = "recipe", "seed"  # the key whose values are recipes, and that of the seeds
COLUMNS = {RECIPE, "index", "reason", "run", "seconds", "status"}  # of tables of a grid, beside its labels
GRID_FILE = "grid.json"  # in the folder of a grid's runs
NAME_CHARACTERS = 150  # file systems allow 255 bytes


@dataclass(frozen=True)
class Grid:
    """The combinations by name, in order.

    A key that a combination lacks keeps the recipe's value; the key `recipe` names the recipe itself.
    """

    points: dict[str, Point]
    name: str = "grid"  # the name of the grid file, if there is one

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> "Grid":
        """The product of all arguments: `dotted.key=value,value`, with values as in overrides, or the name of
        a grid file.

        Values after a grid file replace those of the file. Raises ValueError naming the argument, also for a
        key that two arguments set otherwise.
        """
        points: list[Point] = [{}]
        set_by: dict[str, str] = {}
        for argument in arguments:
            blocks = _read_line(argument) if "=" in argument else _read_file(find_grid(argument))
            for key in dict.fromkeys(key for block in blocks for key in block):
                earlier = set_by.setdefault(key, argument)
                if earlier != argument and ("=" in earlier or "=" not in argument):
                    raise ValueError(
                        f"--grid: {earlier} and {argument} both set {key}; list all its values in one "
                        f"argument, as in {key}=1,2 (after a grid file it replaces the file's)"
                    )
                set_by[key] = argument
            points = [{**point, **other} for point, other in itertools.product(points, blocks)]
        labels = labels_of(points)
        by_name: dict[str, Point] = {}
        by_folder: dict[str, Point] = {}
        for point in points:
            name = _name(point, labels)
            by_name[name] = point
            if (other := by_folder.setdefault(name.lower(), point)) != point:  # `A` and `a` are one on vfat
                raise ValueError(
                    f"--grid: {other} and {point} would share the folder {name}; remove or rename one of them"
                )
        files = [Path(argument).stem for argument in arguments if "=" not in argument]
        return cls(by_name, *files[:1])

    @property
    def labels(self) -> dict[str, str]:
        return labels_of(self.points.values())

    @property
    def names_recipes(self) -> bool:
        """Whether every combination has the key `recipe`."""
        return all(RECIPE in point for point in self.points.values())

    def settings(self, name: str) -> dict[str, str]:
        """The values of a combination as text, by label."""
        return _settings(self.points[name], self.labels)

    def overrides(self, name: str) -> list[str]:
        point = self.points[name]
        return [f"{key}={json.dumps(point[key], ensure_ascii=False)}" for key in point if key != RECIPE]

    def with_recipe(self, name: str, recipe: str) -> str | None:
        """The combination with the settings of combination `name` and another recipe, if there is one."""
        same_settings = {**self.points[name], RECIPE: recipe}
        return next((other for other, point in self.points.items() if point == same_settings), None)


def labels_of(points: Iterable[Point]) -> dict[str, str]:
    """A label for each key: as few of its last words as distinguish it from the other keys."""
    keys = list(dict.fromkeys(key for point in points for key in point))
    taken = [*keys, *COLUMNS]

    def ends(key: str) -> list[str]:
        """`c`, `b.c`, `a.b.c` of `a.b.c`."""
        words = key.split(".")
        return [".".join(words[first:]) for first in reversed(range(len(words)))]

    return {
        key: next(e for e in ends(key) if e == key or sum(e in ends(other) for other in taken) == 1)
        for key in keys
    }


def _settings(point: Point, labels: Mapping[str, str]) -> dict[str, str]:
    return {labels[key]: one if isinstance(one, str) else json.dumps(one) for key, one in point.items()}


def _name(point: Point, labels: dict[str, str]) -> str:
    """A valid folder name: `seed=42,recipe=demo-ance`."""
    full = ",".join(f"{label}={text}" for label, text in _settings(point, labels).items()).replace("/", "-")
    name = re.sub(r"[^\w.,=+-]", "_", full)[:NAME_CHARACTERS]
    return name if name == full else f"{name}-{hashlib.sha256(full.encode()).hexdigest()[:6]}"


def _read_line(argument: str) -> list[Point]:
    key, _, text = argument.partition("=")
    values = read_argument(f"[{text}]", f"--grid {argument!r}")
    if not key or not values:
        raise ValueError(f"--grid {argument!r}: expected dotted.key=value,value, for example seed=1,2,3")
    return [{key: value} for value in values]


def _read_file(path: Path) -> list[Point]:
    """The combinations of a file: a mapping of keys to values or lists of values, or a list of such mappings.

    Each mapping is a product.
    """
    content = read_yaml(path.read_bytes(), str(path))
    blocks = content if isinstance(content, list) else [content]
    if not all(isinstance(block, dict) and block for block in blocks):
        raise ValueError(
            f"{path}: expected a mapping of dotted keys to lists of values, or a list of such mappings"
        )
    lists = [[value if isinstance(value, list) else [value] for value in block.values()] for block in blocks]
    return [
        dict(zip(block, values, strict=True))
        for block, of_keys in zip(blocks, lists, strict=True)
        for values in itertools.product(*of_keys)
    ]
