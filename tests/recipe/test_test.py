"""What the closing table measures: of all splits alike, or of each."""

import pytest
from recipe.refusal import refused

from pyserini_ance.recipe.load import dump, load

GRADED = "test.measures={dev: [RR@10, MRR@5], test: ['R(rel=2)@50']}"


def names(measures) -> list[str]:
    return [str(measure) for measure in measures]


def test_a_list_is_of_all_splits(base):
    test = load(base, "test.split=[dev,test]", "test.measures=[RR@10]").recipe.test
    assert names(test.measures_of("dev")) == names(test.measures_of("test")) == ["RR@10"] and test.query_measures_of("dev") == []
    assert test.columns == {("dev", "RR@10"): "dev RR@10", ("test", "RR@10"): "test RR@10"}


def test_each_split_may_have_its_own_and_they_come_back_from_the_dump(base, write):
    recipe = load(base, "test.split=[dev,test]", GRADED, "test.query_measures={dev: [AP]}").recipe
    assert names(recipe.test.measures_of("dev")) == ["RR@10", "RR@5"] and names(recipe.test.measures_of("test")) == ["R(rel=2)@50"]
    assert names(recipe.test.query_measures_of("dev")) == ["AP"] and recipe.test.query_measures_of("test") == []
    assert list(recipe.test.columns.values()) == ["dev RR@10", "dev RR@5", "test R(rel=2)@50"]
    assert load(write("dumped", dump(recipe))).recipe == recipe


def test_what_is_not_tested_counts_for_nothing(base):
    test = load(base, "test.split=dev", GRADED, "test.rerank={test: {hits: 10}}").recipe.test
    assert test.columns == {("dev", "RR@10"): "RR@10", ("dev", "RR@5"): "RR@5"} and test.reranked == {}


def test_a_ranking_in_another_order_is_a_split_of_its_own_in_tables(base):
    test = load(base, "test.measures=[AP]", "test.rerank={test: {measures: [nDCG@5, AP]}}").recipe.test
    assert test.columns == {("test", "AP"): "AP", ("test-rerank", "nDCG@5"): "test-rerank nDCG@5", ("test-rerank", "AP"): "test-rerank AP"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["test.measures=RR@10"], "test.measures: expected a list of measures, or one for each split, for example {dev: [RR@10], dl19: [nDCG@10]}"),
        (["test.measures={dev: RR@10}"], "test.measures: expected a list of measures, or one for each split"),
        (["test.split=[dev,test]", "test.measures={dev: [RR@10]}"], "measures: split 'test' is tested, but has no measures; splits here: dev;"),
        (["test.measures={tset: [AP], test: [AP]}"], "test.measures names split 'tset' (did you mean 'test'?); splits of `data`: train, dev, test"),
        (["test.query_measures={dv: [RR@10]}"], "test.query_measures names split 'dv' (did you mean 'dev'?)"),
        (["test.rerank={tests: {}}"], "test.rerank names split 'tests' (did you mean 'test'?)"),
        (["test.rerank={test: {}}", "bm25=null", "stages.only.terms.query.negatives=[{kind: random}]"], "is of BM25's ranking, but `bm25: null`"),
        (["test.split=[test,test-rerank]", "test.rerank={test: {}}"], "'test-rerank' is also what tables call the reranked 'test'; name the split"),
        (["test.rerank={test: {hits: 200}}"], "test.rerank.test.hits is 200, but BM25 ranks 100 documents (test.hits); set test.hits=200"),
        (["test.rerank={test: {depth: 200}}"], "test.rerank.test.depth: unknown key 'depth'; keys here: file, hits, measures"),
    ],
)
def test_anything_else_is_refused(base, overrides, message):
    assert message in refused(base, *overrides)
