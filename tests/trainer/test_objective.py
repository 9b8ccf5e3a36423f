import math

import numpy as np
import pytest
import torch

from pyserini_ance.data.collection import Qrels
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.models import Term
from pyserini_ance.trainer.batch import Batch
from pyserini_ance.trainer.objective import term_losses, weighted_sum

NONE = PADDING
RANDOM = {"kind": "random"}


def qrels_of(*positives: list[int]) -> Qrels:
    pairs = [(query, document) for query, rows in enumerate(positives) for document in rows]
    return Qrels.of(*zip(*pairs, strict=True), [1] * len(pairs), len(positives))


def batch_of(queries, positives, negatives) -> Batch:
    return Batch(np.array(queries, np.int32), np.array(positives, np.int32), {"query": np.array(negatives, np.int32)})


def loss_of(term: dict, batch: Batch, qrels: Qrels, queries=None, documents=None) -> float:
    """Without vectors all scores are 0, so that a loss is the logarithm of how many documents compete."""
    queries = torch.zeros(len(batch.unique_queries), 4) if queries is None else queries
    documents = torch.zeros(len(batch.unique_documents), 4) if documents is None else documents
    return term_losses({"query": Term.model_validate(term)}, batch, qrels, queries, documents)["query"].item()


def slow_loss(term: dict, batch: Batch, qrels: Qrels, queries: torch.Tensor, documents: torch.Tensor) -> float:
    query_vectors = dict(zip(batch.unique_queries.tolist(), queries.tolist(), strict=True))
    vectors = dict(zip(batch.unique_documents.tolist(), documents.tolist(), strict=True))
    losses = []
    for i, query in enumerate(batch.queries.tolist()):

        def score(row):
            return sum(a * b for a, b in zip(query_vectors[query], vectors[row], strict=True))

        known = set(qrels.relevant(query).tolist())
        rows = [*batch.positives.ravel(), *batch.negatives["query"].ravel()] if term.get("pool") == "step" else batch.negatives["query"][i]
        negatives = sorted((score(int(row)) for row in rows if row != NONE and int(row) not in known), reverse=True)
        competing = sum(math.exp(s) for s in negatives[: term.get("hardest")])
        positives = [score(int(row)) for row in batch.positives[i] if row != NONE]
        losses.append(sum(-math.log(math.exp(s) / (math.exp(s) + competing)) for s in positives) / len(positives))
    return sum(losses) / len(losses)


def random_case(seed: int):
    """8 places in the batch for 7 queries (one comes twice), 1-4 positives each, several queries sharing documents."""
    rng = np.random.default_rng(seed)
    known = [rng.choice(25, rng.integers(1, 5), replace=False).tolist() for _ in range(7)]
    queries = [*rng.permutation(7), 3]
    positives = [known[query] + [NONE] * (4 - len(known[query])) for query in queries]
    allowed = [np.setdiff1d(np.arange(-1, 25), known[query]) for query in queries]
    batch = batch_of(queries, positives, [rng.choice(rows, 3) for rows in allowed])  # with repeats and padding
    generator = torch.Generator().manual_seed(seed)
    vectors = (torch.randn(len(rows), 4, generator=generator) for rows in (batch.unique_queries, batch.unique_documents))
    return batch, qrels_of(*known), *vectors


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("hardest", [None, 1, 2, 5])
@pytest.mark.parametrize("pool", ["own", "step"])
def test_pools_agree_with_a_slow_loop(pool, hardest, seed):
    term = {"negatives": [RANDOM], "pool": pool, "hardest": hardest}
    case = random_case(seed)
    assert loss_of(term, *case) == pytest.approx(slow_loss(term, *case), rel=1e-5)


def test_own_pool_counts_the_querys_own_negatives():
    batch = batch_of([0, 1], [[0], [1]], [[2, 3, 4], [5, 6, NONE]])
    assert loss_of({"negatives": [RANDOM]}, batch, qrels_of([0], [1])) == pytest.approx((math.log(4) + math.log(3)) / 2)


def test_duplicates_carry_weight():
    own = batch_of([0], [[0]], [[2, 2, 2]])
    assert loss_of({"negatives": [RANDOM]}, own, qrels_of([0])) == pytest.approx(math.log(4))
    step = batch_of([0, 1], [[0], [1]], [[2], [2]])  # each query: the other's positive, and document 2 twice
    assert loss_of({"pool": "step"}, step, qrels_of([0], [1])) == pytest.approx(math.log(4))


def test_step_pool_masks_what_is_known_to_be_positive():
    batch = batch_of([0, 1], [[0], [1]], [[2], [3]])
    assert loss_of({"pool": "step"}, batch, qrels_of([0], [1])) == pytest.approx(math.log(4))
    assert loss_of({"pool": "step"}, batch, qrels_of([0, 3], [1])) == pytest.approx((math.log(3) + math.log(4)) / 2)
    assert loss_of({"pool": "step"}, batch, qrels_of([0, 1, 3], [1, 0, 2])) == pytest.approx(math.log(2))


def test_step_pool_without_negatives_is_in_batch_training():
    batch = batch_of([0, 1, 2], [[0], [1], [2]], np.empty((3, 0)))
    assert loss_of({"pool": "step"}, batch, qrels_of([0], [1], [2])) == pytest.approx(math.log(3))


def test_step_pool_does_not_set_a_query_that_comes_twice_against_itself():
    batch = batch_of([0, 0, 1], [[0], [0], [1]], np.empty((3, 0)))
    assert loss_of({"pool": "step"}, batch, qrels_of([0], [1])) == pytest.approx((2 * math.log(2) + math.log(3)) / 3)


def test_hardest_takes_the_negative_that_scores_highest_now():
    batch = batch_of([0], [[0]], [[1, 2, 3]])
    documents = torch.tensor([[1.0], [-2.0], [3.0], [2.0]])
    found = loss_of({"negatives": [RANDOM], "hardest": 1}, batch, qrels_of([0]), torch.tensor([[1.0]]), documents)
    assert found == pytest.approx(math.log(1 + math.exp(3 - 1)))


def test_several_positives_are_averaged_and_do_not_compete():
    batch = batch_of([0, 1], [[0, 1], [2, NONE]], [[3], [4]])
    documents = torch.tensor([[math.log(2)], [math.log(4)], [0.0], [0.0], [0.0]])
    found = loss_of({"negatives": [RANDOM]}, batch, qrels_of([0, 1], [2]), torch.ones(2, 1), documents)
    of_first, of_second = (math.log(3 / 2) + math.log(5 / 4)) / 2, math.log(2)
    assert found == pytest.approx((of_first + of_second) / 2)


def test_weights_multiply_terms():
    terms = {"a": Term(pool="step", weight=1.0), "b": Term(pool="step", weight=0.1)}
    assert weighted_sum(terms, {"a": torch.tensor(2.0), "b": torch.tensor(30.0)}).item() == pytest.approx(5.0)
