from negatives.guards.given import candidates_of

from pyserini_ance.negatives.guards.guard import screen
from pyserini_ance.negatives.guards.rank_floor import RankFloor


def test_the_first_ranks_go_and_positives_count_among_them():
    rows, _, dropped = screen(candidates_of([[1], [9]], [[5, 1, 6, 7], [5, 6, 9, 7]]), [RankFloor(ranks=2)], 3)
    assert rows.tolist() == [[6, 7, -1], [7, -1, -1]] and dropped == {"known positives": 2, "rank_floor": 3}
    assert RankFloor(ranks=2).extra_depth == 2
