"""The bridge to Pyserini: Java, BM25, export, encoder classes and fusion; only it imports Pyserini."""
