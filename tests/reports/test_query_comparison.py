"""Cases of five queries whose ranks are given: two wins, a tie, two losses."""

from pyserini_ance.data.collection import Texts
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.reports.query_comparison import QueryComparison

QUERIES = Texts(list("abcde"), {"text": [f"what is {query} | that" for query in "abcde"]})
DOCUMENTS = Texts(
    ["x", "y", "z"], {"title": ["X", "", "Z"], "text": ["the\n right one", "a wrong one", "w" * 20]}
)
QRELS = {query: {"x": 1, "y": 0} for query in "abcde"}
X_FIRST, X_SECOND = {"x": 3.0, "y": 2.0, "z": 1.0}, {"y": 3.0, "x": 2.0}
X_THIRD = {"z": 3.0, "y": 2.0, "x": 1.0}
FIRST = {"a": X_FIRST, "b": X_FIRST, "c": X_SECOND, "d": X_SECOND, "e": {}}
SECOND = {"a": X_SECOND, "b": X_THIRD, "c": X_SECOND, "d": X_FIRST, "e": X_FIRST}


def cases(characters: int = 10) -> QueryComparison:
    return QueryComparison(
        QRELS, QUERIES, DOCUMENTS, {"ours": FIRST, "theirs": SECOND}, parse_measures(["RR@10"])[0], characters
    )


def test_markdown():
    text = cases().as_markdown(1)
    assert (
        text
        == """\
# RR@10: ours against theirs

2 wins, 1 ties, 2 losses of 5 queries; mean difference -0.067, p 0.840

## ours wins

### b: what is b | that

| ranking |  RR@10 | first | grade      | text           |
| ------- | -----: | ----- | ---------- | -------------- |
| ours    | 1.0000 | x     | 1          | X the righ ... |
| theirs  | 0.3333 | z     | not judged | Z wwwwwwww ... |

## theirs wins

### e: what is e | that

| ranking |  RR@10 | first | grade | text           |
| ------- | -----: | ----- | ----- | -------------- |
| ours    | 0.0000 | -     | -     | -              |
| theirs  | 1.0000 | x     | 1     | X the righ ... |"""
    )
