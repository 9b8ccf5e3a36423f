"""Load recipes: files that extend one another, dotted overrides, and errors that name the key."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import TypeAdapter, ValidationError

from pyserini_ance.recipe.components import Component, Settings, component_of, did_you_mean
from pyserini_ance.recipe.evaluation_settings import PER_SPLIT_KEYS
from pyserini_ance.recipe.find import find_recipe
from pyserini_ance.recipe.merging import (
    SAME_KEYS,
    Inherited,
    delete_origins,
    differ_in_kind,
    fill_default_splits,
    mapping,
    merge,
    set_origin,
)
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.problems import at_its_source, explain, in_words, new_stage
from pyserini_ance.recipe.variant import differences

COMMAND_LINE = "command line"
# `expect` holds if overrides change nothing but these: chance, machine, paths, shown splits and measures.
KEEPS_EXPECT = (
    *(
        "name",
        "description",
        "expect",
        "seed",
        "device",
        "threads",
        "precision",
        "cache",
        "log_with",
        "encoding",
    ),
    *("refresher", "retention", "data.folder", "bm25.index", "bm25.threads", "final_evaluation.split"),
    *("final_evaluation.measures", "final_evaluation.query_measures"),
)


@dataclass(frozen=True)
class LoadedRecipe:
    """A validated recipe, and for each dotted key the file (or the command line) that set it."""

    recipe: Recipe
    origins: dict[str, str]


def load(name: str | Path, *overrides: str, overrides_origin: str = COMMAND_LINE) -> LoadedRecipe:
    """Load a recipe by name or path and apply `dotted.key=value` overrides.

    `extends:` names files in the same folder (or any recipe); mappings merge, anything else replaces, and
    null removes an inherited stage or split. `stage_defaults:` gives defaults to each stage. `expect` holds
    for the recipe of the file that lists it: it is not inherited, and overrides other than KEEPS_EXPECT drop
    it. Settings under `final_evaluation` for splits that the data lacks and that are not evaluated are
    dropped as well. `overrides_origin` is the origin of overridden values, which errors
    name. Raises ValueError naming file or override, key and value.
    """
    path = find_recipe(str(name))
    origins: dict[str, str] = {}
    splits: set[str] = set()
    raw = _read_chain(path, origins, splits, ())
    empty: dict = {"bm25": {}, "final_evaluation": {}}
    in_file = _copy(raw)
    for override in overrides:
        _apply(raw, override, origins, overrides_origin)
    keeps_expect = all(key.startswith(KEEPS_EXPECT) for key, *_ in differences(empty | in_file, empty | raw))
    raw.setdefault("name", f"{path.resolve().parent.name}/{path.stem}")
    filled = _fill_stage_defaults(raw, origins)
    _drop_replaced_splits(raw, splits)
    recipe = _check(raw, path, origins, filled)
    recipe = recipe if keeps_expect else recipe.model_copy(update={"expect": {}})
    vars(recipe)["file"] = path.resolve()  # a cached property, not a setting
    return LoadedRecipe(recipe, origins)


def dump(recipe: Recipe) -> str:
    """The whole recipe as YAML, every value written out; loading it gives an equal recipe."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


class _Loader(yaml.SafeLoader):
    """Safe YAML that rejects a repeated key; plain YAML would silently use the last."""


def _construct_mapping(loader: yaml.Loader, node: yaml.MappingNode) -> dict:
    seen = set()
    for key, _ in node.value:
        if key.value in seen:
            raise ValueError(
                f"{loader.name}:{key.start_mark.line + 1}: key {key.value!r} is written twice in one "
                "mapping; keep one"
            )
        seen.add(key.value)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)


def read_yaml(text: str | bytes, origin: str) -> Any:
    """The parsed YAML. Raises ValueError naming `origin`, the file or argument that the text comes from."""
    try:
        loader = _Loader(text)
        loader.name = origin  # shown in errors
        return _copy(loader.get_single_data())
    except yaml.YAMLError as error:
        raise ValueError(f"{origin} is not YAML: {error}") from error


def _copy(value: Any) -> Any:
    """A deep copy that also separates YAML aliases, which are one object in two places: merging writes in
    place."""
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _read_chain(path: Path, origins: dict[str, str], splits: set[str], seen: tuple[Path, ...]) -> dict:
    """The file, merged into the files that it extends; adds the split names of every file to `splits`."""
    if path.resolve() in seen:
        raise ValueError(
            f"recipes extend one another in a circle: {' -> '.join(map(str, (*seen, path.resolve())))}"
        )
    own = read_yaml(path.read_bytes(), str(path))
    if not isinstance(own, dict):
        raise ValueError(f"{path}: expected a mapping of recipe keys, got {type(own).__name__}")
    merged: dict = {}
    for base in _bases(own, path):
        merge(merged, _read_chain(base, origins, splits, (*seen, path.resolve())), {}, "")
    merged.pop("expect", None)
    splits.update(mapping(mapping(own, "data"), "splits"))
    inherited = Inherited.of(merged)
    merge(merged, own, origins, "", str(path))
    inherited.remove_nulls(merged, origins, str(path))
    return merged


def _bases(own: dict, path: Path) -> list[Path]:
    """Remove `extends` from a file's keys and return the files that it names, in order."""
    names = own.pop("extends", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: extends: expected the name of a recipe or a list of them, got {names!r}")
    siblings = [path.parent / f"{name.removesuffix('.yaml')}.yaml" for name in names]
    try:
        return [
            sibling if sibling.exists() else find_recipe(name, path)
            for sibling, name in zip(siblings, names, strict=True)
        ]
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: extends: {error}") from None


def _apply(raw: dict, override: str, origins: dict[str, str], origin: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ValueError(
            f"override {override!r}: expected dotted.key=value, for example stages.ance.steps=500"
        )
    value = read_yaml(text, f"override {override!r}")
    _check_stage_exists(key, raw, override)
    if key.startswith("data.splits."):
        fill_default_splits(raw)
    inherited = Inherited.of(raw)
    target: dict | list = raw
    parent, _, last = key.rpartition(".")
    for word in parent.split(".") if parent else ():
        target = _descend(target, word, override)
    if isinstance(target, list):
        target[_index(target, last, override)] = value
        delete_origins(key, origins)
        set_origin(value, key, origin, origins)
        return
    if parent.rpartition(".")[2] not in SAME_KEYS and differ_in_kind(target, {last: value}):
        target.clear()
        delete_origins(parent, origins)
    merge(target, {last: value}, origins, f"{parent}." if parent else "", origin)
    inherited.remove_nulls(raw, origins, f"override {override!r}")


def _check_stage_exists(key: str, raw: dict, override: str) -> None:
    """Without this check, a misspelt stage would be one more stage, completed by `stage_defaults`."""
    first, _, rest = key.partition(".")
    stage, below, _ = rest.partition(".")
    stages = raw.get("stages")
    if first == "stages" and below and isinstance(stages, dict) and stage not in stages:
        raise ValueError(
            f"override {override!r}: no stage {stage!r}{did_you_mean(stage, stages)}; "
            f"stages: {', '.join(map(str, stages))}"
        )


def _descend(target: dict | list, word: str, override: str) -> dict | list:
    """The mapping or list under `word`; an empty mapping is created where there is none."""
    inner: Any
    if isinstance(target, list):
        inner = target[_index(target, word, override)]
    else:
        if target.get(word) is None:
            target[word] = {}
        inner = target[word]
    if not isinstance(inner, dict | list):
        raise ValueError(f"override {override!r}: {word!r} is {inner!r}, which has no keys below it")
    return inner


def _index(target: list, word: str, override: str) -> int:
    if not word.isdecimal() or int(word) >= len(target):
        raise ValueError(
            f"override {override!r}: {word!r} must be a position in a list of {len(target)} (from 0)"
        )
    return int(word)


def _fill_stage_defaults(raw: dict, origins: dict[str, str]) -> dict[str, str]:
    """Fill each stage's missing keys from `stage_defaults`, so that every stage is complete by itself.

    Returns the keys that were filled (`stages.ance.steps`) with the keys that they come from.
    """
    sources: dict[str, str] = {}
    defaults = raw.pop("stage_defaults", {})
    if not isinstance(defaults, dict):
        raise ValueError(f"stage_defaults: expected a mapping of a stage's keys, got {defaults!r}")
    stages = raw.get("stages")
    if not isinstance(stages, dict):
        return sources
    for name, stage in stages.items():
        if isinstance(stage, dict):
            filled: dict = {}
            merge(filled, _copy(defaults), {}, "")
            stages[name] = merge(filled, stage, {}, "")
            for source in [k for k in origins if k.startswith("stage_defaults.")]:
                key = f"stages.{name}.{source.removeprefix('stage_defaults.')}"
                if key not in origins:
                    origins[key], sources[key] = origins[source], source
    return sources


def _drop_replaced_splits(raw: dict, splits: set[str]) -> None:
    """Remove settings under `final_evaluation` of `splits` that neither the data has nor the evaluation
    names: a base wrote them for its own data."""
    final_evaluation = mapping(raw, "final_evaluation")
    evaluated = final_evaluation.get("split")
    evaluated = evaluated if isinstance(evaluated, list) else [evaluated]
    keep = [*mapping(mapping(raw, "data"), "splits"), *evaluated]
    for key in PER_SPLIT_KEYS:
        by_split = final_evaluation.get(key)
        if isinstance(by_split, dict):
            final_evaluation[key] = {
                split: value for split, value in by_split.items() if split in keep or split not in splits
            }


def _check(raw: dict, path: Path, origins: dict[str, str], filled: Mapping[str, str]) -> Recipe:
    """The validated recipe. Raises ValueError with a line for each problem; one under `stage_defaults` is a
    problem of each stage."""
    try:
        return Recipe.model_validate(raw)
    except ValidationError as error:
        problems = [at_its_source(problem, filled) for problem in error.errors()]
        lines = dict.fromkeys(
            explain(problem, path, origins) + new_stage(problem, raw, origins, filled) for problem in problems
        )
        raise ValueError("\n".join([f"recipe {path} is not valid:", *lines])) from None


def read_component(package: str, value: Any, origin: str) -> Component:
    """Build the component that `value` describes, as in a recipe.

    Raises ValueError with each wrong key and its cure.
    """
    try:
        return TypeAdapter(Annotated[Any, component_of(package)]).validate_python(value)
    except ValidationError as error:
        raise _invalid(error, origin) from None


def read_settings[S: Settings](kind: type[S], values: Mapping[str, Any], origin: str) -> S:
    """Build settings from `values`. Raises ValueError with each wrong key and its cure."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _invalid(error, origin) from None


def read_options[S: Settings](kind: type[S], **values: Any) -> S:
    """Build settings from the values of command-line options of the same names.

    Raises ValueError with each wrong option, its value and what is expected.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = [in_words(problem) for problem in error.errors()]
        raise ValueError(
            "\n".join(f"--{key.replace('_', '-')}: {problem}" for key, problem in problems)
        ) from None


def _invalid(error: ValidationError, origin: str) -> ValueError:
    problems = [in_words(problem) for problem in error.errors()]
    lines = [f"  {key or origin}: {message}" for key, message in problems]
    return ValueError("\n".join([f"{origin} is not valid:", *lines]))
