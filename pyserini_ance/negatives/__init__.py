"""Tables of negatives, the sources that mine them, filters and teachers."""

NOT_KINDS = ("filters", "mined", "snapshot", "source", "table", "teachers")
SHARED_FILES = dict.fromkeys(("bm25", "ranking"), "rankings") | dict.fromkeys(("mix", "momentum"), "mix")
