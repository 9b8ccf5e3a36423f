"""Our encoder classes as Python calls them."""

import numpy as np

from pyserini_ance.pyserini_bridge.encoder_classes import DocumentEncoder, QueryEncoder


def test_a_query_is_a_vector_and_a_list_of_queries_a_matrix(checkpoint):
    encoder = QueryEncoder(str(checkpoint("transformer")))
    both = encoder.encode(["one query", "another"])
    assert both.shape == (2, 32) and encoder.encode("one query").shape == (32,)
    # Batches round sums otherwise: each of up to 64 products, of numbers up to 4, by half of float32's step.
    np.testing.assert_allclose(encoder.encode("one query"), both[0], atol=64 * 4 * 2**-24)


def test_a_missing_title_is_explained_in_python_too(checkpoint, caplog):
    two_fields = {"document": {"length_tokens": 64, "template": "{title} {text}"}}
    folder = str(checkpoint("transformer", tokenization=two_fields))
    DocumentEncoder(folder).encode(["a text"])
    assert "title is not passed. If the corpus has it, pass titles=[...]; on the command line" in caplog.text
    caplog.clear()
    DocumentEncoder(folder).encode(["a text"], titles=["a title"])
    assert not caplog.text
