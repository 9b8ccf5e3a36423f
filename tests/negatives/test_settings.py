import pytest

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.recipe.components import component_class


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("live", {}, "cannot serve a term with `anchor: document`"),
        ("bm25", {}, "cannot serve a term with `anchor: document`"),
        ("ann", {"top_k_unit": "passage"}, "top_k_unit: passage counts passages of documents"),
    ],
)
def test_sources_of_documents_cannot_serve_documents(split_of, kind, settings, message):
    source = component_class("negatives", kind)(**settings)
    source.check_data(AnchorSet(split_of([0], [1]), "query", 9))
    with pytest.raises(ValueError, match=message):
        source.check_data(AnchorSet(split_of([0], [1]), "document", 2))
