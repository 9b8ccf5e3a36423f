"""Whether a cross-encoder ranks better than the retriever that it shall teach, on dev queries."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.trec import Qrels, Run, best_first, read_run
from pyserini_ance.encoders.cross_encoder_model import record_text
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.evaluation.metrics import evaluate, per_query
from pyserini_ance.evaluation.significance import Difference, differences
from pyserini_ance.pipeline.preparation import tokenize
from pyserini_ance.pipeline.ranking_inputs import collection_with
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.dev_evaluation import as_qrels, as_run
from pyserini_ance.reports.reranking import Scorer, merge_reranked
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.vectors.faiss_library import FaissIndex, import_faiss
from pyserini_ance.vectors.search import exact_search

SHORTEST = 10  # hits, which the measures look at


def dev_split(recipe: Recipe) -> str:
    """The split of the last stage's dev evaluation. Raises ValueError if no stage has one."""
    evaluations = [stage.evaluate for stage in recipe.stages.values() if stage.evaluate]
    if not evaluations:
        raise ValueError("the recipe evaluates on no dev split; name one of its data: --split dev")
    return evaluations[-1].split[0]


@dataclass(frozen=True, eq=False)
class DevRanking:
    """The retriever's first hits for some queries of a split, with their judgments."""

    collection: Collection
    split: Split
    qrels: Qrels
    run: Run
    measures: list[Measure]

    @classmethod
    def of(
        cls,
        run: RunDir,
        recipe: Recipe,
        collection: Collection,
        name: str,
        hits: int,
        num_queries: int | None,
        seed: int,
        device: str,
    ) -> "DevRanking":
        """Read the final ranking of the split, or search the run's index for `num_queries` of its queries.

        Queries are drawn by `seed` (None: all). Raises ValueError for a split without judgments,
        FileNotFoundError if there is neither a ranking nor an index.
        """
        if name not in collection.splits:
            collection = collection_with(recipe, name)
        split = collection.split(name)
        if not split.is_judged:
            raise ValueError(f"split {name!r} has no judgments; pass another --split")
        rows = np.arange(len(split.queries))
        if num_queries is not None and num_queries < len(rows):
            rows = np.sort(
                random_stream("teacher dev queries", seed).choice(rows, num_queries, replace=False)
            )
        ids, hits = [split.queries.ids[row] for row in rows.tolist()], max(hits, SHORTEST)
        if run.final_run(name).exists():
            whole = read_run(run.final_run(name))
            ranking = {
                id: {document: whole[id][document] for document in best_first(whole[id])[:hits]}
                for id in ids
                if id in whole
            }
        else:
            scores, documents = _search(run, recipe, collection, split, rows, hits, device)
            ranking = as_run(collection, split, rows, documents, scores)
        threshold = recipe.data.relevance_threshold
        reciprocal_rank = "RR@10" if threshold == 1 else f"RR(rel={threshold})@10"
        measures = parse_measures([reciprocal_rank, "nDCG@10"])
        return cls(collection, split, as_qrels(collection, split, rows), ranking, measures)

    def rerank(self, scorer: Scorer, first: int) -> Run:
        """The ranking with the first hits of each query in the order of `scorer`'s scores."""
        tops = {query: best_first(hits)[:first] for query, hits in self.run.items()}
        queries, documents = self.split.queries, self.collection.documents
        pairs = [
            (queries.columns["text"][queries.rows[query]], record_text(documents[documents.rows[document]]))
            for query, top in tops.items()
            for document in top
        ]
        scores = np.split(scorer(pairs), np.cumsum([len(top) for top in tops.values()])[:-1])
        return {
            query: merge_reranked(self.run[query], of_query.tolist())
            for query, of_query in zip(tops, scores, strict=True)
        }

    def compare(self, reranked: Run, name: str) -> tuple[list[dict[str, Any]], Difference]:
        """The rows of a table, the retriever and `name`, and their difference in the last measure."""
        runs = {"retriever": self.run, name: reranked}
        rows = [{"ranking": label, **evaluate(self.qrels, run, self.measures)} for label, run in runs.items()]
        column = str(self.measures[-1])
        values = {
            label: np.array([one[column] for one in per_query(self.qrels, run, self.measures).values()])
            for label, run in runs.items()
        }
        return rows, differences({name: values[name]}, values["retriever"])[name]


def _search(
    run: RunDir,
    recipe: Recipe,
    collection: Collection,
    split: Split,
    rows: np.ndarray,
    hits: int,
    device: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Search the run's index with its model: scores (Q, k) and document rows (Q, k), as the final evaluation
    does."""
    index = _open_index(run.index / "index")
    # A view: a copy would double the memory.
    vectors = import_faiss().rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(index.ntotal, -1)
    queries = load_encoder(run.model, device).encode(split.queries.take(rows.tolist()), "query")
    hits = min(hits, len(collection.documents))
    passages = tokenize(recipe, collection).passages
    if passages is None:
        return exact_search(queries, vectors, hits, device=device)
    return passages.search(lambda asked, k: exact_search(asked, vectors, k, device=device), queries, hits)


def _open_index(path: Path) -> FaissIndex:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing, with the documents' vectors; restore it, or train the run again with this "
            "split in final_evaluation.split"
        )
    return import_faiss().read_index(str(path))
