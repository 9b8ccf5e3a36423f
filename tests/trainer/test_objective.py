import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling

from pyserini_ance.data.collection import SIDES, Qrels, Split
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.data.texts import SameTexts
from pyserini_ance.encoders.towers import Tower, TwoTower
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.term import Term
from pyserini_ance.trainer.batch import Batch, TermRows
from pyserini_ance.trainer.losses.base import Loss
from pyserini_ance.trainer.objective import Counts, term_losses, weighted_sum
from pyserini_ance.trainer.regularizers.alignment_and_uniformity import Uniformity

NONE = PADDING
RANDOM = {"kind": "random"}
NAN = math.nan
GRADED = Qrels.of([0, 0, 1], [0, 1, 3], [2, 1, 1], 2)
IN_BATCH = {"in_batch_negatives": True}
# A term, the side of its anchors, and how many texts compete for each anchor.
COMPETING = [(IN_BATCH, "query", [2, 2, 6]), (IN_BATCH, "document", [2, 2, 3])]
COMPETING += [({"negatives": [{"kind": "live", "top_k": 3}]}, "query", [2, 2, 3])]
GOT = {"mean": r"\(\)", "scores": r"\(2, 2\)", "number": "float", "x": None}


def qrels_of(*positives: list[int]) -> Qrels:
    pairs = [(query, document) for query, rows in enumerate(positives) for document in rows]
    return Qrels.of(*zip(*pairs, strict=True), [1] * len(pairs), len(positives))


def batch_of(queries, positives, negatives) -> Batch:
    rows = TermRows("query", *(np.array(part, np.int32) for part in (queries, positives, negatives)))
    return Batch(rows.anchors, {"query": rows})


def loss_of(term: dict, batch: Batch, qrels: Qrels, queries=None, documents=None) -> float:
    """Without vectors all scores are 0, so that a loss is the logarithm of how many documents compete."""
    queries = torch.zeros(len(batch.unique["query"]), 4) if queries is None else queries
    documents = torch.zeros(len(batch.unique["document"]), 4) if documents is None else documents
    anchor_sets = {side: AnchorSet(Split("train", None, qrels), side, 100) for side in ("query", "document")}
    terms, vectors = {"query": Term.model_validate(term)}, {"query": queries, "document": documents}
    towers = TwoTower(Tower([Pooling(4)]))
    return term_losses(terms, batch, anchor_sets, vectors, towers=towers)["query"].item()


def slow_loss(term: dict, batch: Batch, qrels: Qrels, queries, documents) -> float:
    query_vectors = dict(zip(batch.unique["query"].tolist(), queries.tolist(), strict=True))
    vectors = dict(zip(batch.unique["document"].tolist(), documents.tolist(), strict=True))
    losses = []
    for i, query in enumerate(batch.queries.tolist()):

        def score(row, query=query):
            return sum(a * b for a, b in zip(query_vectors[query], vectors[row], strict=True))

        known = set(qrels.relevant(query).tolist())
        own = batch.terms["query"]
        rows = own.negatives[i]
        if term.get("in_batch_negatives"):
            rows = [*own.positives.ravel(), *own.negatives.ravel()]
        positives = [score(int(row)) for row in batch.terms["query"].positives[i] if row != NONE]
        others = [row for row in map(int, rows) if row != NONE and row not in known]
        negatives = sorted(map(score, others), reverse=True)
        if (margin := term.get("false_negative_margin")) is not None:
            negatives = [s for s in negatives if s <= max(positives) + margin]
        competing = sum(math.exp(s) for s in negatives[: term.get("num_hardest")])
        each = [-math.log(math.exp(s) / (math.exp(s) + competing)) for s in positives]
        losses.append(sum(each) / len(each))
    return sum(losses) / len(losses)


def random_case(seed: int):
    """8 places for 7 queries (one twice), 1-4 positives each, several queries sharing documents."""
    rng = np.random.default_rng(seed)
    known = [rng.choice(25, rng.integers(1, 5), replace=False).tolist() for _ in range(7)]
    queries = [*rng.permutation(7), 3]
    positives = [known[query] + [NONE] * (4 - len(known[query])) for query in queries]
    allowed = [np.setdiff1d(np.arange(-1, 25), known[query]) for query in queries]
    batch = batch_of(queries, positives, [rng.choice(rows, 3) for rows in allowed])  # with repeats, padding
    generator = torch.Generator().manual_seed(seed)
    counts = (len(batch.unique[side]) for side in ("query", "document"))
    return batch, qrels_of(*known), *(torch.randn(count, 4, generator=generator) for count in counts)


@pytest.mark.parametrize("margin", [None, -0.5, 0.0, 0.1, 2.0])
@pytest.mark.parametrize("num_hardest", [None, 1, 2, 5])
@pytest.mark.parametrize("in_batch_negatives", [False, True])
def test_pools_and_false_negatives_agree_with_a_slow_loop(in_batch_negatives, num_hardest, margin):
    term = {"negatives": [RANDOM], "in_batch_negatives": in_batch_negatives, "num_hardest": num_hardest}
    cases = [random_case(seed) for seed in range(5)]
    masked = {**term, "false_negative_margin": margin}
    found = [loss_of(masked, *case) for case in cases]
    assert found == pytest.approx([slow_loss(masked, *case) for case in cases], rel=1e-5)
    assert (found != [loss_of(term, *case) for case in cases]) == (margin is not None)


def test_false_negatives_are_counted_positives_are_not_among_them():
    """Query 0 has the positives 0 (score 1) and 1 (score 5); its negatives score 5.05, 5.2 and 9."""
    batch = batch_of([0, 1], [[0, 1], [5, NONE]], [[2, 3, 4], [6, NONE, NONE]])
    documents = torch.tensor([[1.0], [5.0], [5.05], [5.2], [9.0], [3.0], [3.5]])
    anchor_sets = {"query": AnchorSet(Split("train", None, qrels_of([0, 1], [5])), "query", 100)}
    vectors = {"query": torch.ones(2, 1, requires_grad=True), "document": documents}
    settings = {"negatives": [RANDOM], "loss": {"kind": "nll", "scale": 1.0}}
    both = {"query": {**settings, "false_negative_margin": 0.1}, "plain": settings}
    terms = {name: Term.model_validate(term) for name, term in both.items()}
    batch.terms["plain"] = batch.terms["query"]
    counts = Counts()
    losses = term_losses(terms, batch, anchor_sets, vectors, counts=counts)
    assert {name: int(count) for name, count in counts.ignored.items()} == {"query": 3}
    assert {name: int(count) for name, count in counts.compared.items()} == {"query": 1, "plain": 2}
    first = (math.log(1 + math.exp(5.05 - 1)) + math.log(1 + math.exp(0.05))) / 2
    assert losses["query"].item() == pytest.approx(first / 2, rel=1e-5)  # query 1 has no negative left
    (gradient,) = torch.autograd.grad(losses["query"], vectors["query"])
    assert gradient.isfinite().all() and gradient[1] == 0


@pytest.mark.parametrize(
    ("negatives", "settings", "scored", "compared"),
    [
        ([[2, 3], [4, 5]], {"negatives": [RANDOM]}, None, 2),
        ([[NONE, NONE], [4, NONE]], {"negatives": [RANDOM]}, None, 1),
        ([[], []], {"in_batch_negatives": True}, None, 0),  # both queries have the same positive
        ([[2, 3], [4, 5]], {"negatives": [RANDOM], "false_negative_margin": -99}, None, 0),
        # A teacher's scores of the positive and of two negatives.
        ([[2, 3], [4, 5]], {"negatives": [RANDOM]}, [[1, 2, 3], [1, NAN, 2]], 2),
        ([[2, 3], [4, 5]], {"negatives": [RANDOM]}, [[NAN, 2, 3], [1, NAN, NAN]], 0),
    ],
)
def test_anchors_with_something_to_compare_are_counted(negatives, settings, scored, compared):
    batch, counts = batch_of([0, 1], [[0], [0]], negatives), Counts()
    if scored:
        settings = {**settings, "loss": "kl", "teacher": "hybrid"}
        batch.terms["query"] = replace(batch.terms["query"], teacher=np.array(scored, np.float32))
    anchor_sets = {"query": AnchorSet(Split("train", None, qrels_of([0], [0])), "query", 100)}
    vectors = {side: torch.ones(len(batch.unique[side]), 4) for side in ("query", "document")}
    term_losses({"query": Term.model_validate(settings)}, batch, anchor_sets, vectors, counts=counts)
    assert int(counts.compared["query"]) == compared


def test_false_negatives_among_live_candidates_are_ignored():
    """All candidates of a live source, positives included, are in `negatives`: 5 scores 3."""
    candidates = [[2, 0, 3], [6, 5, 4]]
    documents = torch.tensor([[1.0], [5.0], [5.05], [0.5], [9.0], [3.0], [3.05]])
    anchor_sets = {"query": AnchorSet(Split("train", None, qrels_of([0], [5])), "query", 100)}
    settings = {"negatives": [{"kind": "live", "top_k": 3}], "loss": {"kind": "ranknet"}}

    def loss(batch: Batch, **more) -> tuple[float, dict]:
        counts = Counts()
        vectors = {"query": torch.ones(2, 1), "document": documents[batch.unique["document"]]}
        terms = {"query": Term.model_validate({**settings, **more})}
        return term_losses(terms, batch, anchor_sets, vectors, counts=counts)["query"].item(), counts.ignored

    masked, ignored = loss(batch_of([0, 1], [[], []], candidates), false_negative_margin=0.1)
    assert int(ignored["query"]) == 2  # 2 above 0, and 4 above 5; not 6, which is within the margin
    left = batch_of([0, 1], [[], []], [[NONE, 0, 3], [6, 5, NONE]])
    assert masked == pytest.approx(loss(left)[0], rel=1e-6)


@pytest.mark.parametrize("term, side, competing", COMPETING)
def test_copies_of_a_query_or_of_its_positive_do_not_compete(term, side, competing):
    """Queries 0 and 1 have one text, and so have documents 6 and 7; scores are equal."""
    firsts = {"query": 0, "document": 6}
    same = {side: SameTexts(np.array([n, n + 1]), np.array([n, n])) for side, n in firsts.items()}
    split, others = Split("train", None, qrels_of([5], [6], [8])), {"query": 100, "document": 3}
    anchors, positives = np.arange(3), np.array([[5], [6], [8]])
    if side == "document":
        anchors, positives = positives[:, 0], anchors[:, None]
    negatives = np.array([[7], [7], [7]] if side == "query" else [[NONE]] * 3)
    if "in_batch_negatives" not in term:
        positives, negatives = positives[:, :0], np.array([[5, 6, 9], [7, 6, 9], [8, 7, 9]])
    batch = Batch(np.arange(3), {"it": TermRows(side, anchors, positives, negatives)})
    vectors = {one: torch.zeros(len(batch.unique[one]), 4) for one in ("query", "document")}
    terms = {"it": Term.model_validate({"anchor": side, "negatives": [RANDOM], **term})}
    anchor_sets = {side: AnchorSet(split, side, others[side], same=same)}
    found = term_losses(terms, batch, anchor_sets, vectors)["it"].item()
    assert found == pytest.approx(sum(map(math.log, competing)) / 3)


def test_ndcg_has_the_grades_of_the_judgments_as_gains():
    """Scores are equal, so the less relevant rank higher: negatives, document 1 (grade 1), 0 (grade 2)."""
    loss, third = {"kind": "lambdarank", "measure": "nDCG"}, 1 / math.log2(3)
    # Of pairs (0, 1), (0, 2) and (1, 2): gains and discounts swapped.
    own = [1 * abs(third - 1 / 2), 2 * (1 - 1 / 2), 1 * (1 - third)]
    one = batch_of([0], [[0, 1]], [[2]])
    expected = sum(own) / 3 * math.log(2) / (2 + third)
    assert loss_of({"negatives": [RANDOM], "loss": loss}, one, GRADED) == pytest.approx(expected)
    step = batch_of([0, 1], [[0, 1], [3, NONE]], [[2], [4]])
    places = {row: 1 / math.log2(1 + rank) for rank, row in enumerate((2, 3, 4, 1, 0), start=1)}
    gains = {0: 2, 1: 1, 2: 0, 3: 0, 4: 0}
    swaps = [(s, t) for s in (0, 1) for t in gains if gains[s] > gains[t]]
    pairs = [(gains[s] - gains[t]) * abs(places[s] - places[t]) for s, t in swaps]
    second = [1 / math.log2(1 + rank) - 1 / math.log2(1 + 5) for rank in (1, 2, 3, 4)]
    expected = (sum(pairs) / len(pairs) / (2 + third) + sum(second) / 4) / 2 * math.log(2)
    in_batch = {"in_batch_negatives": True, "negatives": [RANDOM], "loss": loss}
    assert loss_of(in_batch, step, GRADED) == pytest.approx(expected)


def test_the_dual_term_is_the_nll_of_each_positive_over_queries():
    queries, positives = np.array([0, 2]), np.array([[4], [1]])
    rows = {"query": TermRows("query", queries, positives, np.array([[5], [5]]))}
    rows["document"] = TermRows("document", positives[:, 0], queries[:, None], np.array([[1], [3]]))
    batch = Batch(queries, rows)
    generator = torch.Generator().manual_seed(0)
    shapes = {side: (len(batch.unique[side]), 4) for side in ("query", "document")}
    drawn = {side: torch.randn(shape, generator=generator) for side, shape in shapes.items()}
    vectors = {side: each.double().requires_grad_() for side, each in drawn.items()}
    assert batch.unique["query"].tolist() == [0, 1, 2, 3] and batch.unique["document"].tolist() == [1, 4, 5]
    nll = {"negatives": [RANDOM], "loss": {"kind": "nll", "scale": 2.0}}
    terms = {side: Term.model_validate({"anchor": side, **nll}) for side in rows}
    split = Split("train", None, qrels_of([4], [2], [1], [0]))
    anchor_sets = {side: AnchorSet(split, side, 100) for side in ("query", "document")}
    found = term_losses(terms, batch, anchor_sets, vectors)
    q, d = (dict(zip(batch.unique[side].tolist(), vectors[side], strict=True)) for side in rows)

    def nll_of(own: dict, others: dict, anchor: int, positive: int, negative: int) -> torch.Tensor:
        return torch.log1p(torch.exp(2 * own[anchor] @ (others[negative] - others[positive])))

    expected = {"query": [nll_of(q, d, 0, 4, 5), nll_of(q, d, 2, 1, 5)]}
    expected["document"] = [nll_of(d, q, 4, 0, 1), nll_of(d, q, 1, 2, 3)]
    for side, each in expected.items():
        torch.testing.assert_close(found[side], sum(each) / 2)
    torch.testing.assert_close(weighted_sum(terms, found), sum(map(sum, expected.values())) / 2)


@pytest.mark.parametrize("anchor", ["query", "document"])
@pytest.mark.parametrize("seed", range(3))
def test_a_regularizer_sees_passages_and_pairs_of_the_best_ones(anchor, seed):
    """Against loops: each passage of a positive is a text; in a pair it is the one with the highest score."""
    rng = np.random.default_rng(seed)
    queries, positives = np.array([4, 2, 4, 5], np.int32), np.array([[7], [9], [8], [7]], np.int32)
    rows = TermRows("query", queries, positives, rng.integers(10, 13, (4, 2)).astype(np.int32))
    if anchor == "document":
        rows = TermRows("document", positives[:, 0], queries[:, None], np.empty((4, 0), np.int32))
    batch = Batch(queries, {"even": rows})
    documents = batch.unique["document"].tolist()
    passages = Passages.of_counts(rng.integers(1, 4, len(documents)))
    generator = torch.Generator().manual_seed(seed)
    asked = torch.randn(3, 4, generator=generator, dtype=torch.float64)  # of 2, 4, 5
    pieces = torch.randn(int(passages.offsets[-1]), 4, generator=generator, dtype=torch.float64)
    vectors = {"query": asked.requires_grad_(), "document": pieces.requires_grad_()}
    of = {row: pieces[a:b] for row, a, b in zip(documents, passages.offsets, passages.offsets[1:])}

    distances = []
    for query, document in ((4, 7), (2, 9), (4, 8), (5, 7)):
        vector = asked[[2, 4, 5].index(query)]
        best = max(of[document], key=lambda piece: (vector @ piece).item())
        distances.append((vector - best).square().sum())
    expected = {"alignment": sum(distances) / 4, "uniformity": 0}
    for texts in ([*asked], [piece for document in (7, 8, 9) for piece in of[document]]):
        near = [(-5 * (a - b).square().sum()).exp() for i, a in enumerate(texts) for b in texts[:i]]
        expected["uniformity"] += torch.log(sum(near) / len(near))

    anchor_sets = {anchor: AnchorSet(Split("train", None, qrels_of([0])), anchor, 100)}
    for kind, slow in expected.items():
        term = Term.model_validate({"anchor": anchor, "regularizer": kind})
        found = term_losses({"even": term}, batch, anchor_sets, vectors, passages)["even"]
        torch.testing.assert_close(found, slow)
        for tensor in vectors.values():
            gradients = [torch.autograd.grad(loss, tensor, retain_graph=True)[0] for loss in (found, slow)]
            torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("anchor", ["query", "document"])
@pytest.mark.parametrize("in_batch_negatives", [False, True])
def test_a_document_scores_as_its_best_passage_for_each_query(anchor, in_batch_negatives):
    batch, qrels, _, _ = random_case(0)
    if anchor == "document":
        queries, others = np.array([[0], [2], [1]], np.int32), np.array([[4, 3], [3, 5], [5, 5]], np.int32)
        rows = TermRows("document", np.array([4, 1, 4], np.int32), queries, others)
        batch, qrels = Batch(queries[:, 0], {"query": rows}), qrels_of([4], [4], [1], [], [], [])
    count = len(batch.unique["document"])
    passages = Passages.of_counts(np.random.default_rng(0).integers(1, 4, count))
    generator = torch.Generator().manual_seed(1)
    asked = torch.randn(len(batch.unique["query"]), 4, generator=generator).double()
    pieces = torch.randn(int(passages.offsets[-1]), 4, generator=generator).double().requires_grad_()
    settings = {"anchor": anchor, "negatives": [RANDOM], "in_batch_negatives": in_batch_negatives}
    terms = {"query": Term.model_validate(settings)}
    anchor_sets = {anchor: AnchorSet(Split("train", None, qrels), anchor, 100)}
    found = term_losses(terms, batch, anchor_sets, {"query": asked, "document": pieces}, passages)["query"]
    spans = zip(passages.offsets, passages.offsets[1:])
    best = torch.stack([(asked @ pieces[a:b].T).max(1).values for a, b in spans], 1)
    # One-hot documents over a query's row of `best` have exactly these scores.
    one_hot = {"query": best, "document": torch.eye(count).double()}
    expected = term_losses(terms, batch, anchor_sets, one_hot)["query"]
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(loss, pieces, retain_graph=True)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert (gradients[0].abs().sum(1) > 0).sum() > 2  # different queries have different best passages


class Encoded(torch.nn.Module):
    """Vectors that a model of sentence-transformers would give."""

    def __init__(self, dimension: int):
        super().__init__()
        self.get_embedding_dimension = lambda: dimension

    def forward(self, features):
        return {"sentence_embedding": features["vectors"]}


@pytest.mark.parametrize("dimensions", [[6, 2, 3], {6: 0.5, 2: 2.0}])
def test_dimensions_agree_with_the_matryoshka_loss_of_sentence_transformers(dimensions):
    batch = batch_of(range(4), [[row] for row in range(4)], np.empty((4, 0)))
    whole = {side: torch.randn(4, 6, generator=torch.manual_seed(len(side))) for side in SIDES}
    whole = {side: tensor.requires_grad_() for side, tensor in whole.items()}
    weights = dimensions if isinstance(dimensions, dict) else dict.fromkeys(dimensions, 1)
    peer = MultipleNegativesRankingLoss(Encoded(6), scale=5.0)
    matryoshka = MatryoshkaLoss(peer.model, peer, [*weights], [*weights.values()])
    expected = matryoshka([{"vectors": whole[side]} for side in SIDES], torch.empty(0))

    settings = {"in_batch_negatives": True, "loss": {"kind": "nll", "scale": 5.0}, "dimensions": dimensions}
    term, qrels = Term.model_validate(settings), qrels_of(*([row] for row in range(4)))
    anchor_sets = {"query": AnchorSet(Split("train", None, qrels), "query", 100)}
    towers = TwoTower(Tower([Pooling(6), Normalize()]))
    found = term_losses({"query": term}, batch, anchor_sets, whole, towers=towers)
    torch.testing.assert_close(found["query"], expected)
    for tensor in whole.values():
        losses = found["query"], expected
        gradients = [torch.autograd.grad(loss, tensor, retain_graph=True)[0] for loss in losses]
        torch.testing.assert_close(*gradients)
    assert Term.model_validate(term.model_dump(mode="json")) == term


@pytest.mark.parametrize(
    ("settings", "theirs"),
    [
        ({"same_side_negatives": True}, {"directions": ("query_to_doc", "query_to_query", "doc_to_doc")}),
        ({"hardness": 3.0}, {"hardness_mode": "all_negatives", "hardness_strength": 3.0}),
    ],
)
def test_negatives_of_the_same_side_and_weights_agree_with_sentence_transformers(settings, theirs):
    batch = batch_of(range(4), [[row] for row in range(4)], np.empty((4, 0)))
    given = [torch.randn(4, 6, generator=torch.manual_seed(seed)) for seed in (1, 2)]
    queries, documents = (torch.nn.functional.normalize(each).requires_grad_() for each in given)
    peer = MultipleNegativesRankingLoss(Encoded(6), scale=5.0, **theirs)
    expected = peer([{"vectors": queries}, {"vectors": documents}], torch.empty(0))
    hardness = settings.pop("hardness", 0.0)
    loss = {"kind": "nll", "scale": 5.0, "hardness": hardness}
    term = {"in_batch_negatives": True, "loss": loss, **settings}
    found = loss_of(term, batch, qrels_of(*([row] for row in range(4))), queries, documents)
    assert found == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("kind", ["hinge", "ranknet", "lambdarank", "lse_pair"])
def test_every_loss_takes_negatives_of_the_same_side(kind):
    batch = batch_of(range(4), [[row] for row in range(4)], np.empty((4, 0)))
    term = {"in_batch_negatives": True, "same_side_negatives": True, "loss": {"kind": kind}}
    assert math.isfinite(loss_of(term, batch, qrels_of(*([row] for row in range(4)))))


def test_other_queries_with_the_same_document_are_no_negatives_of_the_same_side():
    batch = batch_of([0, 1, 2], [[0], [0], [1]], np.empty((3, 0)))
    term = {"in_batch_negatives": True, "same_side_negatives": True}
    # All scores are 0. Two queries share a document: each of them has one other document, one query that is
    # no negative and one that is, and one document beside its own; the third has two of each.
    found = loss_of(term, batch, qrels_of([0], [0], [1]))
    assert found == pytest.approx((2 * math.log(1 + 3) + math.log(1 + 6)) / 3)


def test_the_hardest_are_of_those_that_a_teacher_has_scored():
    batch, vectors = batch_of([0], [[0]], [[1, 2, 3]]), torch.tensor([[0.5, 0], [0.9, 0], [0.4, 0], [0.3, 0]])
    asked, losses = torch.tensor([[1.0, 0]]), []
    for scores, hardest in (([2, np.nan, 1, np.nan], None), ([2, np.nan, 1, 0], 1)):
        rows = replace(batch.terms["query"], teacher=np.array([scores], np.float32))
        term = {"negatives": ["ann"], "loss": "kl", "teacher": "student", "num_hardest": hardest}
        losses.append(loss_of(term, replace(batch, terms={"query": rows}), qrels_of([0]), asked, vectors))
    assert losses[0] == pytest.approx(losses[1]) and losses[0] > 0.01


def test_a_tower_that_does_not_normalize_is_cut_alone():
    batch, qrels, queries, documents = random_case(0)
    term = {"negatives": [RANDOM], "num_hardest": 2}
    each = [slow_loss(term, batch, qrels, queries[:, :size], documents[:, :size]) for size in (4, 2)]
    found = loss_of({**term, "dimensions": [4, 2]}, batch, qrels, queries, documents)
    assert found == pytest.approx(sum(each), rel=1e-5)


class Own(Loss):
    returned: str

    def __call__(self, scores, labels, mask):
        return {"mean": scores.mean(), "scores": scores, "number": 1.0}[self.returned]


@pytest.mark.parametrize("returned, got", GOT.items())
def test_a_loss_that_is_no_value_per_anchor_or_fails_is_named(returned, got):
    batch = batch_of([0, 1], [[0], [1]], [[2], [3]])
    term = {"negatives": [RANDOM], "loss": Own(returned=returned)}
    message = rf"loss {__name__}:Own of term query returned {got}; expected .* scores \(2, 2\): \(2,\)"
    with pytest.raises(ValueError if got else KeyError, match=message if got else "x") as error:
        loss_of(term, batch, qrels_of([0], [1]))
    assert got or error.value.__notes__ == [f"raised in __call__ of {__name__}:Own"]


def test_gradients_push_apart_and_stay_finite_where_vectors_are_equal():
    anchors = torch.tensor([[1.0, 0], [1, 0], [0, 1]], requires_grad=True)
    Uniformity()(anchors, torch.eye(2)[:1], torch.empty(0, 2).long()).backward()
    assert torch.isfinite(anchors.grad).all() and anchors.grad[2, 1] < 0


def test_a_single_text_is_uniform():
    vectors = torch.ones(1, 3, requires_grad=True)
    found = Uniformity()(vectors, vectors, torch.tensor([[0, 0]]))
    found.backward()
    assert found.item() == 0 and vectors.grad.abs().sum() == 0
