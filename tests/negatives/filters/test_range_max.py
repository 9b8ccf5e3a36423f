from helpers.filter_fixture import apply_filters, candidates_of

from pyserini_ance.negatives.filters.answers import Answers
from pyserini_ance.negatives.filters.range_max import RangeMax


def test_the_first_ranks_remain_and_positives_do_not_count():
    rows, _, dropped = apply_filters(
        candidates_of([[1], [9]], [[5, 1, 6, 7], [9, 5, 6, 7]]), [RangeMax(ranks=2)], 4
    )
    assert rows.tolist() == [[5, 6, -1, -1], [5, 6, -1, -1]]
    assert dropped == {"known positives": 2, "range_max": 2}


def test_what_answers_removes_is_not_replaced_as_in_the_code_of_ance():
    texts = ["Paris", "a town", "in Paris", "a river", "a sea", "Paris again", "a lake"]
    ranking, positive, examined, wanted = [4, 0, 2, 3, 5, 1, 6], 0, 3, 2
    slowly: list[int] = []  # run_ann_data_gen_dpr.py: neg_cnt grows for every document that is examined
    seen = 0
    for document in ranking:
        if document == positive:
            continue
        if seen >= examined:
            break
        seen += 1
        if "Paris" not in texts[document]:
            slowly.append(document)
    candidates = candidates_of([[positive]], [ranking], documents=texts, answers=[["Paris"]])
    rows, _, _ = apply_filters(candidates, [RangeMax(ranks=examined), Answers()], wanted)
    assert rows.tolist() == [slowly] == [[4, 3]]
    replaced, _, _ = apply_filters(candidates, [Answers()], 4)
    assert replaced.tolist() == [[4, 3, 1, 6]]
