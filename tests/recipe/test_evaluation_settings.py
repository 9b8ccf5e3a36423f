"""What the closing table measures: of all splits alike, or of each."""

import pytest
from helpers.recipe_errors import refused

from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.load import dump, load

GRADED = "final_evaluation.measures={dev: [RR@10, MRR@5], test: ['R(rel=2)@50']}"


def names(measures) -> list[str]:
    return [str(measure) for measure in measures]


def evaluation(base, *overrides: str):
    return load(base, *(f"final_evaluation.{override}" for override in overrides)).recipe.final_evaluation


def test_measures_are_of_all_splits_or_of_each(base, write):
    test = evaluation(base, "split=[dev,test]", "measures=[RR@10]")
    assert names(test.measures_of("dev")) == names(test.measures_of("test")) == ["RR@10"]
    assert test.query_measures_of("dev") == []
    assert test.columns == {("dev", "RR@10"): "dev RR@10", ("test", "RR@10"): "test RR@10"}
    overrides = ("final_evaluation.split=[dev,test]", GRADED, "final_evaluation.query_measures={dev: [AP]}")
    recipe = load(base, *overrides).recipe
    test = recipe.final_evaluation
    assert list(test.columns.values()) == ["dev RR@10", "dev RR@5", "test R(rel=2)@50"]
    assert names(test.query_measures_of("dev")) == ["AP"] and test.query_measures_of("test") == []
    assert load(write("dumped", dump(recipe))).recipe == recipe


def test_columns_are_of_the_splits_that_are_evaluated_and_of_reranked_ones(base):
    test = load(base, "final_evaluation.split=dev", GRADED, "final_evaluation.rerank={test: {hits: 10}}")
    columns = test.recipe.final_evaluation.columns
    assert columns == {("dev", "RR@10"): "RR@10", ("dev", "RR@5"): "RR@5"}
    test = evaluation(base, "measures=[AP]", "rerank={test: {measures: [nDCG@5, AP]}}")
    assert test.columns == {
        ("test", "AP"): "AP",
        ("test-rerank", "nDCG@5"): "test-rerank nDCG@5",
        ("test-rerank", "AP"): "test-rerank AP",
    }


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["final_evaluation.measures=RR@10"],
            "final_evaluation.measures: expected a list of measures, or one for each split, for example "
            "{dev: [RR@10], dl19: [nDCG@10]}",
        ),
        (
            ["final_evaluation.measures={dev: RR@10}"],
            "final_evaluation.measures: expected a list of measures, or one for each split",
        ),
        (
            ["final_evaluation.split=[dev,test]", "final_evaluation.measures={dev: [RR@10]}"],
            "measures: split 'test' is evaluated, but has no measures; splits here: dev;",
        ),
        (
            ["final_evaluation.measures={tset: [AP], test: [AP]}"],
            "final_evaluation.measures names split 'tset' (did you mean 'test'?); splits of `data`: "
            "train, dev, test",
        ),
        (
            ["final_evaluation.query_measures={dv: [RR@10]}"],
            "final_evaluation.query_measures names split 'dv' (did you mean 'dev'?)",
        ),
        (
            ["final_evaluation.rerank={tests: {}}"],
            "final_evaluation.rerank names split 'tests' (did you mean 'test'?)",
        ),
        (
            [
                "final_evaluation.rerank={test: {}}",
                "bm25=null",
                "stages.only.terms.query.negatives=[{kind: random}]",
            ],
            "reranks BM25's ranking, but `bm25: null`",
        ),
        (
            ["final_evaluation.split=[test,test-rerank]", "final_evaluation.rerank={test: {}}"],
            "'test-rerank' is also what tables call the reranked 'test'; rename the split",
        ),
        (
            ["final_evaluation.rerank={test: {hits: 200}}"],
            "final_evaluation.rerank.test.hits is 200, but BM25 ranks 100 documents (final_evaluation.hits); "
            "set final_evaluation.hits=200",
        ),
        (
            ["final_evaluation.rows=[bm25,untraind]"],
            "final_evaluation.rows: no row 'untraind' (did you mean 'untrained'?); expected a list of bm25, "
            "untrained, start, stages, hybrid",
        ),
        (["final_evaluation.rows=[stages,stages]"], "rows: row 'stages' is listed twice"),
        (
            ["final_evaluation.rows=[hybrid]"],
            "rows: `hybrid` fuses the ranking of the row `bm25`; add it, or remove `hybrid`",
        ),
        (
            ["final_evaluation.rows=[]", "final_evaluation.rerank={test: {}}"],
            "final_evaluation.rerank.test reranks the ranking of the row bm25, which final_evaluation.rows "
            "lacks",
        ),
        (
            ["final_evaluation.rerank={test: {top_k: 200}}"],
            "final_evaluation.rerank.test.top_k: unknown key 'top_k'; keys here: file, hits, measures",
        ),
    ],
)
def test_anything_else_is_refused(base, overrides, message):
    assert message in refused(base, *overrides)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndcg@10", "unknown measure 'ndcg@10' .did you mean 'nDCG@10'"),
        ("Recal@10", "did you mean 'R@10'"),
        ("recall@100", "did you mean 'R@100'"),
        ("nDCG10", "did you mean 'nDCG@10'"),
        ("ndcg_cut_10", "did you mean 'nDCG@10'"),
        ("mrr@10", "did you mean 'RR@10'"),
        ("recip_rank", "did you mean 'RR'"),
        ("map", "did you mean 'AP'"),
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
