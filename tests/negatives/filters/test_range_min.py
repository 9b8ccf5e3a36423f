from helpers.filter_fixture import apply_filters, candidates_of

from pyserini_ance.negatives.filters.range_min import RangeMin


def test_the_first_ranks_are_removed_and_positives_count():
    rows, _, dropped = apply_filters(
        candidates_of([[1], [9]], [[5, 1, 6, 7], [5, 6, 9, 7]]), [RangeMin(ranks=2)], 3
    )
    assert rows.tolist() == [[6, 7, -1], [7, -1, -1]] and dropped == {"known positives": 2, "range_min": 3}
    assert RangeMin(ranks=2).extra_candidates == 2
