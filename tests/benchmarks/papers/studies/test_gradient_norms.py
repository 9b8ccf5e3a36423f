"""Gradient norms, against autograd on the towers alone and against the closed form at the last layer."""

import math

import numpy as np
import pytest
import torch

from benchmarks.papers.studies.gradient_norms import GradientNorms, study
from pyserini_ance.encoders.encoder import padded_batch


def test_one_pair_against_autograd_and_the_closed_form(studied):
    data, snapshot = studied.data, studied.result
    query, negative, scale = 3, 20, 0.1
    positive = int(data.anchor_sets["query"].known_positives.of(query)[0])
    found = GradientNorms(studied, snapshot)(query, positive, negative)

    encoder = snapshot.encoder

    def vector(side: str, row: int) -> torch.Tensor:
        tokens = data.documents if side == "document" else data.queries["train"]
        batch = padded_batch(tokens, np.array([row]), encoder.length_tokens(side), torch.device("cpu"))
        return encoder.towers(side, *batch)[0]

    q, good, bad = vector("query", query), vector("document", positive), vector("document", negative)
    margin = scale * (q @ bad - q @ good)
    loss = torch.nn.functional.softplus(margin)
    weights = [weight for weight in encoder.towers.parameters() if weight.requires_grad]
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients if g is not None))
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert found["gradient_norm"] == pytest.approx(norm, rel=1e-4)
    # d loss / d margin is sigmoid(margin); the gradients of q, d+ and d- are it times d- - d+, -q and q.
    slope = scale * torch.sigmoid(margin).item()
    last = slope * math.sqrt(((bad - good).square().sum() + 2 * q.square().sum()).item())
    assert found["last_layer_norm"] == pytest.approx(last, rel=1e-4)


def test_each_query_has_a_norm_for_each_source_and_no_gradient_is_left(studied):
    findings = study([studied])
    assert [row["source"] for row in findings.summary] == ["in-batch", "NCE", "random", "ANN"]  # no BM25
    assert len(findings.rows) == sum(row["queries"] for row in findings.summary) == 40
    assert all(weight.grad is None for weight in studied.result.encoder.towers.parameters())
    own = [row["gradient_norm"] for row in findings.rows if row["source"] == "in-batch"]
    assert findings.summary[0]["gradient_norm"] == pytest.approx(np.mean(own))
