"""Teachers: what a recipe names under `teacher:` of a term."""

NOT_KINDS = ("base",)
SHARED_FILES = dict.fromkeys(("bm25", "ranking"), "rankings") | dict.fromkeys(("hybrid", "student"), "hybrid")
