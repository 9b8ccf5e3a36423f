"""Merge mappings of recipe keys, remove what is null, and remember which file set each value."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pyserini_ance.recipe.components import Component, component_class, did_you_mean

# Keys whose mappings merge even if their `kind` differs: it does not change the meaning of their other keys.
SAME_KEYS = {"lr_schedule"}
WHOLE = {"init_from"}  # keys whose mappings never merge: halves of two checkpoints are not a checkpoint


def merge(into: dict, new: Mapping, origins: dict[str, str], prefix: str, origin: str = "") -> dict:
    """Merge mappings deeply. A mapping of another `kind` replaces, since its keys mean something else; so
    does one of the keys in WHOLE."""
    for key, value in new.items():
        path, old = f"{prefix}{key}", into.get(key)
        if (
            isinstance(old, dict)
            and isinstance(value, dict)
            and key not in WHOLE
            and (key in SAME_KEYS or not differ_in_kind(old, value))
        ):
            merge(old, value, origins, f"{path}.", origin)
            continue
        into[key] = value
        delete_origins(path, origins)
        if origin:
            set_origin(value, path, origin, origins)
    return into


def differ_in_kind(old: Mapping, new: Mapping) -> bool:
    return "kind" in old and "kind" in new and old["kind"] != new["kind"]


def set_origin(value: Any, path: str, origin: str, origins: dict[str, str]) -> None:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            set_origin(inner, f"{path}.{key}", origin, origins)
    else:
        origins[path] = origin


def origin_of(key: str, origins: Mapping[str, str]) -> str | None:
    """The file that set a value; None if it is a default.

    Lists are set as a whole: their items have the list's origin.
    """
    while key and key not in origins:
        key = key.rpartition(".")[0]
    return origins.get(key)


def delete_origins(path: str, origins: dict[str, str]) -> None:
    for name in [n for n in origins if n == path or n.startswith(f"{path}.")]:
        del origins[name]


@dataclass(frozen=True)
class Inherited:
    """The stages, teachers and splits that recipe keys have before others are merged into them: null removes
    these."""

    stages: tuple[str, ...]
    teachers: tuple[str, ...]
    data_kind: Any
    splits: tuple[str, ...]

    @classmethod
    def of(cls, raw: dict) -> "Inherited":
        data = mapping(raw, "data")
        stages, teachers, splits = (
            tuple(mapping(of, key)) for of, key in ((raw, "stages"), (raw, "teachers"), (data, "splits"))
        )
        return cls(stages, teachers, data.get("kind"), splits)

    def remove_nulls(self, raw: dict, origins: dict[str, str], where: str) -> None:
        """Remove the stages, teachers and splits that are null. Raises ValueError for one that is not
        inherited: it may be misspelt."""
        cure = "A stage with the values of stage_defaults alone is {}"
        _remove_nulls(mapping(raw, "stages"), self.stages, "stages", origins, where, cure)
        cure_teacher = "A teacher needs `after` and `negatives`"
        _remove_nulls(mapping(raw, "teachers"), self.teachers, "teachers", origins, where, cure_teacher)
        data = mapping(raw, "data")
        splits = mapping(data, "splits")
        if None in splits.values():
            inherited = self.splits if data.get("kind") == self.data_kind else ()
            if not inherited:  # null is about the splits that the kind has by itself
                default = _default_splits(data.get("kind"))
                inherited, splits = tuple(default), {**default, **splits}
            cure = "A split that the data lacks is left out of `splits`"
            _remove_nulls(splits, inherited, "data.splits", origins, where, cure)
            data["splits"] = splits


def without_null_splits(data: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The settings of data alone, without the splits that are null; the others are those of its kind.

    Raises ValueError, naming `origin`, for one that the kind does not have by default.
    """
    raw = {
        "data": {**data, "splits": dict(mapping(dict(data), "splits"))} if "splits" in data else dict(data)
    }
    Inherited.of({}).remove_nulls(raw, {}, origin)
    return raw["data"]


def _remove_nulls(
    values: dict, inherited: Collection[str], key: str, origins: dict[str, str], where: str, cure: str
) -> None:
    noun = key.rpartition(".")[2].removesuffix("s")
    for name in [name for name, value in values.items() if value is None]:
        if name not in inherited:
            near, names = did_you_mean(str(name), inherited), ", ".join(inherited) or "none"
            raise ValueError(
                f"{where}: {key}.{name}: null removes an inherited {noun}, but no {noun} {name!r} is "
                f"inherited{near}; inherited: {names}. {cure}"
            )
        del values[name]
        delete_origins(f"{key}.{name}", origins)


def fill_default_splits(raw: dict) -> None:
    """Write out the default splits of the data's kind where no file sets `splits`, so that an override of one
    split leaves the others as they are."""
    data = mapping(raw, "data")
    if "splits" not in data and (default := _default_splits(data.get("kind"))):
        data["splits"] = default


def _default_splits(kind: Any) -> dict[str, Any]:
    return default_splits(component_class("data", kind)) if isinstance(kind, str) else {}


def default_splits(data: type[Component]) -> dict[str, Any]:
    """The splits that data of this class has unless they are set."""
    field = data.model_fields.get("splits")
    default = field.get_default(call_default_factory=True) if field and not field.is_required() else {}
    return {name: str(value) for name, value in default.items()}


def mapping(raw: dict, key: str) -> dict:
    """The mapping under `key`; an empty one if there is none.

    Validation reports a value of another type later.
    """
    return raw[key] if isinstance(raw.get(key), dict) else {}
