"""Sources that filter ranked candidates: mining, the rule of `top_k: auto`, and where positives rank."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from pyserini_ance.data.answer_matching import Tokens, contain_answers, read_answers
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.filters import base as filtering
from pyserini_ance.negatives.filters.base import KNOWN_POSITIVES, PROMOTED, Candidates, Filter
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import TableSource
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.recipe.components import component_of, expected

AUTO = "auto"
LEAST, MOST = 20, 200
MOST_COPIES = 100  # of positives; a page that was crawled 10,000 times must not make every search so deep
PAPERS_CANDIDATES = 8_800_000  # passages of MS MARCO, from whose top 200 the papers sample


class MinedSource(TableSource):
    """A source that retrieves its own ranked candidates and filters them.

    scores_positives: the source's scores are also those of an anchor's positives, as the margin filters and
        `ambiguous` need them.
    """

    filters: tuple[Annotated[Filter, component_of("filters")], ...] = ()
    """The filters against false negatives. Known positives are always removed."""
    oversample: NonNegativeInt = 100
    """The number of candidates retrieved beyond `top_k` if there are filters, to replace what they remove."""
    sampling_strategy: Literal["random", "top", "ambiguous"] = "random"
    """How `num_negatives` of an anchor's candidates are drawn: at random, the top-ranked ones, or those that
    score about as high as the positive (`ambiguous`, with `a`)."""
    a: PositiveFloat = 0.5
    """With `ambiguous`: a candidate d- is drawn in proportion to exp(-a (s(q, d-) - s(q, d+))^2). Its unit is
    1 / score^2: cosines need a greater value, such as 100, to differ from random draws."""
    scores_positives: ClassVar[bool] = False

    @model_validator(mode="after")
    def check_draws_and_filters(self) -> "MinedSource":
        needing = [filter.kind for filter in self.filters if filter.needs_positive_scores]
        no_score = f"compares scores with the positive's, but {self.kind} gives positives no score"
        if needing and not self.scores_positives:
            raise ValueError(f"filter {needing[0]} {no_score}; remove the filter")
        if self.sampling_strategy == "ambiguous" and not self.scores_positives:
            raise ValueError(f"sampling_strategy: ambiguous {no_score}; use random or top")
        chosen = f"sampling_strategy is {self.sampling_strategy}"
        if self.rolling and self.sampling_strategy != "random":
            raise ValueError(f"rolling draws in a random order, but {chosen}; remove one of them")
        if self.a != type(self).model_fields["a"].default and self.sampling_strategy != "ambiguous":
            raise ValueError(f"a is a setting of sampling_strategy: ambiguous, but {chosen}; remove it")
        return self

    @property
    def extra_for_filters(self) -> int:
        """The number of candidates to retrieve beyond `top_k` because filters remove some."""
        return sum(filter.extra_candidates for filter in self.filters) + bool(self.filters) * self.oversample

    def extra_candidates(self, anchor_set: AnchorSet) -> int:
        """The number of candidates to retrieve beyond `top_k`, to replace positives and filtered ones."""
        known, all_excluded = int(anchor_set.known_positives.counts.max()), anchor_set.most_excluded[1]
        return min(all_excluded, known + MOST_COPIES) + self.extra_for_filters

    def table_of(self, candidates: Candidates, top_k: int) -> NegativeTable:
        """The first `top_k` candidates of each anchor that are not known positives and pass all filters."""
        anchor_set = candidates.anchor_set
        masks = filtering.filter_masks(candidates, self.filters, top_k)
        rows, scores, dropped = filtering.apply_masks(candidates.rows, candidates.scores, masks, top_k)
        promoted = None
        if PROMOTED in masks:
            positions, columns = np.nonzero(masks[PROMOTED] & ~masks[KNOWN_POSITIVES])
            pairs = anchor_set.anchors[positions], candidates.rows[positions, columns]
            promoted = np.unique(np.stack(pairs, axis=1).astype(np.int32), axis=0)
        has_positives = candidates.score_positives is not None
        return NegativeTable(
            anchor_set.anchor,
            anchor_set.candidate,
            anchor_set.anchors,
            rows,
            scores,
            source=self.kind,
            dropped={name: count for name, count in dropped.items() if name != PROMOTED},
            promoted=promoted,
            positive_scores=candidates.positive_scores if self.sampling_strategy == "ambiguous" else None,
            positive_ranks=positive_ranks(masks[KNOWN_POSITIVES]) if has_positives else None,
            margins=margins(candidates.positive_scores, rows, scores) if has_positives else None,
        )

    def draw_from(self, table: NegativeTable, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        n = self.num_negatives
        if self.sampling_strategy == "top":
            return table.first(rows, n)
        if self.sampling_strategy == "ambiguous":
            return table.draw_ambiguous(rows, n, rng, self.a)
        return table.draw(rows, n, rng)


def auto_top_k(candidates: int) -> int:
    """The `top_k` of `auto` for a search over N candidates: 200 (N / 8.8 million)^(1/3), from 20 to 200.

    The papers sample from the top 200 of 8.8 million passages (Xiong et al. 2021). In a small collection most
    of the top 200 are easy: on MedQuAD (15,809 documents) a model that samples from 20 is better than one
    that samples from 200, and smaller sets did best with ranks up to 20 or 50. The cube root joins both: a
    tenth of the papers' depth at a thousandth of their collection, 24 for MedQuAD, 97 for a million.
    """
    return min(MOST, max(LEAST, round(MOST * (candidates / PAPERS_CANDIDATES) ** (1 / 3))))


class SearchedSource(MinedSource):
    """A source that retrieves the `top_k` nearest candidates of each anchor, by the model in training."""

    top_k: Annotated[PositiveInt | Literal["auto"], expected("`auto` or a number from 1")] = 200
    """The number of candidates per anchor, after known positives and filtered candidates are removed; `auto`
    follows the number of candidates that are searched, from 20 to 200."""

    def top_k_of(self, anchor_set: AnchorSet) -> int:
        return self.top_k if isinstance(self.top_k, int) else auto_top_k(anchor_set.candidates)


def positive_ranks(is_positive: np.ndarray) -> np.ndarray:
    """(A,) int32: the rank, from 1, of the first positive of each ranking (A, k) bool; 0 if it has none."""
    return np.where(is_positive.any(1), is_positive.argmax(1) + 1, 0).astype(np.int32)


def margins(positive_scores: np.ndarray, candidates: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(A,) float32: the score of each anchor's best positive minus the mean score of its candidates.

    candidates, scores: (A, n), PADDING at missing candidates. NaN without candidates, or without a score of a
    positive.
    """
    present = candidates != PADDING
    counts = present.sum(1)
    means = np.where(present, scores, 0.0).sum(1) / np.maximum(counts, 1)
    return np.where(counts > 0, positive_scores - means, np.nan).astype(np.float32)


def find_positives(snapshot: Snapshot, top_k: int | None) -> np.ndarray:
    """(P, 2) int32, ascending: training queries without a positive, each with a document that answers it.

    The document is the first of the `top_k` retrieved that contains one of the query's answers. A query
    without one is left out, as is every query if `top_k` is None. All processes make the call, and each
    searches for a share of the queries.
    Source: the code of ANCE-Tele for OpenQA (OpenMatch/ANCE-Tele, preprocess/build_train_em_hn.py).
    """
    split, world = snapshot.split, snapshot.world
    unjudged = np.flatnonzero(split.known_positives("query").counts == 0).astype(np.int32)
    if top_k is None or not len(unjudged):
        return np.empty((0, 2), np.int32)
    own = np.array_split(unjudged, world.size)[world.rank]
    ranked = snapshot.search("query", own, "document", top_k)[1]
    answers = {row: Tokens(read_answers(split.queries, row)) for row in own.tolist()}
    first = np.full(len(own), PADDING, np.int32)
    for documents in ranked.T:
        missing = np.flatnonzero(first == PADDING)
        missing = missing[np.argsort(documents[missing], kind="stable")]
        found = missing[
            contain_answers(answers, snapshot.collection.documents, own[missing], documents[missing])
        ]
        first[found] = documents[found]
    return world.gather_rows(np.stack([own, first], axis=1)[first != PADDING])
