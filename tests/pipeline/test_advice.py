"""What `mine --advise` tells, next to a slow loop; BM25 is a stand-in with random scores."""

import numpy as np
import pytest
from helpers.small_set import ONE_STEP

import pyserini_ance as pa
from pyserini_ance.negatives.filters.ranks_and_scores import RangeMin
from pyserini_ance.negatives.filters.texts import Answers
from pyserini_ance.pipeline.advice import ABOVE, BANDS, FILTERS, Advice, advise
from pyserini_ance.pyserini_bridge import bm25
from pyserini_ance.recipe.models import Encoding


@pytest.fixture
def lexical(monkeypatch) -> dict[str, dict[str, float]]:
    """BM25's scores by query and document: of half of all pairs."""
    found, rng = {}, np.random.default_rng(0)

    def retrieve(documents, jobs, *rest):
        ids = [id for id, _ in documents]
        for job in jobs:
            for query, _ in job.queries:
                scores = {id: round(float(rng.random()), 4) for id in rng.permutation(ids)[: len(ids) // 2]}
                found[query] = dict(sorted(scores.items(), key=lambda pair: -pair[1]))
            run = [(q, *pair, rank) for q, of in found.items() for rank, pair in enumerate(of.items(), 1)]
            job.output.parent.mkdir(parents=True, exist_ok=True)
            job.output.write_text("".join(f"{q} Q0 {d} {rank} {score} b\n" for q, d, score, rank in run))

    monkeypatch.setattr(bm25, "retrieve", retrieve)
    return found


def scaled(scores: np.ndarray) -> np.ndarray:
    return (scores - scores.min()) / (scores.max() - scores.min())


def test_shares_are_those_of_a_slow_loop(small_recipe, tiny_bert, lexical, tmp_path):
    settings = small_recipe({"a": ONE_STEP}).data.model_dump(mode="json")
    collection = pa.load_collection(settings, cache=tmp_path)
    encoder, encoding = pa.load_encoder(tiny_bert, device="cpu"), Encoding(precision="fp32")
    given = [RangeMin(ranks=2)]
    advice = advise(encoder, collection, "train", given, seed=1, encoding=encoding, cache=tmp_path)
    split, documents = collection.split("train"), collection.documents
    texts = [documents[row] for row in range(len(documents))]
    queries = encoder.encode(split.queries.columns["text"], "query")
    passages = encoder.encode(texts, "document")
    seen = {first: [] for first, _ in BANDS}
    left, positives_found = [], {first: [] for first in seen}
    for row in split.known_positives("query").anchors.tolist():
        scores, of_words = queries[row] @ passages.T, lexical[split.queries.ids[row]]
        positives = split.qrels.relevant(row).tolist()
        fused = scaled(scores) + scaled(np.array([of_words.get(id, 0.0) for id in documents.ids]))
        best, mean, ranked = max(scores[positives]), scores.mean(), np.argsort(-scores).tolist()
        left.append(sum(other not in positives for other in ranked[2:]))
        for first, last in BANDS:
            positives_found[first].append(bool({*positives} & {*ranked[:last]}))
            for one in {*ranked[first - 1 : last]} - {*positives}:
                of_the_way = (scores[one] - mean) / (best - mean)
                facts = fused[one] > max(fused[positives]), scores[one] > best, of_the_way
                seen[first].append((*facts, documents.ids[one] in of_words))
    for band, (first, facts) in zip(advice.bands, seen.items(), strict=True):
        suspected, above, of_the_way, in_words = np.array(facts or [[0, 0, 0, 0]]).T
        expected = [suspected.mean(), above.mean(), np.median(of_the_way), in_words.mean()]
        assert band["candidates"] == len(facts)
        found = [value for value in band.values() if isinstance(value, float)]
        assert found == pytest.approx([*expected, np.mean(positives_found[first])], rel=1e-3, abs=1e-6)
    assert [row["filter"] for row in advice.filters] == [*FILTERS, "given"]
    assert advice.filters[-1]["candidates left"] == f"{np.mean(left):.1f}"
    everything = [suspected for facts in seen.values() for suspected, *_ in facts]
    suspected = advice.filters[0]["suspected"]
    assert suspected == pytest.approx(np.mean(everything)) and 0.05 < suspected < 0.95
    with pytest.raises(ValueError, match="have no answers"):
        advise(encoder, collection, "train", [Answers()], seed=1, encoding=encoding, cache=tmp_path)


@pytest.mark.parametrize(("hard", "method"), [(0.2, "distilled"), (0.1, "recommended")])
def test_the_suggestion_is_a_recipe(hard, method):
    """A teacher where many candidates beat the positive."""
    shown = Advice([{"ranks": "1-5", ABOVE: hard}], [{"filter": "none"}], {"search": 1.25}).describe()
    assert f"suggestion: extends: [_base/minilm, _methods/{method}]" in shown
    pa.load_recipe("demo/" + method)
