"""Encoders: two towers of sentence-transformers' modules, and their tokenization; loading and saving."""
