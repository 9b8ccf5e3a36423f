"""What this machine has and what is missing: small checks, each with its cure. Imports neither Pyserini nor faiss."""
