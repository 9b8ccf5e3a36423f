"""`pyserini-ance adapt`: from documents, perhaps with queries, to a better retriever, or "keep the base"."""
