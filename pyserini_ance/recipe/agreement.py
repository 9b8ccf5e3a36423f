"""Agreement: what the stages of a recipe ask of one another and of its other parts. Raises ValueError naming the key and the cure."""

from itertools import pairwise
from typing import TYPE_CHECKING

from pyserini_ance.recipe.parts import did_you_mean
from pyserini_ance.recipe.stage import Stage, Term
from pyserini_ance.recipe.test import OF_SPLITS

if TYPE_CHECKING:
    from pyserini_ance.recipe.models import Recipe


def check(recipe: "Recipe") -> None:
    _kept_moments_fit(recipe.stages)
    _batches_divide(recipe)
    _passages_have_a_vector(recipe)
    _bm25_ranks_enough(recipe)
    _former_stages_left_something(recipe)
    _measured_splits_are_known(recipe)
    _reranked_documents_are_ranked(recipe)


def _kept_moments_fit(stages: dict[str, Stage]) -> None:
    name, first = next(iter(stages.items()))
    if first.keep_optimizer:
        raise ValueError(f"stages.{name} is the first stage: there is no optimizer to keep")
    for (before, former), (name, stage) in pairwise(stages.items()):
        if not stage.keep_optimizer:
            continue
        kind, kept = stage.optimizer.kind, former.optimizer.kind
        if kind != kept:
            raise ValueError(f"stages.{name}.keep_optimizer: its optimizer is {kind}, that of stages.{before} is {kept}; use one kind for both")
        if stage.train != former.train:
            raise ValueError(f"stages.{name} trains other towers than the stage before: there are no moments to keep; drop keep_optimizer")


def _batches_divide(recipe: "Recipe") -> None:
    parts = len(recipe.train_split.splits)
    for name, stage in recipe.stages.items():
        if recipe.train_split.mixing == "even" and stage.batch_queries % parts:
            raise ValueError(
                f"stages.{name}.batch_queries is {stage.batch_queries}, but train_split.mixing: even draws as many queries of each of "
                f"{parts} splits; use a multiple of {parts}, or mixing: concatenated"
            )


def _passages_have_a_vector(recipe: "Recipe") -> None:
    passages = recipe.encoder.tokenization.document.passages
    terms = [term for stage in recipe.stages.values() for term in stage.terms.values()]
    takes_one = ["a regularizer" for term in terms if term.regularizer is not None]
    takes_one += [f"a `{leaf.kind}` source" for term in terms if term.anchor == "query" for leaf in term.leaves if leaf.asks_positives]
    if passages > 1 and takes_one:
        raise ValueError(
            f"{takes_one[0]} takes a document for one vector, but encoder.tokenization.document.passages is {passages}; use passages: 1 (FirstP)"
        )


def _bm25_ranks_enough(recipe: "Recipe") -> None:
    for source in (leaf for stage in recipe.stages.values() for leaf in stage.leaves if "bm25" in leaf.needs):
        if recipe.bm25 is None:
            raise ValueError("a `run` source needs BM25, but `bm25: null`; name a run file in the source or configure `bm25:`")
        depth = source.depth + source.guarded_depth
        if depth > recipe.bm25.hits:
            looks = f"with its guards looks at {depth} documents" if source.guards else f"has depth {depth}"
            raise ValueError(f"a `run` source {looks}, but bm25.hits is {recipe.bm25.hits}; set bm25.hits={depth}")


def _measured_splits_are_known(recipe: "Recipe") -> None:
    """Also those that are not tested: a misspelt one would be left out silently."""
    of_data, test = getattr(recipe.data, "splits", None), recipe.test
    known = None if of_data is None else dict.fromkeys([*of_data, recipe.train_split.name])
    for key in OF_SPLITS:
        of_splits = getattr(test, key)
        for split in of_splits if isinstance(of_splits, dict) and known is not None else ():
            if split not in known:
                others = ", ".join(name for name in test.split if name in known)
                cure = f"; add it there, or test on others: test.split=[{others}]" if split in test.split else ""
                raise ValueError(f"test.{key} names split {split!r}{did_you_mean(split, known)}; splits of `data`: {', '.join(known)}{cure}")


def _reranked_documents_are_ranked(recipe: "Recipe") -> None:
    for split, rerank in recipe.test.reranked.items():
        if rerank.file is None and recipe.bm25 is None:
            raise ValueError(f"test.rerank.{split} is of BM25's ranking, but `bm25: null`; name a `file`, or configure `bm25:`")
        if rerank.file is None and rerank.hits > recipe.test.hits:
            raise ValueError(
                f"test.rerank.{split}.hits is {rerank.hits}, but BM25 ranks {recipe.test.hits} documents (test.hits); set test.hits={rerank.hits}"
            )


def _former_stages_left_something(recipe: "Recipe") -> None:
    for name, stage in recipe.stages.items():
        before = recipe.stage_before(name)
        if before is None and stage.mines_with_previous:
            raise ValueError(f"stages.{name}.refresh.first_with: previous, but no stage comes before it; leave it out")
        for of_term, term in stage.terms.items():
            if any(leaf.takes_over for leaf in term.leaves):
                _left_tables(f"stages.{name}.terms.{of_term}.negatives", of_term, term, before and recipe.stages[before])


def _left_tables(key: str, name: str, term: Term, before: Stage | None) -> None:
    if before is None:
        raise ValueError(f"{key}: momentum takes over the negatives of the stage before, but this is the first; leave the source out here")
    former = before.terms.get(name)
    if former is None or former.anchor != term.anchor or not any(source.has_table for source in former.negatives):
        raise ValueError(
            f"{key}: momentum takes over the tables of the same term in the stage before, which has no term {name!r} with `anchor: {term.anchor}` "
            f"and a source that is mined (its terms: {', '.join(before.terms)}); name the terms alike, or leave the source out"
        )
    if before.refresh and before.refresh.chunks > 1 and any(source.refreshed for source in former.negatives):
        raise ValueError(
            f"{key}: momentum takes over tables of all queries, but the stage before ends with those of one of {before.refresh.chunks} parts; "
            "leave refresh.chunks out there"
        )
