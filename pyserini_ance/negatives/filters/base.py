"""The base class of filters, and how the filters of a source are applied to its candidates."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from pyserini_ance.data.known_positives import is_known_positive
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING, select
from pyserini_ance.recipe.components import MiningComponent
from pyserini_ance.storage.error_text import naming_own

# Names of removals, in counts of dropped candidates.
KNOWN_POSITIVES = "known positives"  # the removal that always applies
COPIES = "copies of positives"  # also applies: copies of positives, and the document that is the query
PROMOTED = "promoted"  # of candidates that become positives


@dataclass(frozen=True)
class Candidates:
    """The ranking that a source retrieved for an anchor set, before filtering.

    rows: (A, n) int32 in rank order, PADDING at missing entries; the first dimension follows
        `anchor_set.anchors`.
    scores: (A, n) float32.
    score_positives: returns the score of each anchor's best known positive, (A,) on the scale of `scores`,
        NaN where it has none. None if the source cannot score positives.
    """

    snapshot: Snapshot
    anchor_set: AnchorSet
    rows: np.ndarray
    scores: np.ndarray
    score_positives: Callable[[], np.ndarray] | None = None

    @cached_property
    def positive_scores(self) -> np.ndarray:
        assert self.score_positives is not None, "the source checks `needs_positive_scores` of its filters"
        return self.score_positives()

    def masked(self, mask: np.ndarray) -> "Candidates":
        """Replace the rows where `mask` (A, n) is false by PADDING; positions do not change."""
        return replace(self, rows=np.where(mask, self.rows, PADDING))

    def mask_pairs(self, judge: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """(A, n) bool from `judge(query rows, document rows)`, which maps two (P,) arrays to (P,) bool.

        Pairs arrive in order of ascending document row.
        """
        positions = np.nonzero(self.rows != PADDING)
        pairs = self.anchor_set.anchors[positions[0]], self.rows[positions]
        queries, documents = pairs if self.anchor_set.anchor == "query" else pairs[::-1]
        order = np.argsort(documents, kind="stable")
        mask = np.zeros(self.rows.shape, bool)
        mask[positions[0][order], positions[1][order]] = judge(queries[order], documents[order])
        return mask


class Filter(MiningComponent):
    """A rule that removes false negatives from the candidates of a source.

    expensive: the filter sees only candidates that all cheap filters keep, and only as many as a table needs.
    needs_positive_scores: the filter reads `Candidates.positive_scores`.
    compares_candidates: an expensive filter that judges candidates by others of their anchor, and therefore
        sees all at once.
    extra_candidates: the number of candidates that the filter always removes; the source retrieves as many
        more.
    """

    expensive: ClassVar[bool] = False
    needs_positive_scores: ClassVar[bool] = False
    compares_candidates: ClassVar[bool] = False
    extra_candidates: ClassVar[int] = 0

    @property
    def removal(self) -> str:
        """The name of the filter's removals, in counts of dropped candidates."""
        return PROMOTED if self.promotes else str(self.kind)

    @abstractmethod
    def mask(self, candidates: Candidates) -> np.ndarray:
        """(A, n) bool, true for candidates to remove. Entries at PADDING are ignored."""


def filter_masks(candidates: Candidates, filters: Sequence[Filter], width: int) -> dict[str, np.ndarray]:
    """(A, n) bool by the name of the removal: what a table of `width` candidates per anchor leaves out.

    A candidate that expensive filters have not seen, because the table needs no more, is not marked.
    """
    anchor_set = candidates.anchor_set
    known = is_known_positive(anchor_set.known_positives, anchor_set.anchors, candidates.rows)
    never = anchor_set.never_negative(anchor_set.anchors, candidates.rows, known)
    cheap = [filter for filter in filters if not filter.expensive]
    expensive = [filter for filter in filters if filter.expensive]
    masks = {KNOWN_POSITIVES: known}
    if never is not known:  # where it is, no text occurs twice, and no query is a document
        masks[COPIES] = never & ~known
    masks |= _masks(cheap, candidates)
    if not expensive:
        return masks
    if any(filter.compares_candidates for filter in expensive):
        width = candidates.rows.shape[1]
    remaining = candidates.masked(~np.logical_or.reduce(list(masks.values())))
    for name, mask in _masks_on_demand(expensive, remaining, width).items():
        masks[name] = masks[name] | mask if name in masks else mask
    return masks


def _masks(filters: Sequence[Filter], candidates: Candidates) -> dict[str, np.ndarray]:
    """The mask of each removal; a filter sees only the candidates that the filters before it keep.

    Raises ValueError if a filter's mask is not an array (A, n) bool.
    """
    masks: dict[str, np.ndarray] = {}
    for filter in filters:
        with naming_own(filter.kind, "mask"):
            mask = filter.mask(candidates)
        expected = f"bool {candidates.rows.shape}"
        got = f"{mask.dtype} {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
        if got != expected:
            raise ValueError(
                f"mask of filter {filter.kind} returned {got}; expected a numpy array of one truth value per "
                f"candidate: {expected}, the shape of candidates.rows"
            )
        mask, name = mask & (candidates.rows != PADDING), filter.removal
        masks[name] = masks[name] | mask if name in masks else mask
        candidates = candidates.masked(~mask)
    return masks


def _masks_on_demand(filters: Sequence[Filter], candidates: Candidates, width: int) -> dict[str, np.ndarray]:
    """The masks of expensive filters, over no more candidates than a table of `width` needs.

    The filters first see `width` candidates of each anchor, then as many more as they removed, and so on,
    until every anchor has `width` or no candidates are left, in the shares of all processes: a filter may
    ask a teacher, which all processes do together.
    """
    world = candidates.snapshot.world
    masks = {filter.removal: np.zeros(candidates.rows.shape, bool) for filter in filters}
    remaining, seen = candidates.rows != PADDING, np.zeros(candidates.rows.shape, bool)
    while True:
        fresh = remaining & ~seen
        missing = width - (remaining & seen).sum(1, keepdims=True)
        fresh &= np.cumsum(fresh, axis=1, dtype=np.int32) <= missing
        world.barrier()  # judging may take longer on one process than on another
        if world.all_agree(not fresh.any()):
            return masks
        for kind, mask in _masks(filters, candidates.masked(fresh)).items():
            masks[kind] |= mask
            remaining &= ~mask
        seen |= fresh


def apply_masks(
    candidates: np.ndarray, scores: np.ndarray, masks: Mapping[str, np.ndarray], width: int
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Select the first `width` candidates (A, n) of each row that no mask marks, with their scores.

    masks: (A, n) bool by filter. The third result counts the removals of each filter; a candidate that
    several filters mark counts for the first of them, and PADDING never counts.
    """
    remaining, dropped = candidates != PADDING, {}
    for name, mask in masks.items():
        dropped[name] = int((remaining & mask).sum())
        remaining &= ~mask
    rows, best = select(remaining, width, (candidates, np.int32(PADDING)), (scores, np.float32(-np.inf)))
    return rows, best, dropped
