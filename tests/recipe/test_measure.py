import pytest

from pyserini_ance.recipe.evaluation_settings import parse_measures


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndcg@10", "unknown measure 'ndcg@10' .did you mean 'nDCG'"),
        ("Recal@10", "did you mean 'Recall'"),
        ("bogus", "unknown measure 'bogus'; examples: nDCG@10"),
        ("nDCG@", "not of the form"),
        ("nDCG@0", "not of the form"),
        ("nDCG at 10", "not of the form"),
        ("P", "takes cutoff .required., rel, judged_only"),
        ("RR(grade=2)@10", "takes cutoff, rel, judged_only"),
        ("RR(rel=two)@10", "'rel=two' is not a list of key=value"),
        ("RR(2)@10", "'2' is not a list of key=value"),
        ("RR(rel=1)+f(2)@10", "is not a list of key=value"),
        ("alpha_nDCG@10", "cannot be computed here.*pip install"),
    ],
)
def test_measure_that_cannot_be_computed_is_refused(name, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        parse_measures([name])
