import pytest
from helpers.ranked_run import make_ranked_run

from pyserini_ance.reports.ranking_inputs import RankingInput


@pytest.fixture
def ranked(small_recipe, tmp_path) -> RankingInput:
    return make_ranked_run(small_recipe, tmp_path)
