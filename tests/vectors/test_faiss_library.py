"""Faiss's own functions, against numpy."""

import numpy as np
import torch

from pyserini_ance.vectors.faiss_library import pair_scores


def test_pairs_of_rows_score_as_in_numpy_and_equal_documents_alike():
    rng = np.random.default_rng(0)
    queries, documents = (rng.normal(size=(count, 37)).astype(np.float32) for count in (5, 60))
    documents[50:] = documents[:10]
    asked, rows = rng.integers(5, size=200), rng.integers(60, size=200)
    tensors = map(torch.from_numpy, (queries, asked, documents, rows))
    found = pair_scores(*tensors).numpy()
    expected = (queries[asked].astype(np.float64) * documents[rows]).sum(1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    by_document = pair_scores(*map(torch.from_numpy, (queries, np.zeros(60, int), documents, np.arange(60))))
    assert torch.equal(by_document[50:], by_document[:10])


def test_no_pairs_have_no_scores():
    none, vectors = torch.empty(0, dtype=torch.int64), torch.ones(3, 4)
    assert pair_scores(vectors, none, vectors, none).shape == (0,)
