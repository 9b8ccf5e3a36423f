"""Teachers, one file a kind: what a recipe names under `teacher:` of a term."""

NOT_KINDS = ("base",)
