"""Rankings by their names."""

import pytest

from pyserini_ance.pipeline.ranking_inputs import open_ranking


def test_a_row_a_file_and_a_recipe(ranked, tmp_path, small_recipe):
    folder = ranked.file.parent
    assert open_ranking(f"{folder}:bm25").file == folder / "runs" / "bm25.test.trec"
    by_recipe = open_ranking(str(folder / "recipe.yaml"), ranked.file)
    assert (
        by_recipe.run == ranked.run
        and by_recipe.qrels == ranked.qrels
        and by_recipe.identity == {**ranked.identity, "ranking": str(ranked.file)}
    )
    assert ranked.qrels["test-0"] == {"red-horse": 1} and len(ranked.qrels) == 5
    with pytest.raises(
        ValueError, match=r"run:bm52 has no ranking of split 'test' .*; rows that have one: bm25"
    ):
        open_ranking(f"{folder}:bm52")
    with pytest.raises(
        ValueError, match=r"run:bm25 is one ranking and --run .*run.test.trec another; remove one of them"
    ):
        open_ranking(f"{folder}:bm25", ranked.file)
    with pytest.raises(
        FileNotFoundError,
        match="recipe.yaml is not a run directory; pass one, or a recipe and a ranking of its queries",
    ):
        open_ranking(str(folder / "recipe.yaml"))


def test_a_short_ranking_is_refused(ranked):
    ranked.check_hits(4)
    with pytest.raises(
        ValueError,
        match="run.test.trec has at most 4 hits a query, fewer than --first 5; pass a longer ranking",
    ):
        ranked.check_hits(5)
