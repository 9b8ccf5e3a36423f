"""A small recipe that loads, as a file."""

BASE = """
data: {kind: beir, folder: some/where}
encoder: {kind: transformer, model: some-model}
stages:
  only:
    steps: 10
    batch_queries: 4
    optimizer: {learning_rate: 1e-3}
    terms:
      query: {negatives: [{kind: random}, {kind: bm25, top_k: 50}], loss: {kind: nll, scale: 2}}
"""
