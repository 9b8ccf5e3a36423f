"""Files on disk, locks and leases: written whole or not at all, read only when complete.

Knows nothing of retrieval.
"""
