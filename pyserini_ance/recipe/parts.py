"""Parts: what a recipe names by `kind`, and where the class behind each kind is found."""

import difflib
import importlib
import pkgutil
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError


class Settings(BaseModel):
    """Frozen, checked configuration. Unknown keys are refused; equal settings compare equal."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def refuse_unknown_keys(cls, values: Any) -> Any:
        known = sorted(cls.model_fields)
        unknown = [key for key in values if key not in known] if isinstance(values, dict) else []
        if unknown:
            raise ValidationError.from_exception_data(cls.__name__, [_unknown_key(key, values[key], known) for key in unknown])
        return values


def _unknown_key(key: Any, value: Any, known: list[str]) -> InitErrorDetails:
    message = f"unknown key {str(key)!r}{did_you_mean(str(key), known)}; keys here: {', '.join(known)}"
    return InitErrorDetails(type=PydanticCustomError("unknown_key", "{message}", {"message": message}), loc=(str(key),), input=value)


class Part(Settings):
    """A piece of a method that a recipe chooses by `kind`; the class's fields are its configuration.

    One file holds one kind: `kind: ann` in a list of negatives is the Part in `negatives/ann.py`. A class of somebody
    else, named `package.module:Class` in recipes, leaves the field `kind` as it is here.
    """

    kind: str


ROOMS = {
    "data": "pyserini_ance.data.formats",
    "encoder": "pyserini_ance.encoders",
    "negatives": "pyserini_ance.negatives",
    "guards": "pyserini_ance.negatives.guards",
    "loss": "pyserini_ance.trainer.losses",
    "regularizer": "pyserini_ance.trainer.regularizers",
    "reader": "pyserini_ance.readers",
}


def kinds(room: str) -> list[str]:
    """The kinds that ship in a room, sorted, without importing any of them."""
    package = importlib.import_module(ROOMS[room])
    shared = getattr(package, "NOT_KINDS", ())
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.name not in shared)


def part_class(room: str, kind: str) -> type[Part]:
    """The class of `kind`: a file of the room, or `package.module:Class` of somebody else.

    Raises ValueError when there is no such kind (with the nearest names) or it is no Part.
    """
    if ":" in kind:
        module_name, _, class_name = kind.partition(":")
        try:
            found = getattr(importlib.import_module(module_name), class_name)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"kind {kind!r} cannot be imported: {error}") from error
        if not (isinstance(found, type) and issubclass(found, Part)):
            raise ValueError(f"kind {kind!r} is not a subclass of pyserini_ance.recipe.Part")
        return found
    known = kinds(room)
    if kind not in known:
        raise ValueError(f"unknown kind {kind!r} of {room}{did_you_mean(kind, known)}; kinds: {', '.join(known)}")
    module = importlib.import_module(f"{ROOMS[room]}.{kind}")
    own = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Part) and c.__module__ == module.__name__]
    assert len(own) == 1, f"{module.__name__} must define exactly one Part, has {own}"
    return own[0]


def did_you_mean(word: str, known) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def part_of(room: str, optional: bool = False) -> Any:
    """The type of a recipe field that holds a part of `room`, or, if `optional`, None; for use in an annotation."""

    def build(value: Any) -> Part | None:
        if isinstance(value, Part) or (optional and value is None):
            return value
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            raise ValueError(f"expected a mapping with `kind`, one of: {', '.join(kinds(room))}")
        return part_class(room, value["kind"]).model_validate(value)

    return Annotated[Any, PlainValidator(build), PlainSerializer(lambda part: part and part.model_dump(mode="json"), return_type=dict | None)]
