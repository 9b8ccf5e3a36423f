from pyserini_ance.recipe.load import dump, load

GRADED = "final_evaluation.measures={dev: [RR@10, MRR@5], test: ['R(rel=2)@50']}"


def names(measures) -> list[str]:
    return [str(measure) for measure in measures]


def evaluation(base, *overrides: str):
    return load(base, *(f"final_evaluation.{override}" for override in overrides)).final_evaluation


def test_measures_are_of_all_splits_or_of_each(base, write):
    test = evaluation(base, "split=[dev,test]", "measures=[RR@10]")
    assert names(test.measures_of("dev")) == names(test.measures_of("test")) == ["RR@10"]
    assert test.query_measures_of("dev") == []
    assert test.columns == {("dev", "RR@10"): "dev RR@10", ("test", "RR@10"): "test RR@10"}
    overrides = ("final_evaluation.split=[dev,test]", GRADED, "final_evaluation.query_measures={dev: [AP]}")
    recipe = load(base, *overrides)
    test = recipe.final_evaluation
    assert list(test.columns.values()) == ["dev RR@10", "dev RR@5", "test R(rel=2)@50"]
    assert names(test.query_measures_of("dev")) == ["AP"] and test.query_measures_of("test") == []
    assert load(write("dumped", dump(recipe))) == recipe


def test_columns_are_of_the_splits_that_are_evaluated_and_of_reranked_ones(base):
    test = load(base, "final_evaluation.split=dev", GRADED, "final_evaluation.rerank={test: bm25}")
    assert test.final_evaluation.columns == {("dev", "RR@10"): "RR@10", ("dev", "RR@5"): "RR@5"}
    test = evaluation(base, "measures=[AP, nDCG@5, R@1000]", "rerank={test: bm25}")
    assert list(test.columns.values()) == ["AP", "nDCG@5", "R@1000", "test-rerank nDCG@5"]
    assert (test.hits, evaluation(base, "measures=[RR@10]").hits) == (1000, 100)
