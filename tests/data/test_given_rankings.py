import numpy as np
import pytest

from pyserini_ance.data.given_rankings import qrels_of, run_of


def test_numbers_of_numpy_are_numbers():
    qrels = qrels_of({"q": {"a": np.int64(2), "b": True}})
    assert qrels == {"q": {"a": 2, "b": 1}} and {type(grade) for grade in qrels["q"].values()} == {int}
    assert run_of({"q": {"a": np.float32(0.5), "b": 1}, "r": {}}) == {"q": {"a": 0.5, "b": 1.0}, "r": {}}


@pytest.mark.parametrize(
    ("read", "values", "message"),
    [
        (run_of, {"q": {"a": 1.0, "b": float("nan")}}, "run: query 'q', document 'b': nan is not a finite"),
        (run_of, {"q": {"a": np.float32("inf")}}, "document 'a': .*inf.* is not a finite number"),
        (run_of, {"q": {"a": "1.5"}}, "document 'a': '1.5' is not a finite number"),
        (run_of, {"q": {"a": None}}, "document 'a': None is not a finite number"),
        (run_of, {"q": ["a"]}, r"run: 'q': \['a'\]; expected the id of a query"),
        (run_of, {1: {"a": 1.0}}, "run: 1: {'a': 1.0}; expected the id of a query, a string"),
        (run_of, {"q": {1: 1.0}}, "run: query 'q': id 1 is not a string"),
        (qrels_of, {"q": {"a": 1.0}}, "qrels: query 'q', document 'a': 1.0 is not a whole number"),
        (qrels_of, {"q": {"a": "1"}}, "document 'a': '1' is not a whole number"),
    ],
)
def test_other_values_are_named(read, values, message):
    with pytest.raises(ValueError, match=message):
        read(values)
