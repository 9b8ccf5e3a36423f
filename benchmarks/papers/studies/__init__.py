"""Studies of finished runs, one file each: the figures of the papers' analyses, without training again."""

# The studies, by the names of their files with `-` for `_`, and what each shows.
STUDIES = {
    "negative-overlap": "share of each source's negatives that are the model's own top negatives",
    "gradient-norms": "gradient norm and its last-layer bound, by source of negatives",
    "score-tail": "scores of the first documents above the mean score of all documents",
    "async-gap": "how the negatives in use age while the model trains on",
    "timing": "seconds by operation",
    "stage-hours": "hours by stage, and of a refresh",
    "index-costs": "size, quality and hours of training by its index, and the speed-up",
    "t-sne": "a query among its positives and negatives, and among other queries",
    "cases": "the queries won and lost most, with the first documents",
    "learning-curves": "loss, dev measure, and what each step's search retrieved",
    "training-retrieval": "what each kept checkpoint retrieves for training queries",
    "index-matrix": "the index searched in training against the one of the evaluation",
    "distances": "distances of pairs, alignment and uniformity",
    "recall-frequency": "how often documents and queries are recalled, and how well they rank",
    "forgetting": "training queries that rank worse after a refresh than before",
    "composition": "negatives by the generation that first had them, and their swing",
    "negative-swing": "two classes of negatives between which a training query swings",
    "positive-neighbors": "share of the next negatives that are neighbours of the positive",
}
