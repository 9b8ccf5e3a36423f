"""The verdict: dev chooses, test decides, and too few queries decide nothing."""

import numpy as np
import pytest

from pyserini_ance.adapt import verdict
from pyserini_ance.runs.rundir import RunDir

DOCUMENTS = [f"d{i}" for i in range(12)]
FAR, NEAR = [5] * 40, [0] * 40


def ranking(places):
    """Each query's relevant document d0 at its place, from 0."""
    found = {}
    for number, place in enumerate(places):
        order = [*DOCUMENTS[1 : place + 1], "d0", *DOCUMENTS[place + 1 :]]
        found[f"q{number}"] = {document: float(len(order) - rank) for rank, document in enumerate(order)}
    return found


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run with these places of the relevant document, by split and ranking; others are as the base's."""

    def make(dev, test):
        places = {"dev": dev, "test": test}
        names = (verdict.BASE, verdict.ONLY_BM25, verdict.BASE_FUSED, verdict.ADAPTED, verdict.FUSED)
        given = {split: {n: ranking(of.get(n, of["base"])) for n in names} for split, of in places.items()}
        monkeypatch.setattr(verdict, "rankings", lambda run, split: given[split])
        directory = RunDir(tmp_path)
        for split, of in places.items():
            directory.qrels(split).write_text("".join(f"q{i} 0 d0 1\n" for i in range(len(of["base"]))))
        return verdict.judge(directory, tmp_path / "model")

    return make


def test_a_better_model_is_recommended_with_its_evidence(run, tmp_path):
    far, near = [5, 6, 7, 8] * 10, [0, 1, 0, 0] * 10
    found = run({"base": far, "adapted": near}, {"base": far, "adapted": near})
    gain = np.mean(1 / np.log2(np.array(near) + 2)) - np.mean(1 / np.log2(np.array(far) + 2))
    assert found.better and found.chosen == "adapted"
    expected = f"Use {tmp_path / 'model'}: nDCG@10 over base {gain:+.3f}, p <0.001 (40 test queries)."
    assert found.sentence == expected
    assert "| adapted" in found.as_text()


def test_dev_chooses_and_test_only_decides(run):
    far, near = [5, 6] * 20, [0, 1] * 20
    found = run({"base": far, "adapted + BM25": near}, {"base": far, "adapted": near, "adapted + BM25": far})
    assert found.chosen == "adapted + BM25" and not found.better
    assert found.sentence.startswith("Keep the base model.")
    assert "model fused with BM25, over base +0.000, p 1.000." in found.sentence


def test_what_bm25_alone_gives_is_not_the_training_s(run):
    far, near = [5, 6, 7, 8] * 10, [0, 1, 0, 0] * 10
    dev = {"base": far, "base + BM25": [1, 2, 1, 2] * 10, "adapted + BM25": near}
    found = run(dev, {"base": far, "base + BM25": near, "adapted + BM25": near})
    assert found.chosen == "base + BM25" and found.better
    assert found.sentence.startswith("Use the base model fused with BM25: nDCG@10 over base +0.")
    assert "Not shown to be better: " in found.sentence
    assert "fused with BM25, over base +0.5" in found.sentence
    assert "over base + BM25 +0.000, p 1.000" in found.sentence
    better = run(dev, {"base": far, "base + BM25": [1, 2, 1, 2] * 10, "adapted + BM25": near})
    assert better.chosen == "adapted + BM25"
    assert "over base + BM25 +0." in better.sentence and "p <0.001 (40 test queries)" in better.sentence


@pytest.mark.parametrize(
    ("dev", "test", "sentence"),
    [
        ({"base": [1] * 40}, {"base": [1] * 40}, "Keep the base model: nothing is better on dev ("),
        ({"base": [5] * 9, "adapted": [0] * 9}, {"base": [5, 6, 7], "adapted": [0, 0, 1]}, "too few to tell"),
        ({"base": FAR, "adapted": NEAR}, {"base": NEAR, "adapted": FAR}, "Keep the base"),
        ({"base": FAR, "BM25": NEAR}, {"base": FAR, "BM25": NEAR}, "Use BM25 alone: nDCG@10 over base +0."),
    ],
)
def test_what_is_not_shown_to_be_better_is_not_recommended(run, dev, test, sentence):
    found = run(dev, test)
    assert sentence in found.sentence
    assert found.better == sentence.startswith("Use")
