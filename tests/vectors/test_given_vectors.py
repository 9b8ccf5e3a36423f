import numpy as np
import pytest
import torch

from pyserini_ance.vectors.given_vectors import search_given

QUERIES, DOCUMENTS = np.ones((2, 4), np.float32), np.eye(6, 4, dtype=np.float32)


def with_value(vectors: np.ndarray, row: int, column: int, value: float) -> np.ndarray:
    changed = vectors.copy()
    changed[row, column] = value
    return changed


@pytest.mark.parametrize(
    ("queries", "documents", "k", "message"),
    [
        *(
            (
                with_value(QUERIES, 1, 2, value),
                DOCUMENTS,
                3,
                f"query_vectors: row 1 is {value} in dimension 2",
            )
            for value in (np.nan, np.inf, -np.inf)
        ),
        (QUERIES, with_value(DOCUMENTS, 5, 0, np.nan), 3, "document_vectors: row 5 is nan in dimension 0"),
        (QUERIES, DOCUMENTS, 0, "k is 0; expected a whole number from 1"),
        (QUERIES, DOCUMENTS, 2.5, "k is 2.5; expected"),
        (QUERIES[:, :3], DOCUMENTS, 3, "query_vectors have 3 dimensions, document_vectors 4; encode both"),
        (1e30 * QUERIES, 1e30 * DOCUMENTS, 3, "query_vectors: row 0 has scores beyond the range of float32"),
        (QUERIES[0], DOCUMENTS, 3, r"query_vectors has the shape \(4,\); expected two dimensions"),
    ],
)
def test_what_cannot_be_searched_is_named(queries, documents, k, message):
    with pytest.raises(ValueError, match=message):
        search_given(queries, documents, k, "cpu")


def test_large_finite_values_and_other_arrays_are_searched():
    """Sums over dimensions may overflow; the values themselves are finite."""
    large = np.full((3, 4), 2e38, np.float32)
    expected = [[0, 1, 2]] * 2
    assert search_given(QUERIES * 0, large, 3, "cpu")[1].tolist() == expected
    assert search_given(torch.zeros(2, 4), large[:, ::-1], 5, "cpu")[1].tolist() == expected
    scores, rows = search_given(np.empty((0, 4)), DOCUMENTS.astype(np.float64), 3, "cpu")
    assert scores.shape == rows.shape == (0, 3)
