"""A picture of a test query with its positives and negatives, by t-SNE.

Sources: Xiong et al. 2021 (ANCE), arXiv:2007.00808, appendix A.5, Figures 10 and 11; Li et al. 2021 (DANCE),
Figure 3; van der Maaten and Hinton 2008, Journal of Machine Learning Research 9.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.papers.studies.figures import Panel, lines_of, points
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun
from pyserini_ance.data.trec import best_first, read_run
from pyserini_ance.evaluation.tables import BM25
from pyserini_ance.random_streams import random_stream

TITLE = "A query among documents (t-SNE)"
NEGATIVES, RANDOM = 10, 30  # as in DANCE's Figure 3


def study(runs: Sequence[StudiedRun]) -> Findings:
    """The vectors of a test query, its relevant documents, the first ten other documents of the model and of
    BM25 (if the run has ranked by it), and 30 random documents, in two dimensions.

    The query is `--query`, else the first that has a relevant document. A document of several passages has
    their mean. Distances within a picture say something, those between two pictures nothing.
    """
    rows: list[Row] = []
    panels = []
    for run in runs:
        own = _rows(run)
        rows += own
        text = own[0]["text"]
        title = f"{run.name}: {text if len(text) <= 36 else text[:35] + '…'}"
        groups = points(lines_of(own, "group", "x", "y"), emphasized=2)
        panels.append(Panel(title, "first t-SNE dimension", "second t-SNE dimension", groups))
    keys = ("run", "group", "id", "x", "y")
    shown = [{key: row[key] for key in keys} for row in rows if row["group"] != "random"]
    return Findings(rows, panels, shown)


def _rows(run: StudiedRun) -> list[Row]:
    split = run.recipe.final_evaluation.split[0]
    test, documents = run.data.collection.split(split), run.data.collection.documents
    anchors = test.known_positives("query").anchors
    if not len(anchors):
        raise NotKept(f"no query of split {split} of {run.run.folder} has a relevant document")
    chosen_query = run.chosen_anchor(split)
    query = int(anchors[0]) if chosen_query is None else chosen_query
    relevant = test.qrels.relevant(query).tolist()
    groups: dict[int, str] = dict.fromkeys(relevant, "relevant")
    query_id = test.queries.ids[query]
    for group, path in (
        ("negative of the model", run.run.ranking(run.last_stage, split)),
        ("negative of BM25", run.run.ranking(BM25, split)),
    ):
        if path.exists():
            ranked = best_first(read_run(path).get(query_id, {}))
            rows = [row for id in ranked if (row := documents.rows[id]) not in relevant]
            for row in rows[:NEGATIVES]:
                groups.setdefault(row, group)
    rng = random_stream("study t-sne", run.settings.seed)
    for row in rng.permutation(len(documents))[: RANDOM + len(groups)].tolist():
        if sum(group == "random" for group in groups.values()) < RANDOM:
            groups.setdefault(row, "random")
    chosen = np.array(list(groups), np.int32)
    vectors = run.document_vectors(chosen)
    own = run.result.encode_queries(split, np.array([query]), precision="fp32")
    places = embed(np.concatenate([own, vectors]), run.settings.seed)
    texts = [test.queries.columns["text"][query], *(" ".join(documents[int(row)].values()) for row in chosen)]
    names = [(query_id, "query"), *((documents.ids[row], groups[row]) for row in groups)]
    return [
        {
            "run": run.name,
            "group": group,
            "id": id,
            "x": float(x),
            "y": float(y),
            "text": " ".join(text.split())[:100],
        }
        for (id, group), (x, y), text in zip(names, places, texts, strict=True)
    ]


def embed(vectors: np.ndarray, seed: int) -> np.ndarray:
    """(N, 2) the vectors (N, D) in two dimensions, with cosine distances; equal input gives equal output."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, metric="cosine", init="random", random_state=seed)
    return tsne.fit_transform(vectors)
