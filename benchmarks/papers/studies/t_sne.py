"""Pictures of a test query by t-SNE: among documents, and among the queries that its document finds.

Sources: Xiong et al. 2021 (ANCE), arXiv:2007.00808, appendix A.5, Figures 10 and 11; Zhan et al. 2020 (LTRe),
arXiv:2010.10469, Figure 1; Li et al. 2021 (DANCE), Figure 3; van der Maaten and Hinton 2008, Journal of
Machine Learning Research 9.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from benchmarks.papers.studies.figures import Panel, lines_of, points
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun, first_negatives
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.data.trec import best_first, read_run
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.random_streams import random_stream

AXES = ("first t-SNE dimension", "second t-SNE dimension")
NEGATIVES, QUERIES, RANDOM = 10, 20, 30  # as in DANCE's Figure 3
SHOWN = 36  # characters of a title


def study(runs: Sequence[StudiedRun]) -> Findings:
    """Pictures of documents: a test query, its relevant documents, the first ten other documents of the model
    and of BM25 (if the run has ranked by it), and 30 random documents, in two dimensions. Runs with the same
    document vectors, as LTRe and the model it starts from, are in one picture, with the query of each.

    Pictures of queries: the query, its first relevant document, and the first 20 other queries that the model
    finds for this document; all runs are in one picture.

    The query is `--query`, else the first that has a relevant document. A document of several passages has
    their mean. Distances within a picture say something, those between two pictures nothing.
    """
    same_documents = _groups(runs, lambda run: (run.data.collection.digest, run.result.document_weights))
    same_queries = _groups(runs, lambda run: (run.data.collection.digest, run.result.encoder.dimension))
    pictures = [*map(_among_documents, same_documents), *map(_among_queries, same_queries)]
    panels = []
    for rows in pictures:
        title = f"{rows[0]['picture']}: {rows[0]['text']}"
        title = title if len(title) <= SHOWN else f"{title[: SHOWN - 1]}…"
        groups = lines_of(rows, "group", "x", "y")
        emphasized = [name for name in groups if not name.startswith(("negative", "random"))]
        panels.append(Panel(title, *AXES, points(groups, emphasized=emphasized)))
    rows = [row for of_picture in pictures for row in of_picture]
    keys = ("picture", "group", "id", "x", "y")
    shown = [{key: row[key] for key in keys} for row in rows if row["group"] != "random"]
    return Findings(rows, panels, shown)


def _groups(runs: Sequence[StudiedRun], key: Callable[[StudiedRun], Hashable]) -> list[list[StudiedRun]]:
    groups: dict[Hashable, list[StudiedRun]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.values())


def _among_documents(runs: Sequence[StudiedRun]) -> list[Row]:
    """The picture of runs with the same document vectors."""
    first, query = runs[0], _query(runs[0])
    queries, split = first.test_queries, first.test_queries.split
    documents, relevant = first.data.collection.documents, queries.known_positives.of(query).tolist()
    rankings = {
        _of("negative of the model", run, runs): path
        for run in runs
        if (path := run.run.ranking(run.last_stage, run.test_queries.name)).exists()
    }
    groups: dict[int, str] = dict.fromkeys(relevant, "relevant")
    for group, of_group in {**rankings, "negative of BM25": queries.bm25}.items():
        ranked = best_first(read_run(of_group).get(split.queries.ids[query], {})) if of_group else []
        rows = [row for id in ranked if (row := documents.rows[id]) not in relevant]
        for row in rows[:NEGATIVES]:
            groups.setdefault(row, group)
    rng = random_stream("study t-sne", first.settings.seed)
    for row in rng.permutation(len(documents))[: RANDOM + len(groups)].tolist():
        if sum(group == "random" for group in groups.values()) < RANDOM:
            groups.setdefault(row, "random")
    points = [_point(_of("query", run, runs), split.queries, query) for run in runs]
    points += [_point(group, documents, row) for row, group in groups.items()]
    asked = np.array([query])
    vectors = [run.result.encode_queries(queries.name, asked, precision="fp32") for run in runs]
    vectors.append(first.document_vectors(np.array(list(groups), np.int32)))
    picture = {"picture": ", ".join(run.name for run in runs)}
    return [picture | row for row in placed(points, np.concatenate(vectors), first.settings.seed)]


def _among_queries(runs: Sequence[StudiedRun]) -> list[Row]:
    """The picture of the queries that a relevant document of the query finds, by each run's model."""
    points: list[Row] = []
    vectors: list[np.ndarray] = []
    for run in runs:
        name, split = run.test_queries.name, run.test_queries.split
        query = _query(run)
        document = run.test_queries.known_positives.of(query)[:1]
        queries = run.result.encode_queries(name, np.arange(len(split.queries)), precision="fp32")
        of_documents = AnchorSet.of(run.data.collection, split, "document")
        depth = QUERIES + of_documents.most_excluded[1]
        hits = run.result.rank_for_documents(document, queries, depth)[1]
        negatives = first_negatives(of_documents, document, hits, QUERIES)[0]
        negatives = negatives[negatives != PADDING]
        for group, texts, rows, of_rows in (
            ("query", split.queries, np.array([query]), queries[[query]]),
            ("relevant document", run.data.collection.documents, document, run.document_vectors(document)),
            ("negative query", split.queries, negatives, queries[negatives]),
        ):
            points += [_point(_of(group, run, runs), texts, row) for row in rows.tolist()]
            vectors.append(of_rows)
    placed_points = placed(points, np.concatenate(vectors), runs[0].settings.seed)
    return [{"picture": "queries", **row} for row in placed_points]


def _query(run: StudiedRun) -> int:
    queries = run.test_queries
    if not len(queries.known_positives.anchors):
        raise NotKept(f"no query of split {queries.name} of {run.run.folder} has a relevant document")
    chosen = run.chosen_anchor(queries)
    return int(queries.known_positives.anchors[0]) if chosen is None else chosen


def _of(group: str, run: StudiedRun, runs: Sequence[StudiedRun]) -> str:
    """The name of a run's group of points in the picture of several runs."""
    return f"{group}: {run.name}" if len(runs) > 1 else group


def _point(group: str, texts: Texts, row: int) -> Row:
    text = " ".join(" ".join(texts[row].values()).split())
    return {"group": group, "id": texts.ids[row], "text": text[:100]}


def placed(rows: Sequence[Row], vectors: np.ndarray, seed: int) -> list[Row]:
    """The rows with x and y of their vectors (N, D) in two dimensions, by cosine distances; equal input gives
    equal output."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, metric="cosine", init="random", random_state=seed)
    places = tsne.fit_transform(vectors).tolist()
    return [{**row, "x": x, "y": y} for row, (x, y) in zip(rows, places, strict=True)]
