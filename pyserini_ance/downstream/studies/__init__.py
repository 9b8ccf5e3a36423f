"""Studies of finished runs, one file each: the figures of the papers' analyses, without training again."""

# The studies, by the names of their files with `-` for `_`, and what each shows.
STUDIES = {
    "negative-overlap": "share of the training negatives that are the model's own top negatives",
    "gradient-norms": "gradient norm and its last-layer bound, by source of negatives",
    "score-tail": "scores of the first documents above the mean score of all documents",
}
NOT_STUDIES = ("figures", "studied_run")
