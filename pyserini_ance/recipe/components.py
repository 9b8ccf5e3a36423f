"""Base classes of recipe settings, and the lookup of the component class behind each `kind`."""

import difflib
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetPydanticSchema,
    SerializationInfo,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

Key = tuple[str | int, ...]  # of a setting within others
NUMBER = re.compile(r"(?!.*(\bbool|Literal\[\w|\bdict|\btuple)).*\b(int|float)\b")  # of a number
WORDS = ("build", "initial")  # values that are neither a path nor a name


class SettingError(ValueError):
    """A setting of the recipe causes the error, during a run.

    needs_new_recipe: the cure changes the recipe, so the run cannot be resumed. Other errors may have it too.
    """

    needs_new_recipe = True


class Settings(BaseModel):
    """Frozen, validated configuration. Unknown keys are rejected; equal settings compare equal.

    The docstring below a field is its description in the recipe reference.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        coerce_numbers_to_str=True,  # a run may be called 7
    )

    # The fields that hold a path, or a name known elsewhere, as on the Hugging Face hub; and those whose
    # paths are relative to another field's, not to the working directory.
    names_or_paths: ClassVar[frozenset[str]] = frozenset()
    nested_paths: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def key_hint(cls, key: str) -> str:
        """` (...)` about an unknown key that belongs elsewhere; "" for others."""
        return ""

    @model_validator(mode="before")
    @classmethod
    def check_keys(cls, values: Any) -> Any:
        """Report every unknown key, with the keys that there are, and `true` for a number, all at once."""
        fields, problems = keys_of(cls), []
        for key, value in values.items() if isinstance(values, dict) else ():
            if key not in fields:
                hint = cls.key_hint(str(key)) or did_you_mean(str(key), sorted(fields))
                message = f"unknown key {str(key)!r}{hint}; keys here: {', '.join(sorted(fields))}"
            elif isinstance(value, bool) and NUMBER.match(str(fields[key].annotation)):
                message = "expected a number"
            else:
                continue
            problems.append(((str(key),), message, value))
        raise_problems(cls, problems)
        return values


def raise_problems(settings: type[Settings], problems: Iterable[tuple[Key, str, Any]]) -> None:
    """Raise ValidationError if there are problems: the key, message and value of each."""
    details = [
        InitErrorDetails(type=PydanticCustomError("problem", "{text}", {"text": text}), loc=key, input=value)
        for key, text, value in problems
    ]
    if details:
        raise ValidationError.from_exception_data(settings.__name__, details)


def absolute[T: Settings](settings: T) -> T:
    """The same settings with paths that do not depend on the working directory, as a run keeps them.

    A name that is also a file or folder here is one: libraries look for it there first.
    """
    made = {}
    for name, value in settings:
        if name in settings.names_or_paths and isinstance(value, str | Path) and value not in WORDS:
            path = Path(value).expanduser()
            made[name] = type(value)(path.absolute()) if path.exists() else value
        elif name not in settings.nested_paths:
            made[name] = _absolute(value)
    # What did not change does not become a setting that was given.
    return settings.model_copy(
        update={name: new for name, new in made.items() if new != getattr(settings, name)}
    )


def _absolute(value: Any) -> Any:
    if isinstance(value, Settings):
        return absolute(value)
    if isinstance(value, Path):
        return value.expanduser().absolute()
    if type(value) in (tuple, list):
        return type(value)(map(_absolute, value))
    if isinstance(value, dict):
        return {key: _absolute(inner) for key, inner in value.items()}
    return value


def expected(what: str, mapping: type[Settings] | None = None) -> WrapValidator:
    """The metadata of a field of several types: one error, `expected WHAT`, instead of one for each type.

    The errors of a mapping are those of `mapping`, each at its own key.
    """

    def validate(value: Any, of_type: ValidatorFunctionWrapHandler) -> Any:
        if mapping is not None and isinstance(value, dict):
            value = mapping.model_validate(value)
        try:
            return of_type(value)
        except ValidationError:
            raise ValueError(f"expected {what}") from None

    return WrapValidator(validate)


def keys_of(settings: type[Settings]) -> dict[str, FieldInfo]:
    """The fields of settings by their keys in a recipe; a key that is a Python keyword is an alias."""
    return {field.alias or name: field for name, field in settings.model_fields.items()}


class Component(Settings):
    """A piece of a method that a recipe chooses by `kind`; the class's fields are its configuration.

    `kind: ann` in a list of negatives is the component defined in `negatives/ann.py`. A file holds one kind,
    or several that its package lists in SHARED_FILES. A class from another package is named
    `package.module:Class` in recipes and leaves the field `kind` as it is here: an instance made from Python
    has this name without being given it.
    """

    kind: str
    """The name of a shipped component, or `package.module:Class` for a class of your own."""

    @model_validator(mode="before")
    @classmethod
    def name_own_class(cls, values: Any) -> Any:
        """Fill in the `kind` of a class of the user's own, as one that was given: dumps need it."""
        if isinstance(values, dict) and cls.model_fields["kind"].is_required():
            return {"kind": f"{cls.__module__}:{cls.__qualname__}", **values}
        return values


class MiningComponent(Component):
    """A source of negatives, a filter or a teacher; it needs what the components in its settings need."""

    @property
    def parts(self) -> list["MiningComponent"]:
        """The components among the settings, such as the filters of a source."""
        values = [value if isinstance(value, tuple) else (value,) for _, value in self]
        return [each for one in values for each in one if isinstance(each, MiningComponent)]

    @property
    def needs(self) -> frozenset[str]:
        """Inputs that the run must prepare: `bm25`, or `teachers.NAME` for a cross-encoder that it trains."""
        return frozenset().union(*(part.needs for part in self.parts))

    @property
    def promotes(self) -> bool:
        """Whether what a filter removes becomes a positive of its anchor."""
        return any(part.promotes for part in self.parts)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it and its parts read. Raises FileNotFoundError for a missing file."""
        return tuple(path for part in self.parts for path in part.files)

    def check_data(self, anchor_set: Any) -> None:
        """Raises ValueError, RuntimeError or FileNotFoundError, before training, if it does not apply to this
        data."""
        _ = self.files
        for part in self.parts:
            part.check_data(anchor_set)


# By recipe key: the package whose modules are the kinds of component, and the base classes of these; by name,
# as importing them imports torch.
COMPONENT_GROUPS = {
    "data": ("pyserini_ance.data.formats", "pyserini_ance.data.formats.format.Format"),
    "negatives": ("pyserini_ance.negatives", "pyserini_ance.negatives.source.Source"),
    "filters": ("pyserini_ance.negatives.filters", "pyserini_ance.negatives.filters.base.Filter"),
    "teacher": ("pyserini_ance.negatives.teachers", "pyserini_ance.negatives.teachers.base.Teacher"),
    "loss": (
        "pyserini_ance.trainer.losses",
        "pyserini_ance.trainer.losses.base.Loss",
        "pyserini_ance.trainer.losses.base.DistillationLoss",
        "pyserini_ance.trainer.losses.embed_distill.EmbedDistill",
    ),
    "regularizer": ("pyserini_ance.trainer.regularizers", "pyserini_ance.trainer.regularizers.Regularizer"),
}


@cache
def kinds(group: str) -> dict[str, str]:
    """{kind: module} of a group of components (a key of COMPONENT_GROUPS), sorted; imports no component."""
    package = importlib.import_module(COMPONENT_GROUPS[group][0])
    shared = getattr(package, "SHARED_FILES", {})
    others = {*getattr(package, "NOT_KINDS", ()), *shared.values()}
    own = {m.name: m.name for m in pkgutil.iter_modules(package.__path__) if m.name not in others}
    return dict(sorted({**own, **shared}.items()))


def component_class(group: str, kind: str) -> type[Component]:
    """The class of `kind`: a component of the group, or `package.module:Class` from elsewhere.

    Raises ValueError if there is no such kind (with the nearest name), and as `check_base`.
    """
    if ":" in kind:
        module_name, _, class_name = kind.partition(":")
        try:
            imported: type[Component] = getattr(importlib.import_module(module_name), class_name)
        except (ImportError, AttributeError) as error:
            cure = "type the command in the folder of the module, or add this folder to PYTHONPATH"
            raise ValueError(f"kind {kind!r} cannot be imported: {error}; {cure}") from error
        check_base(group, imported, f"kind {kind!r}")
        return imported
    files = kinds(group)
    if kind not in files:
        module_name, dot, name = kind.rpartition(".")
        hint = f" (a class of your own is module:Class: {module_name + ':' + name!r})" if dot else ""
        raise ValueError(
            f"unknown kind {kind!r} of {group}{hint or did_you_mean(kind, files)}; kinds: {', '.join(files)}"
        )
    module = importlib.import_module(f"{COMPONENT_GROUPS[group][0]}.{files[kind]}")
    defined = [
        c
        for c in vars(module).values()
        if isinstance(c, type) and issubclass(c, Component) and c.model_fields["kind"].default == kind
    ]
    assert len(defined) == 1, f"{module.__name__} must define exactly one Component of kind {kind}"
    return defined[0]


def check_base(group: str, found: Any, name: str) -> None:
    """Raise ValueError, naming `name`, if `found` is no class for `group`: one with its base class and all
    methods that this requires."""
    above = {f"{base.__module__}.{base.__qualname__}" for base in getattr(found, "__mro__", ())}
    needed = COMPONENT_GROUPS[group][1:]
    if above.isdisjoint(needed):
        raise ValueError(f"{name} cannot be a `{group}`: it is not a subclass of {' or '.join(needed)}")
    if missing := sorted(found.__abstractmethods__):
        raise ValueError(f"{name} lacks the method {', '.join(missing)}, which its base class requires")


def component_of(group: str) -> GetPydanticSchema:
    """The metadata of a recipe field that holds a component, as in `Annotated[Loss, component_of("loss")]`.

    Pydantic builds the component from a mapping with `kind`, or from the name of a kind alone; its class is
    imported then, and not before. Editors and type checkers see the annotated base class.
    """

    def build(value: Any) -> Component:
        if isinstance(value, Component):
            check_base(group, type(value), type(value).__name__)
            return value
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            raise ValueError(f"expected a mapping with `kind`, one of: {', '.join(kinds(group))}")
        return component_class(group, value["kind"]).model_validate(value)

    return _built(build, {"component": group})


def settings_of(module: str, name: str) -> GetPydanticSchema:
    """The metadata of a recipe field that holds settings of a class that is imported with the first value."""

    def build(value: Any) -> Settings:
        return getattr(importlib.import_module(module), name).model_validate(value)

    return _built(build, {"settings": name})


def _built(build: Callable[[Any], Settings], json_schema: dict[str, Any]) -> GetPydanticSchema:
    def dump(settings: Settings, info: SerializationInfo) -> dict[str, Any]:
        return settings.model_dump(mode="json", exclude_unset=info.exclude_unset)

    written = core_schema.plain_serializer_function_ser_schema(dump, info_arg=True)
    schema = core_schema.no_info_plain_validator_function(build, serialization=written)
    return GetPydanticSchema(lambda *_: schema, lambda *_: json_schema)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """` (did you mean 'NAME'?)` with the nearest of `names`; "" if none is near."""
    near = difflib.get_close_matches(word, list(names), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def similar_name(path: Path) -> str:
    """Like `did_you_mean`, for a path that does not exist: the nearest name in the same folder."""
    names = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    return did_you_mean(path.name, names)
