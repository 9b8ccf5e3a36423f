"""Rerankers: models that read a query and a document together, and score the pair."""
