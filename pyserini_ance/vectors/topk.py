"""The k best documents of each query, from blocks of scores or from single ones; ties go to lower rows."""

from collections.abc import Sequence

import torch
from torch.nn import functional

DOCUMENTS_PER_GROUP = 16
DOCUMENTS_PER_LARGE_GROUP = 32
MAX_PARTS = 64

LOWEST_KEY = torch.iinfo(torch.int64).min
ROW_BITS = 32
LARGEST_ROW = (1 << ROW_BITS) - 1

ScoresAndRows = tuple[torch.Tensor, torch.Tensor]


class TopK:
    """The k documents of highest score for each query, in buffers of fixed size: no host waits for values.

    k is at most the number of documents. `max_pending` is how many pairs per query, on average,
    `update_pairs` collects before they are merged.

    The k best documents of a block are in the k groups whose best documents are best, and k groups are
    partially sorted instead of the block. A score and its row are one number (`_keys`), so that there are no
    ties, and the groups before a document's own group each have a better document.
    """

    def __init__(self, queries: int, k: int, device: torch.device | str = "cpu", max_pending: int = 0):
        self.k, self.max_pending = k, max_pending
        self._best = torch.full((queries, k), LOWEST_KEY, dtype=torch.int64, device=device)
        self._pending: list[tuple[torch.Tensor, ...]] = []  # queries, keys (C,)
        self._pending_pairs = 0

    def update(self, scores: torch.Tensor, first: int) -> None:
        """Add the `scores` (N, Q) of N documents, the first of which is row `first`."""
        documents, scores = len(scores), _whole_groups(scores)
        rows = self._rows_of_best_groups(scores)
        keys = _keys(scores.gather(0, rows), rows + first)
        if len(scores) > documents:
            keys = keys.masked_fill(rows >= documents, LOWEST_KEY)
        self._add(keys.T)

    def update_rows(self, scores: torch.Tensor, rows: torch.Tensor) -> None:
        """Add the `scores` (Q, n) of documents `rows` (Q, n), n of them for each query."""
        self._add(_keys(scores, rows))

    def update_pairs(self, queries: torch.Tensor, rows: torch.Tensor, scores: torch.Tensor) -> None:
        """Add the `scores` (C,) of documents `rows` (C,) for `queries` (C,), on the CPU."""
        self._pending.append((queries.int(), _keys(scores, rows)))
        self._pending_pairs += len(queries)
        if self._pending_pairs > self.max_pending * len(self._best):
            self._merge_pending()
        elif len(self._pending) == MAX_PARTS:  # each tensor takes more than a few pairs do
            self._pending = [tuple(map(torch.cat, zip(*self._pending, strict=True)))]

    def result(self) -> ScoresAndRows:
        """Scores (Q, k) float32 and rows (Q, k) int32, best first; NaN and -1 where a query has fewer."""
        self._merge_pending()
        return _scores_and_rows(self._best)

    def _add(self, keys: torch.Tensor) -> None:
        self._best = torch.cat([self._best, keys], 1).topk(self.k, dim=1).values

    def _merge_pending(self) -> None:
        if not self._pending_pairs:
            return
        queries, keys = map(torch.cat, zip(*self._pending, strict=True))
        self._pending.clear()
        self._pending_pairs = 0
        order = queries.argsort()
        queries, keys = queries[order], keys[order]
        counts = queries.bincount(minlength=len(self._best))
        columns = torch.arange(len(queries)) - (counts.cumsum(0) - counts)[queries]
        padded = keys.new_full((len(counts), int(counts.max())), LOWEST_KEY)
        padded[queries, columns] = keys
        self._add(padded)

    def _rows_of_best_groups(self, scores: torch.Tensor) -> torch.Tensor:
        """(k * DOCUMENTS_PER_GROUP, Q) int64: rows of `scores` (N, Q); all rows if there are fewer groups."""
        documents, queries = scores.shape
        groups = torch.arange(documents // DOCUMENTS_PER_GROUP, device=scores.device)[:, None]
        if len(groups) > self.k:
            keys = _keys(best_of_groups(scores), groups).T.contiguous()
            groups = _scores_and_rows(keys.topk(self.k, dim=1, sorted=False).values)[1].T.long()
        within = torch.arange(DOCUMENTS_PER_GROUP, device=scores.device)[:, None]
        rows = groups[:, None] * DOCUMENTS_PER_GROUP + within  # (groups, DOCUMENTS_PER_GROUP, Q or 1)
        return rows.flatten(0, 1).expand(-1, queries)


def add_highest(best: ScoresAndRows, scores: torch.Tensor, first: int, k: int) -> ScoresAndRows:
    """The k highest, at most, of `best` (Q, n) and of the `scores` (Q, N) of the documents from row `first`
    on: scores and int64 rows (Q, k), best first; NaN is highest. Of equal scores at the end, any are kept.

    Faster on a GPU than `TopK.update`: the scores of a query lie together, documents of a group far apart.
    With neighbours in memory of different groups, the highest of each are found as fast as scores are read.
    """
    queries, documents = scores.shape
    groups = documents // DOCUMENTS_PER_LARGE_GROUP
    rows = torch.arange(documents, device=scores.device).expand(queries, -1)
    if groups > k and not documents % DOCUMENTS_PER_LARGE_GROUP:
        highest = scores.view(queries, -1, groups).amax(1).topk(k, dim=1, sorted=False).indices
        within = torch.arange(0, documents, groups, device=scores.device)[:, None]
        rows = (within + highest[:, None]).flatten(1)
        scores = scores.gather(1, rows)
    every_score, every_row = torch.cat([best[0], scores], 1), torch.cat([best[1], first + rows], 1)
    kept, order = every_score.topk(min(k, every_score.shape[1]), dim=1)
    return kept, every_row.gather(1, order)


def _keys(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """int64 numbers in the order of `scores`, of equal scores the lower of `rows` first.

    The bits of positive floating-point numbers rise with them, and those of negative ones fall.
    """
    bits = (scores + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0
    rising = bits ^ ((bits >> 31) & torch.iinfo(torch.int32).max)
    return (rising.long() << ROW_BITS) + (LARGEST_ROW - rows.long())


def _scores_and_rows(keys: torch.Tensor) -> ScoresAndRows:
    """The scores float32 and rows int32 of `_keys`."""
    rising = (keys >> ROW_BITS).int()
    bits = rising ^ ((rising >> 31) & torch.iinfo(torch.int32).max)
    return bits.view(torch.float32), (LARGEST_ROW - (keys & LARGEST_ROW)).int()


def best_of_groups(scores: torch.Tensor) -> torch.Tensor:
    """The highest of each DOCUMENTS_PER_GROUP of `scores` (N, Q), (N / DOCUMENTS_PER_GROUP, Q)."""
    return scores.view(len(scores) // DOCUMENTS_PER_GROUP, DOCUMENTS_PER_GROUP, scores.shape[1]).amax(1)


def _whole_groups(scores: torch.Tensor) -> torch.Tensor:
    """`scores` (N, Q) with rows of -inf up to a whole group."""
    missing = -len(scores) % DOCUMENTS_PER_GROUP
    return functional.pad(scores, (0, 0, 0, missing), value=-torch.inf) if missing else scores


def above(scores: torch.Tensor, threshold: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and rows (C,) of those `scores` (N, Q) that are above their query's `threshold` (Q,).

    Rows rise. The highest score of each group of documents rules out nearly all others: one pass over the
    scores.
    """
    scores = _whole_groups(scores)
    # Not `>`: one NaN would hide its whole group.
    groups, group_queries = (~(best_of_groups(scores) <= threshold)).nonzero(as_tuple=True)
    by_group = scores.view(-1, DOCUMENTS_PER_GROUP, scores.shape[1]).transpose(1, 2)[groups, group_queries]
    hit, within = (by_group > threshold[group_queries, None]).nonzero(as_tuple=True)
    return group_queries[hit], groups[hit] * DOCUMENTS_PER_GROUP + within


def best_of(scores: Sequence[torch.Tensor], rows: Sequence[torch.Tensor], k: int) -> ScoresAndRows:
    """The k best (B, k) of the parts' (B, n), on their device; the parts are in the order of their rows.

    The sort is stable: of equal scores, the lower rows stay ahead. NaN comes last, even after -inf.
    """
    every_score, every_row = torch.cat(tuple(scores), 1), torch.cat(tuple(rows), 1)
    order = (0 - every_score).argsort(dim=1, stable=True)[:, :k]  # ascending, which has NaN last
    return every_score.gather(1, order), every_row.gather(1, order)
