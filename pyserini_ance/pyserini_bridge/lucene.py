"""A Lucene index, opened by Pyserini: of a folder, or of a name, under which Pyserini downloads it on first use."""

import os
from importlib.metadata import version

from pyserini_ance.pyserini_bridge.jvm import import_pyserini


def open_searcher(index: str, key: str):
    """Raises RuntimeError that names the recipe's `key` when there is no such index."""
    searcher_class = import_pyserini("pyserini.search.lucene").LuceneSearcher
    if os.path.isdir(index):
        return searcher_class(index)
    searcher = searcher_class.from_prebuilt_index(index)
    if searcher is None:
        raise RuntimeError(
            f"{key} {index!r} is no folder here, and Pyserini {version('pyserini')} has no prebuilt index of that name, "
            f"or could not download it (no network?). "
            f"Expected the folder of a Lucene index, or a name like `msmarco-v1-passage`{' (or `build`)' if key == 'bm25.index' else ''}."
        )
    return searcher
