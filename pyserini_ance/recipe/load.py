"""Find and load recipes: files that extend one another, dotted overrides, and errors that name the key."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from pyserini_ance.recipe.components import (
    Component,
    Settings,
    component_class,
    component_of,
    did_you_mean,
    similar_name,
)
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.yaml_text import copy_of, read_argument, read_yaml, to_yaml

PACKAGE = Path(__file__).resolve().parents[1]
# A wheel has the folder inside the package (setup.py: package_dir), a checkout next to it.
SHIPPED = PACKAGE / "recipes" if (PACKAGE / "recipes").is_dir() else PACKAGE.parent / "recipes"
GRIDS = "_grids"
EXAMPLE = "demo/ance"


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe, given its path or a shipped name such as `demo/ance`.

    Raises FileNotFoundError, with a similar name if there is one.
    """
    if Path(name).is_file():
        return Path(name)
    recipe = str(name).removesuffix(".yaml")
    path = SHIPPED / f"{recipe}.yaml"
    if not path.is_file():
        near = did_you_mean(recipe, _files()) or similar_name(Path(name))
        raise FileNotFoundError(
            f"no recipe {str(name)!r}: neither a file nor a recipe in {SHIPPED}{near}; expected a file, or a "
            f"name such as {EXAMPLE}"
        )
    return path


def shipped() -> list[str]:
    """The names of all shipped recipes, sorted.

    Files and folders that begin with `_` only serve recipes to extend.
    """
    return [name for name in _files() if not any(word.startswith("_") for word in name.split("/"))]


def _files() -> list[str]:
    """The names of all files below SHIPPED but grids, sorted."""
    names = (path.relative_to(SHIPPED).with_suffix("") for path in SHIPPED.rglob("*.yaml"))
    return sorted(name.as_posix() for name in names if name.parts[0] != GRIDS)


def find_grid(name: str) -> Path:
    """The file of a grid, given its path or a shipped name such as `ance-passages`.

    Raises FileNotFoundError.
    """
    if Path(name).is_file():
        return Path(name)
    grids = sorted(path.stem for path in (SHIPPED / GRIDS).glob("*.yaml"))
    if name.removesuffix(".yaml") not in grids:
        raise FileNotFoundError(
            f"no grid {name!r}: neither key=value,value nor a file nor a shipped "
            f"grid{did_you_mean(name, grids)}; grids: {', '.join(grids)}"
        )
    return SHIPPED / GRIDS / f"{name.removesuffix('.yaml')}.yaml"


# Keys whose mappings merge even if their `kind` differs: it does not change the meaning of their other keys.
SAME_KEYS = {"lr_schedule"}
WHOLE = {"init_from"}  # keys whose mappings never merge: halves of two checkpoints are not a checkpoint
# Mappings from which null removes a name.
NULLABLE = (("stages",), ("teachers",), ("data", "splits"), ("final_evaluation", "rerank"))
# `expect` holds if overrides change nothing but these, and paths of data: chance, machine, what is shown.
KEEPS_EXPECT = (
    *("name", "expect", "seed", "device", "threads", "precision", "cache", "log_with"),
    *("shard", "encoding", "refresher", "save_total_limit", "bm25.index"),
    *("final_evaluation.split", "final_evaluation.measures", "final_evaluation.query_measures"),
    *("final_evaluation.rows", "final_evaluation.precision", "final_evaluation.indexes"),
)
SHOWN_CHARACTERS = 200
SHOWN = 3  # differing keys in a sentence
ABSENT = object()


def load(name: str | Path, *overrides: str) -> Recipe:
    """Load a recipe by name or path and apply `dotted.key=value` overrides.

    `extends:` names files in the same folder (or any recipe); mappings merge, anything else replaces, and
    null removes an inherited stage, teacher, split or ranking to rerank. `stage_defaults:` gives defaults to
    each stage. `expect` is not inherited, and overrides of other keys than KEEPS_EXPECT drop it.
    Raises ValueError naming key and value, and the files and overrides that were merged.
    """
    path = find_recipe(str(name))
    files: list[Path] = []
    raw = _read_chain(path, files, ())
    in_file = copy_of(raw)
    for override in overrides:
        _apply(raw, override)
    empty: dict = {"bm25": {}, "final_evaluation": {}}
    changed = [key for key, *_ in differences(empty | in_file, empty | raw)]
    shown = f"{path.resolve().parent.name}/{path.stem}".encode(errors="surrogateescape")
    raw.setdefault("name", shown.decode(errors="replace"))
    defaults = raw.pop("stage_defaults", {})
    if not isinstance(defaults, dict):
        raise ValueError(f"stage_defaults: expected a mapping of a stage's keys, got {defaults!r}")
    stages = raw["stages"] if isinstance(raw.get("stages"), dict) else {}
    for stage_name, stage in stages.items():  # every stage is complete by itself
        if isinstance(stage, dict):
            stages[stage_name] = merge(copy_of(defaults), stage)
    _check_effect([one for one in overrides if one.startswith("stage_defaults")], stages)
    bases = f" (extends {', '.join(map(str, files[:-1]))})" if len(files) > 1 else ""
    overridden = f", with {' '.join(overrides)}" if overrides else ""
    with _explained(f"recipe {path}", bases + overridden):
        recipe = Recipe.model_validate(raw)
    if not all(key.startswith(KEEPS_EXPECT) or _is_path_of_data(recipe, key) for key in changed):
        recipe = recipe.model_copy(update={"expect": {}})
    vars(recipe)["file"] = path.resolve()  # a cached property, not a setting
    return recipe


def _is_path_of_data(recipe: Recipe, key: str) -> bool:
    value: Any = recipe
    for word in key.split("."):
        value = value.get(word) if isinstance(value, dict) else getattr(value, word, None)
    return key.startswith("data.") and isinstance(value, Path)


def dump(recipe: Recipe) -> str:
    """The whole recipe as YAML, every value written out; loading it gives an equal recipe."""
    return to_yaml(recipe.model_dump(mode="json"), width=120)


def _read_chain(path: Path, files: list[Path], above: tuple[Path, ...]) -> dict:
    """The file, merged into the files that it extends. Adds every file to `files`."""
    if path.resolve() in above:
        raise ValueError(
            f"recipes extend one another in a circle: {' -> '.join(map(str, (*above, path.resolve())))}"
        )
    own = read_yaml(path.read_bytes(), str(path))
    if not isinstance(own, dict):
        raise ValueError(f"{path}: expected a mapping of recipe keys, got {type(own).__name__}")
    names = own.pop("extends", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: extends: expected the name of a recipe or a list of them, got {names!r}")
    merged: dict = {}
    for name in names:
        sibling = path.parent / f"{name.removesuffix('.yaml')}.yaml"
        try:
            base = sibling if sibling.exists() else find_recipe(name)
        except FileNotFoundError as error:
            near = did_you_mean(name, (other.stem for other in path.parent.glob("*.yaml")))
            raise FileNotFoundError(f"{path}: extends: {error}{near}") from None
        merge(merged, _read_chain(base, files, (*above, path.resolve())))
    merged.pop("expect", None)  # the scores of another recipe
    files.append(path)
    return merge(merged, own, str(path))


def merge(into: dict, new: Mapping, where: str = "", path: tuple[str, ...] = ()) -> dict:
    """Merge mappings deeply. A mapping of another `kind` replaces, since its keys mean something else; so
    does one of the keys in WHOLE.

    Null removes a name from the mappings of NULLABLE, the default splits of a kind of data included. Raises
    ValueError, naming `where`, for one that is not there: it may be misspelt.
    """
    for key, value in new.items():
        old = into.get(key)
        if value is None and path in NULLABLE:
            if key not in into:
                raise ValueError(
                    f"{where}: {'.'.join(path)}.{key}: null removes an inherited name, but {key!r} is not "
                    f"inherited{did_you_mean(str(key), into)}; inherited: {', '.join(into) or 'none'}"
                )
            del into[key]
        elif isinstance(value, dict):
            is_new = key in WHOLE or (key not in SAME_KEYS and _differ_in_kind(old, value))
            old = old if isinstance(old, dict) and not is_new else None
            if old is None and path == ("data",) and key == "splits" and None in value.values():
                old = default_splits(new.get("kind", into.get("kind")))
            into[key] = merge({} if old is None else old, value, where, (*path, key))
        else:
            into[key] = value
    return into


def _check_effect(overrides: Sequence[str], stages: Mapping[str, Any]) -> None:
    """Raise ValueError if no stage has a key as the overrides of `stage_defaults` set it."""
    otherwise = []
    for stage in stages.values() if overrides else ():
        own = {"stage_defaults": copy_of(stage)}
        try:
            for override in overrides:
                _apply(own, override)
        except ValueError:  # the stage has something else there; others may not
            return
        otherwise.append({key for key, *_ in differences(stage, own["stage_defaults"])})
    if lost := sorted(set.intersection(*otherwise)) if otherwise else []:
        own_keys = ", ".join(f"stages.{name}.{key}" for key in lost for name in stages)
        set_ones = ", ".join(f"stage_defaults.{key}" for key in lost)
        raise ValueError(f"{set_ones} has no effect: each stage sets this key itself; override {own_keys}")


def _differ_in_kind(old: Any, new: Mapping) -> bool:
    return isinstance(old, dict) and "kind" in old and "kind" in new and old["kind"] != new["kind"]


def default_splits(kind: Any) -> dict[str, Any]:
    """The splits that data of this kind has unless they are set."""
    field = component_class("data", kind).model_fields.get("splits") if isinstance(kind, str) else None
    default = field.get_default(call_default_factory=True) if field and not field.is_required() else {}
    return {name: str(value) for name, value in default.items()}


def _apply(raw: dict, override: str) -> None:
    where = f"override {override!r}"
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ValueError(f"{where}: expected dotted.key=value, for example stages.ance.steps=500")
    value = read_argument(text, where)
    *parents, last = key.split(".")
    target: Any = raw
    for depth, word in enumerate(parents):
        if isinstance(target, dict) and target.get(word) is None:
            # A misspelt stage would be one more stage, completed by `stage_defaults`.
            if depth == 1 and parents[0] == "stages":
                near = did_you_mean(word, target)
                raise ValueError(f"{where}: no stage {word!r}{near}; stages: {', '.join(map(str, target))}")
            # Default splits are written out, so that an override of one leaves the others as they are.
            target[word] = default_splits(target.get("kind")) if parents == ["data", "splits"] else {}
        target = target[_index(target, word, where) if isinstance(target, list) else word]
        if not isinstance(target, dict | list):
            raise ValueError(f"{where}: {word!r} is {target!r}, which has no keys below it")
    if isinstance(target, list):
        target[_index(target, last, where)] = value
        return
    if not SAME_KEYS.intersection(parents[-1:]) and _differ_in_kind(target, {last: value}):
        target.clear()
    merge(target, {last: value}, where, tuple(parents))


def _index(target: list, word: str, where: str) -> int:
    if not word.isdecimal() or int(word) >= len(target):
        raise ValueError(f"{where}: {word!r} must be a position in a list of {len(target)} (from 0)")
    return int(word)


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


def read_component(package: str, value: Any, origin: str) -> Component:
    """Build the component that `value` describes, as in a recipe.

    Raises ValueError with each wrong key and its cure.
    """
    with _explained(origin):
        return TypeAdapter(Annotated[Any, component_of(package)]).validate_python(value)


def read_settings[S: Settings](kind: type[S], values: Mapping[str, Any], origin: str) -> S:
    """Build settings from `values`. Raises ValueError with each wrong key and its cure."""
    with _explained(origin):
        return kind.model_validate(values)


@contextmanager
def _explained(origin: str, merged: str = "") -> Iterator[None]:
    """Turn pydantic's errors into one ValueError: a line for each key, its problem and value."""
    try:
        yield
    except ValidationError as error:
        lines = [f"{origin}{merged} is not valid:"]
        for problem in error.errors():
            # "[key]" is pydantic's mark of a mapping's key that is wrong itself
            key = ".".join(str(word) for word in problem["loc"] if word != "[key]")
            line = f"  {key or origin}: {problem['msg'].removeprefix('Value error, ')}"
            if not isinstance(problem["input"], dict):  # on one line and cut, even if it is a DataFrame
                text = " ".join(repr(problem["input"]).splitlines())
                line += f", got {text[:SHOWN_CHARACTERS]}{'...' * (len(text) > SHOWN_CHARACTERS)}"
            lines.append(line)
        raise ValueError("\n".join(lines)) from None
