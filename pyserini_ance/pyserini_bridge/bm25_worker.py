"""The worker process of BM25, with Java: `python -m pyserini_ance.pyserini_bridge.bm25_worker job.json`."""

import itertools
import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from pyserini_ance import __version__
from pyserini_ance.pyserini_bridge.java import import_pyserini
from pyserini_ance.pyserini_bridge.run_writer import search_into_run
from pyserini_ance.pyserini_bridge.searchers import open_anserini_searcher, open_searcher
from pyserini_ance.storage.files import write_json
from pyserini_ance.storage.liveness import temp_path
from pyserini_ance.storage.progress import progress_bar

DOCUMENTS_PER_CALL = 2000
QUERIES_PER_CALL = 256
TAG = "bm25"


def index(job: dict[str, Any]) -> None:
    """Index the JSON lines {"id", "contents"} of stdin. Raises RuntimeError if Lucene lost documents."""
    lucene = import_pyserini("pyserini.index.lucene")
    start = time.time()
    received = blank = 0
    # RM3 takes terms from document vectors, which BM25 does not need.
    vectors = {"args": ["-index", job["index"], "-storeDocvectors"]} if job["rm3"] else {}
    indexer = lucene.LuceneIndexer(job["index"], threads=job["threads"], **vectors)
    with progress_bar(total=job["total"], desc="BM25 index", unit=" documents") as bar:
        for lines in itertools.batched(sys.stdin, DOCUMENTS_PER_CALL):
            indexer.add_batch_raw(list(lines))
            blank += sum(not json.loads(line)["contents"].strip() for line in lines)
            received += len(lines)
            bar.update(len(lines))
    indexer.close()
    indexed = lucene.LuceneIndexReader(job["index"]).stats()["documents"]
    if indexed < received - blank:  # Anserini skips blank documents, and does not report errors
        raise RuntimeError(
            f"Lucene indexed {indexed:,} of {received - blank:,} documents that are not blank; is the disk "
            "full?"
        )
    about = {
        "kind": "lucene index for BM25",
        "documents": indexed,
        "blank_left_out": received - indexed,
        "seconds": round(time.time() - start, 1),
        "versions": {"pyserini_ance": __version__, "pyserini": version("pyserini")},
    }
    write_json(Path(job["index"]) / "about.json", about)


def search(job: dict[str, Any], scratch: Path) -> None:
    """Write the job's rankings, each to a temporary file that is then renamed; parts of it are in the folder
    `scratch` in between."""
    expanding = open_searcher(job["index"], "bm25.index") if job["rm3"] else None
    searcher = expanding.object if expanding else open_anserini_searcher(job["index"], "bm25.index")
    searcher.set_bm25(float(job["k1"]), float(job["b"]))
    for ranking in job["rankings"]:
        if expanding:
            _expand_queries(expanding, job, ranking["rm3"])
        output = Path(ranking["output"])
        temporary = temp_path(output, "tmp")
        try:
            with open(temporary, "w", encoding="utf-8") as run:
                _write(run, searcher, ranking, job["threads"], scratch / "part")
                run.flush()
                os.fsync(run.fileno())
            os.replace(temporary, output)
        finally:
            temporary.unlink(missing_ok=True)


def _expand_queries(searcher: Any, job: dict[str, Any], rm3: bool) -> None:
    if not rm3:
        searcher.unset_rm3()
        return
    try:
        searcher.set_rm3(**job["rm3"])
    except TypeError as error:
        raise RuntimeError(
            f"bm25.rm3: {error} The index is {job['index']}; "
            "pass one that was built with -storeDocvectors, set bm25.index=build, or remove bm25.rm3"
        ) from error


def _write(run: TextIO, searcher: Any, ranking: dict[str, Any], threads: int, part: Path) -> None:
    """Write a ranking, block by block; `part` is the file of a block."""
    tag = f"{TAG}+rm3" if ranking["rm3"] else TAG
    with progress_bar(total=len(ranking["queries"]), desc="BM25 search", unit=" queries") as bar:
        for queries in itertools.batched(ranking["queries"], QUERIES_PER_CALL):
            run.writelines(search_into_run(searcher, queries, ranking["hits"], threads, tag, part))
            bar.update(len(queries))


def use_little_memory() -> None:
    """Choose the serial garbage collector, before Java starts.

    5,000 documents and 4,500 queries took 2.7 GB with the default collector, and 1.5 GB with this one, at
    equal speed.
    """
    import jnius_config

    jnius_config.add_options("-XX:+UseSerialGC")


def main() -> None:
    """Run the job in the file that is the only argument."""
    job = json.loads(Path(sys.argv[1]).read_text())
    use_little_memory()
    try:
        if job["build"]:
            index(job)
        search(job, Path(sys.argv[1]).parent)
    except (RuntimeError, ValueError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
