"""Recipes: frozen models, their loading, and the parts they name. The room that reads YAML."""

from pyserini_ance.recipe.parts import Part, Settings, part_class

__all__ = ["Part", "Settings", "part_class"]
