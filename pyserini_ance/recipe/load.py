"""Loading a recipe: files that extend one another, dotted overrides, and errors that name the key."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pyserini_ance.recipe.find import find_recipe
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.parts import did_you_mean
from pyserini_ance.recipe.test import OF_SPLITS

COMMAND_LINE = "command line"
WHOLE = {"start"}  # keys whose mappings never merge: half of one place and half of another is no place


@dataclass(frozen=True)
class LoadedRecipe:
    """A checked recipe, and for each dotted key the file (or the command line) that set it."""

    recipe: Recipe
    origins: dict[str, str]


def load(name: str | Path, *overrides: str) -> LoadedRecipe:
    """Load a recipe by name or path and apply `dotted.key=value` overrides.

    `extends:` names files in the same folder (or any recipe); mappings merge, anything else replaces.
    `every_stage:` gives defaults to each stage. What is said under `test` of splits that data had which data of another kind has
    replaced is left out, unless they are tested, and so are the figures that were expected on it. Raises ValueError naming file or
    override, key and value.
    """
    path = find_recipe(str(name))
    origins: dict[str, str] = {}
    splits: set[str] = set()
    raw = _read_chain(path, origins, splits, ())
    expected = raw.get("expect"), dict(_mapping(raw, "data"))
    for override in overrides:
        _apply(raw, override, origins)
    if raw.get("expect") is expected[0] and _differ_in_kind(expected[1], _mapping(raw, "data")):
        _leave_out_expected(raw, origins)
    raw.setdefault("name", f"{path.resolve().parent.name}/{path.stem}")
    _spread_every_stage(raw, origins)
    _leave_out_replaced_splits(raw, splits)
    return LoadedRecipe(_check(raw, path, origins), origins)


def dump(recipe: Recipe) -> str:
    """The whole recipe as YAML, every value written out; loading it gives an equal recipe."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key written twice, which plain YAML would settle silently."""


def _mapping_without_repeats(loader: yaml.Loader, node: yaml.MappingNode) -> dict:
    seen = set()
    for key, _ in node.value:
        if key.value in seen:
            raise ValueError(f"{loader.name}:{key.start_mark.line + 1}: key {key.value!r} is written twice in one mapping; keep one")
        seen.add(key.value)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats)


def read_yaml(text: str | bytes, where: str) -> Any:
    """What YAML says; errors name `where` it stands."""
    try:
        loader = _Loader(text)
        loader.name = where  # which errors show
        return _copy(loader.get_single_data())
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is not YAML: {error}") from error


def _copy(value: Any) -> Any:
    """Nothing shared with `value`, nor within: a YAML alias is one object in two places, and merging writes in place."""
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _read_chain(path: Path, origins: dict[str, str], splits: set[str], seen: tuple[Path, ...]) -> dict:
    """The file merged into those that it extends; `splits` gets the names of all that any of them gives its data."""
    if path.resolve() in seen:
        raise ValueError(f"recipes extend one another in a circle: {' -> '.join(map(str, (*seen, path.resolve())))}")
    own = read_yaml(path.read_bytes(), str(path))
    if not isinstance(own, dict):
        raise ValueError(f"{path}: expected a mapping of recipe keys, got {type(own).__name__}")
    merged: dict = {}
    for base in _bases(own, path):
        _merge(merged, _read_chain(base, origins, splits, (*seen, path.resolve())), {}, "")
    splits.update(_mapping(_mapping(own, "data"), "splits"))
    if _differ_in_kind(_mapping(merged, "data"), _mapping(own, "data")):
        _leave_out_expected(merged, origins)
    return _merge(merged, own, origins, "", str(path))


def _leave_out_expected(raw: dict, origins: dict[str, str]) -> None:
    if raw.pop("expect", None) is not None:
        _forget_origins("expect", origins)


def _bases(own: dict, path: Path) -> list[Path]:
    """Takes `extends` out of a file's keys: the files it names, in order."""
    names = own.pop("extends", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: extends: expected the name of a recipe or a list of them, got {names!r}")
    besides = [path.parent / f"{name.removesuffix('.yaml')}.yaml" for name in names]
    try:
        return [beside if beside.exists() else find_recipe(name) for beside, name in zip(besides, names, strict=True)]
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: extends: {error}") from None


def _merge(into: dict, new: Mapping, origins: dict[str, str], prefix: str, origin: str = "") -> dict:
    """Merge mappings deeply; a mapping with another `kind` replaces, since its keys mean something else, and so does a start."""
    for key, value in new.items():
        path, old = f"{prefix}{key}", into.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and key not in WHOLE and not _differ_in_kind(old, value):
            _merge(old, value, origins, f"{path}.", origin)
            continue
        into[key] = value
        _forget_origins(path, origins)
        if origin:
            _note_origin(value, path, origin, origins)
    return into


def _differ_in_kind(old: Mapping, new: Mapping) -> bool:
    return "kind" in old and "kind" in new and old["kind"] != new["kind"]


def _note_origin(value: Any, path: str, origin: str, origins: dict[str, str]) -> None:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            _note_origin(inner, f"{path}.{key}", origin, origins)
    else:
        origins[path] = origin


def origin_of(key: str, origins: Mapping[str, str]) -> str | None:
    """Where a value comes from, None if it is a default. A list is set as a whole: what is inside has the list's origin."""
    while key and key not in origins:
        key = key.rpartition(".")[0]
    return origins.get(key)


def _forget_origins(path: str, origins: dict[str, str]) -> None:
    for name in [n for n in origins if n == path or n.startswith(f"{path}.")]:
        del origins[name]


def _apply(raw: dict, override: str, origins: dict[str, str]) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ValueError(f"override {override!r}: expected dotted.key=value, for example stages.ance.steps=500")
    value = read_yaml(text, f"override {override!r}")
    _refuse_new_stage(key, raw, override)
    target: dict | list = raw
    parent, _, last = key.rpartition(".")
    for part in parent.split(".") if parent else ():
        target = _descend(target, part, override)
    if isinstance(target, list):
        target[_index(target, last, override)] = value
        _forget_origins(key, origins)
        _note_origin(value, key, COMMAND_LINE, origins)
        return
    if _differ_in_kind(target, {last: value}):
        target.clear()
        _forget_origins(parent, origins)
    _merge(target, {last: value}, origins, f"{parent}." if parent else "", COMMAND_LINE)


def _refuse_new_stage(key: str, raw: dict, override: str) -> None:
    """A misspelt stage would else be one more stage to train, complete thanks to `every_stage`."""
    first, _, rest = key.partition(".")
    (stage, below, _), known = rest.partition("."), raw.get("stages")
    if first == "stages" and below and isinstance(known, dict) and stage not in known:
        raise ValueError(f"override {override!r}: no stage {stage!r}{did_you_mean(stage, known)}; stages: {', '.join(map(str, known))}")


def _descend(target: dict | list, part: str, override: str) -> dict | list:
    place = _index(target, part, override) if isinstance(target, list) else part
    if isinstance(target, dict) and target.get(part) is None:
        target[part] = {}
    if not isinstance(target[place], dict | list):
        raise ValueError(f"override {override!r}: {part!r} is {target[place]!r}, which has no keys below it")
    return target[place]


def _index(target: list, part: str, override: str) -> int:
    if not part.isdecimal() or int(part) >= len(target):
        raise ValueError(f"override {override!r}: {part!r} must be a position in a list of {len(target)} (from 0)")
    return int(part)


def _spread_every_stage(raw: dict, origins: dict[str, str]) -> None:
    """Fill each stage's missing keys from `every_stage`, so that a checked stage is complete by itself."""
    defaults = raw.pop("every_stage", {})
    if not isinstance(defaults, dict):
        raise ValueError(f"every_stage: expected a mapping of a stage's keys, got {defaults!r}")
    stages = raw.get("stages")
    if not isinstance(stages, dict):
        return
    for name, stage in stages.items():
        if isinstance(stage, dict):
            filled: dict = {}
            _merge(filled, _copy(defaults), {}, "")
            stages[name] = _merge(filled, stage, {}, "")
            for key in [k for k in origins if k.startswith("every_stage.")]:
                origins.setdefault(f"stages.{name}.{key.removeprefix('every_stage.')}", origins[key])


def _leave_out_replaced_splits(raw: dict, splits: set[str]) -> None:
    """Takes out of `test` what is said of those `splits` that neither the data has nor the test names: a base said it of its own data."""
    test = _mapping(raw, "test")
    tested = test.get("split")
    kept = [*_mapping(_mapping(raw, "data"), "splits"), *(tested if isinstance(tested, list) else [tested])]
    for key in OF_SPLITS:
        if isinstance(test.get(key), dict):
            test[key] = {split: value for split, value in test[key].items() if split in kept or split not in splits}


def _mapping(raw: dict, key: str) -> dict:
    """What stands there, if it is a mapping; else an empty one: what is wrong with it is said when it is checked."""
    return raw[key] if isinstance(raw.get(key), dict) else {}


def _check(raw: dict, path: Path, origins: dict[str, str]) -> Recipe:
    try:
        return Recipe.model_validate(raw)
    except ValidationError as error:
        lines = [explain(problem, path, origins) for problem in error.errors()]
        raise ValueError("\n".join([f"recipe {path} is not valid:", *lines])) from None


def explain(problem: dict, path: Path, origins: dict[str, str]) -> str:
    """A line for one of pydantic's errors of what `path` says: the key, what is wrong with it, its value, and where that comes from."""
    key = ".".join(str(part) for part in problem["loc"] if part != "[key]")  # pydantic's mark of a key that is wrong itself
    origin = {origin for name, origin in origins.items() if name.startswith(f"{key}.")} or {origin_of(key, origins) or str(path)}
    value = "" if isinstance(problem["input"], dict) else f", got {problem['input']!r}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"  {key or 'recipe'}: {message}{value} (set in {', '.join(sorted(origin))})"
