from pyserini_ance.evaluation.expected import expectation, variant_of
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.rundir import RunDir

ROW = {"row": "ance", "dev RR@10": 0.3212, "test-rerank nDCG@10": 0.5, "train seconds": 1.0}


def test_columns_that_are_evaluated_and_expected(base):
    expect = "expect={dev: {RR@10: 0.33, AP: 0.2}, test-rerank: {nDCG@10: 0.4}, eval: {RR@10: 0.3}}"
    recipe = load(
        base,
        "final_evaluation.split=[dev,test]",
        "final_evaluation.measures=[RR@10]",
        "final_evaluation.rerank={test: {}}",
        expect,
    ).recipe
    assert expectation(recipe, ROW) == (
        "| ance                | expected | measured | difference |\n"
        "| ------------------- | -------: | -------: | ---------- |\n"
        "| dev RR@10           |   0.3300 |   0.3212 | -0.0088    |\n"
        "| test-rerank nDCG@10 |   0.4000 |   0.5000 | +0.1000    |"
    )


def test_nothing_where_nothing_is_expected(base):
    assert expectation(load(base).recipe, ROW) == ""


def test_a_run_that_starts_from_a_variant_is_one(tmp_path, monkeypatch):
    """As in the default directory of the recipe that a stage starts from, or in a grid."""
    monkeypatch.chdir(tmp_path)
    row = {"row": "rand", "nDCG@10": 0.5, "RR@10": 0.5, "R@100": 0.5}
    shipped = load("nfcorpus/bm25-rand").recipe
    warm_up = RunDir(tmp_path / "runs/nfcorpus-warmup")
    assert "nDCG@10" in expectation(shipped, row)
    for overrides in (("seed=7", "data.folder=here"), ("stages.bm25-neg.steps=39",)):
        warm_up.create(dump(load("nfcorpus/warmup", *overrides).recipe), overwrite=warm_up.state.exists())
        in_grid = load("nfcorpus/bm25-rand", f"stages.rand.init_from={{run: {warm_up.folder}}}").recipe
        variant = "nfcorpus/warmup: stages.bm25-neg.steps 39 instead of 40" if len(overrides) == 1 else ""
        assert variant_of(shipped, shipped) == variant_of(in_grid, shipped) == variant
    assert expectation(shipped, row) == f"no expectation for this variant of {variant}"
    assert variant_of(load("nfcorpus/bm25-rand", "seed=7", "threads=1").recipe, shipped) == variant
