"""Print the recipe reference as Markdown, from the fields and docstrings of the recipe's models.

    python docs/hooks/recipe_reference.py

The site has it as docs/recipe-reference.md. A base class is documented once; a kind names those it extends.
"""

import importlib
import inspect
import json
from collections.abc import Iterator

from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.recipe.components import COMPONENT_GROUPS, Component, Settings, component_class, kinds
from pyserini_ance.recipe.models import Recipe

BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
HEAD = """# Recipe reference

Every key of a recipe, with its type and its default. `pyserini-ance train RECIPE --print` shows the values of
one recipe.
"""


def on_page_markdown(markdown: str, *, page, **_) -> str:
    return reference() if page.file.src_uri == "recipe-reference.md" else markdown


def reference() -> str:
    """The page: the recipe and the settings below it, then the kinds of each group of components."""
    lines, known = [HEAD], {Settings, Component}
    for top in (Recipe, EncoderConfig):
        for settings in nested(top, known):
            lines += section(settings, f"## {settings.__name__}")
    for group in COMPONENT_GROUPS:
        names = kinds(group)
        lines += [f"## Kinds of `{group}`", "", ", ".join(f"`{name}`" for name in names) + ".", ""]
        for name in names:
            for settings in nested(component_class(group, name), known):
                is_kind = settings is component_class(group, name)
                lines += section(
                    settings, f"### `{name}`" if is_kind else f"### {settings.__name__}", is_kind
                )
    return "\n".join(lines)


def nested(settings: type[Settings], known: set[type]) -> Iterator[type[Settings]]:
    """The bases of `settings`, the settings themselves, and those below them; `known` grows by them."""
    if settings in known:
        return
    known.add(settings)
    for base in bases(settings):
        yield from nested(base, known)
    yield settings
    for field in settings.model_fields.values():
        for below in classes_in(field.annotation):
            yield from nested(below, known)


def bases(settings: type[Settings]) -> list[type[Settings]]:
    above = [base for base in settings.__mro__[1:] if issubclass(base, Settings)]
    return [base for base in above if own_fields(base) and base not in (Settings, Component)]


def classes_in(annotation: object) -> Iterator[type[Settings]]:
    if (
        isinstance(annotation, type)
        and issubclass(annotation, Settings)
        and not issubclass(annotation, Component)
    ):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from classes_in(argument)


def own_fields(settings: type[Settings]) -> list[str]:
    """The fields that the class adds to those of its bases, without `kind`."""
    inherited = {
        name for base in settings.__mro__[1:] if issubclass(base, Settings) for name in base.model_fields
    }
    return [name for name in settings.model_fields if name not in inherited and name != "kind"]


def section(settings: type[Settings], heading: str, is_kind: bool = False) -> list[str]:
    module = inspect.getdoc(importlib.import_module(settings.__module__)) if is_kind else None
    texts = [text for text in (module, inspect.cleandoc(settings.__dict__.get("__doc__") or "")) if text]
    if above := [f"[{base.__name__}](#{base.__name__.lower()})" for base in bases(settings)]:
        texts.append(f"It also has the keys of {', '.join(above)}.")
    lines = [heading, "", *(line for text in texts for line in (text, ""))]
    properties = settings.model_json_schema()["properties"]
    fields = {name: settings.model_fields[name] for name in own_fields(settings)}
    rows = []
    for name, field in fields.items():
        key = field.alias or name
        meaning = " ".join((field.description or "").replace("|", "\\|").split())
        rows.append(f"| `{key}` | {in_words(properties[key])} | {default_of(field)} | {meaning} |")
    return [*lines, *(["| key | type | default | meaning |", "|---|---|---|---|", *rows, ""] if rows else [])]


def in_words(schema: dict) -> str:
    """The type of a JSON schema in words, with bounds; a component is a link to the kinds of its group."""
    if group := schema.get("component"):
        return f"[kind](#kinds-of-{group})"
    if name := schema.get("settings"):
        return f"[{name}](#{name.lower()})"
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if several := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(map(in_words, several)))
    if values := schema.get("enum") or [schema[key] for key in ("const",) if key in schema]:
        return " or ".join(f"`{value}`" for value in values)
    kind = {"null": "`null`", "boolean": "`true` or `false`"}.get(
        schema.get("type", "any"), schema.get("type", "any")
    )
    if kind == "array":
        return f"list of {in_words(schema.get('items') or schema['prefixItems'][0])}"
    if kind == "object":
        return f"mapping of names to {in_words(schema.get('additionalProperties', {}))}"
    return " ".join(
        [kind, " and ".join(f"{sign} {schema[key]}" for key, sign in BOUNDS.items() if key in schema)]
    ).strip()


def default_of(field) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Settings):
        value = value.model_dump(mode="json", exclude_defaults=True)
        return f"`{json.dumps(value)}`" if value else "its defaults"
    return f"`{json.dumps(value, default=str)}`"


if __name__ == "__main__":
    print(reference(), end="")
