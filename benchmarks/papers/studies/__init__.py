"""Studies of finished runs, one file each: the figures of the papers' analyses, without training again."""

# The studies by the names of their files, with `-` for `_`: the titles of their pictures.
STUDIES = {
    "negative-overlap": "Negatives among the top negatives of the model in training",
    "gradient-norms": "Gradient norms by source of negatives",
    "score-tail": "Long tail of retrieval scores",
    "async-gap": "The gap between the negatives in use and the model",
    "timing": "Time by operation",
    "stage-hours": "Hours by stage",
    "index-costs": "Training by the index that it searches",
    "refresh-costs": "Quality by documents encoded",
    "t-sne": "A query among documents and among queries (t-SNE)",
    "cases": "Queries won and lost",
    "learning-curves": "Learning curves",
    "training-retrieval": "Retrieval for training queries",
    "distances": "Distances, alignment and uniformity",
    "recall-frequency": "Recall frequency and detaching distance",
    "forgetting": "Forgetting from refresh to refresh",
    "composition": "Composition of training negatives by first encounter, and their swing",
    "negative-swing": "Negatives between which a training query swings",
    "positive-neighbors": "Neighbours of the positive among the next negatives",
}
