"""Filters against false negatives: what a recipe lists under `filters:` of a source."""

NOT_KINDS = ("base",)
RANKS_AND_SCORES = ("absolute_margin", "max_score", "range_max", "range_min", "relative_margin")
SHARED_FILES = dict.fromkeys(RANKS_AND_SCORES, "ranks_and_scores")
SHARED_FILES |= dict.fromkeys(("answers", "duplicates"), "texts")
