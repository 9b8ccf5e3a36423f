"""Encoders: two towers and their tokenization; families/ of them; loading, saving and export."""
