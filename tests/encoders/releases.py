"""What tests of released checkpoints share: their weights by name, and vectors that are the same."""

import numpy as np
import torch

LOWER = {"lowercase": True, "query": {"length_tokens": 24}, "document": {"length_tokens": 48, "template": "{text}"}}


def weights_of(encoder) -> dict[str, torch.Tensor]:
    return dict(encoder.towers.queries.model.state_dict())


def assert_same_vectors(encoder, expected, records, sides=("query", "document")):
    for side in sides:
        np.testing.assert_allclose(encoder.encode(records, side), expected.encode(records, side), atol=1e-5)
