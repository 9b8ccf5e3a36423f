"""Vectors of a collection: encoded into a store once, then searched exactly or through a Faiss index."""
