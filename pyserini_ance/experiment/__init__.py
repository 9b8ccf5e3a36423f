"""The main job, from a recipe to a Pyserini run: what the `train` command calls."""
