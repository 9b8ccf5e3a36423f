"""Recipes: frozen settings, loaded from YAML files, and the components that they choose by `kind`."""
