"""The best documents of each query, found block after block: what cannot be among them is passed over in groups.

A document enters only above the k-th best of those before it. After the first ones few do, and a look at the highest score of each
group of documents leaves out nearly all others: one pass over the scores instead of a partial sort of them.
"""

import torch
from torch.nn import functional

DOCUMENTS_PER_GROUP = 16
MOST_GROUPS = 0.25  # of a block's, that hold candidates: with more of them a partial sort of the whole block is cheaper
WAITING = 32  # candidates for each query, on average, that wait to be sorted in; until then the bar is lower than it could be

Found = tuple[torch.Tensor, torch.Tensor]


class Best:
    """The k documents of highest score for each of some queries; of equals the lower rows. Blocks come in rising rows."""

    def __init__(self, queries: int, k: int, device: str = "cpu"):
        self.k = k
        self._kept: Found = torch.empty((queries, 0), device=device), torch.empty((queries, 0), dtype=torch.int32, device=device)
        self._waiting: list[tuple[torch.Tensor, ...]] = []  # queries, rows, scores (C,)

    def offer(self, scores: torch.Tensor, first: int) -> None:
        """Look at the `scores` (N, Q) of N documents, the first of them row `first`."""
        candidates = _above(scores, self._kept[0][:, -1]) if self._is_full else None
        if candidates is None:
            self._sort_in()
            self._keep(*_top(scores.T, self.k, first))
            return
        queries, rows, found = candidates
        self._waiting.append((queries, (rows + first).int(), found))
        if sum(len(queries) for queries, *_ in self._waiting) > WAITING * scores.shape[1]:
            self._sort_in()

    def take(self) -> Found:
        """Scores (Q, k) float32 and rows (Q, k) int32, best first; as many as were offered, where those are fewer."""
        self._sort_in()
        return self._kept

    @property
    def _is_full(self) -> bool:
        return self._kept[0].shape[1] == self.k

    def _sort_in(self) -> None:
        if not self._waiting:
            return
        queries, rows, scores = map(torch.cat, zip(*self._waiting, strict=True))
        self._waiting.clear()
        order = queries.argsort(stable=True)  # rows go on rising in each query
        queries, rows, scores = queries[order], rows[order], scores[order]
        counts = queries.bincount(minlength=len(self._kept[0]))
        places = torch.arange(len(queries), device=queries.device) - (counts.cumsum(0) - counts)[queries]
        side_by_side = [values.new_full((len(counts), int(counts.max())), filling) for values, filling in ((scores, -torch.inf), (rows, 0))]
        for matrix, values in zip(side_by_side, (scores, rows), strict=True):
            matrix[queries, places] = values
        self._keep(*side_by_side)

    def _keep(self, scores: torch.Tensor, rows: torch.Tensor) -> None:
        """The best of what is kept and of (Q, n) more, all of later rows: stable, so that of equals the lower row stays ahead."""
        scores, rows = (torch.cat(pair, 1) for pair in zip(self._kept, (scores, rows), strict=True))
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        self._kept = scores[:, : self.k].contiguous(), rows.gather(1, order[:, : self.k])


def _above(scores: torch.Tensor, bar: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Queries, rows and scores (C,) of those of `scores` (N, Q) above the `bar` (Q,) of their query; None where they are many."""
    documents, queries = scores.shape
    if missing := -documents % DOCUMENTS_PER_GROUP:
        scores = functional.pad(scores, (0, 0, 0, missing), value=-torch.inf)
    best_of_groups = scores.view(-1, DOCUMENTS_PER_GROUP, queries).amax(1)
    groups, of = (~(best_of_groups <= bar)).nonzero(as_tuple=True)  # not `>`: one NaN would hide its whole group
    if len(groups) > MOST_GROUPS * documents * queries / DOCUMENTS_PER_GROUP:
        return None
    rows = groups[:, None] * DOCUMENTS_PER_GROUP + torch.arange(DOCUMENTS_PER_GROUP, device=scores.device)
    found = scores[rows, of[:, None]]
    group, place = (found > bar[of, None]).nonzero(as_tuple=True)
    return of[group], rows[group, place], found[group, place]


def _top(scores: torch.Tensor, k: int, first: int) -> Found:
    """The k best of scores (Q, N) by rising row; of those that tie at the border, the lower rows. Rows count from `first`.

    `topk` takes any of the tied; where one beyond the k-th has its score, the row is sorted stably instead.
    """
    k = min(k, scores.shape[1])
    best, rows = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    tied = (best[:, k - 1 : k] == best[:, k:]).any(1)  # nobody is beyond the last
    best, rows = best[:, :k].contiguous(), rows[:, :k].contiguous()
    if tied.any():
        best[tied], rows[tied] = (x[:, :k] for x in scores[tied].sort(dim=1, descending=True, stable=True))
    rows, order = rows.sort(dim=1)
    return best.gather(1, order), (rows + first).int()
