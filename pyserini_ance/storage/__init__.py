"""Files on disk: written whole or not at all, read only when complete. The lowest room: knows nothing of retrieval."""
