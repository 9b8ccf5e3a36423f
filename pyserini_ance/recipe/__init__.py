"""Recipes: frozen settings, loaded from YAML files, and the components that they choose by `kind`."""

from pyserini_ance.recipe.components import Component, Settings, component_class

__all__ = ["Component", "Settings", "component_class"]
