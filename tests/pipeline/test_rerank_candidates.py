"""Which documents of a ranking are put in another order, and the order."""

import numpy as np
import pytest

from pyserini_ance.data.collection import Qrels, Split, Texts
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.pipeline.bm25_rankings import read_candidates, sort_by_score
from pyserini_ance.recipe.evaluation_settings import Rerank

DOCUMENTS = Texts(["a", "b", "c"], {"text": ["one", "two", "three"]})
SPLIT = Split(
    "dl19", Texts(["1", "2", "3"], {"text": ["x", "y", "z"]}), Qrels.of([0, 1, 2], [0, 1, 2], [1, 1, 1], 3)
)


@pytest.mark.parametrize(
    "text",
    ["1 Q0 c 1 2.0 t\n1 Q0 a 2 1.0 t\n1 Q0 b 3 0.5 t\n3 Q0 a 1 1.0 t\n", "1 c 1\n1 a 2\n1 b 3\n3 a 1\n"],
)
def test_the_first_documents_of_each_query_in_any_form(tmp_path, text):
    (tmp_path / "run").write_text(text)
    found = read_candidates(Rerank(hits=2), SPLIT, DOCUMENTS, tmp_path / "run")
    assert found.tolist() == [[2, 0], [PADDING, PADDING], [0, PADDING]] and found.dtype == np.int32


def test_a_file_comes_before_the_ranking_of_bm25(tmp_path):
    (tmp_path / "file").write_text("2 Q0 b 1 1.0 t\n")
    assert read_candidates(Rerank(file=tmp_path / "file"), SPLIT, DOCUMENTS, tmp_path / "absent")[1, 0] == 1


def test_ties_are_in_the_order_of_rows_and_nothing_comes_last():
    rows = np.array([[2, 0, 1, PADDING], [1, PADDING, PADDING, 0]], np.int32)
    scores, ordered = sort_by_score(np.array([[1.0, 3.0, 3.0, 0], [-5.0, 0, 0, -4.0]], np.float32), rows)
    assert ordered.tolist() == [[0, 1, 2, PADDING], [0, 1, PADDING, PADDING]]
    assert scores[0, :3].tolist() == [3.0, 3.0, 1.0] and scores[1, :2].tolist() == [-4.0, -5.0]
