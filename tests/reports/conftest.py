import pytest
from helpers.small_set import ONE_STEP, make_finished_run

from pyserini_ance.reports.ranking_inputs import RankingInput, open_ranking

QRELS = {"test": "test-0 0 red-horse 1\ntest-1 0 green-horse 1\n"}
HITS = {"test-0": ["red-apple", "pink-river", "red-horse", "blue-cloud"]}
HITS |= {"test-1": ["green-apple"], "elsewhere": ["red-apple"]}
RANKED = [(query, *each) for query, documents in HITS.items() for each in enumerate(documents, start=1)]
RANKING = "".join(f"{query} Q0 {document} {rank} {9 - rank} t\n" for query, rank, document in RANKED)


@pytest.fixture
def ranked(small_recipe, tmp_path) -> RankingInput:
    """The final ranking of a finished run; two of the collection's five test queries have hits."""
    recipe = small_recipe({"only": ONE_STEP}, cache=str(tmp_path / "cache"))
    rankings = {"run.test.trec": RANKING, "runs/bm25.test.trec": RANKING}
    return open_ranking(str(make_finished_run(tmp_path / "run", recipe, QRELS, rankings).folder))
