"""BM25 by Pyserini's Lucene, in a separate process: Java never runs in a training process."""

import io
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from pyserini_ance.storage.publish import AppearedConcurrently, whole_folder

TAIL_BYTES = 3000


class Bm25Settings(Protocol):
    """The settings of BM25.

    index: `build`, a Lucene index folder, or the name of a prebuilt index of Pyserini. rm3: a pydantic
        model, or None.
    """

    @property
    def k1(self) -> float: ...
    @property
    def b(self) -> float: ...
    @property
    def threads(self) -> int: ...
    @property
    def index(self) -> str: ...
    @property
    def rm3(self) -> Any: ...


class Bm25Job(NamedTuple):
    """A TREC run to write: the best `hits` documents of each query (id, text), by BM25 or by BM25 and RM3."""

    queries: list[tuple[str, str]]
    hits: int
    output: Path
    rm3: bool = False


def retrieve(
    documents: Iterable[tuple[str, str]] | None,
    rankings: Sequence[Bm25Job],
    settings: Bm25Settings,
    index_folder: Path | None,
    total: int | None = None,
) -> None:
    """Write the runs in one process, because Java starts slowly; a query without hits has no lines.

    documents: (id, contents), read only if `settings.index` is `build` and `index_folder` does not exist.
        The folder appears when it is complete; with `settings.rm3` the index has document vectors.
    total: the number of documents, for the progress bar.
    Raises RuntimeError with the end of the error output if Java or Pyserini fails.
    """
    rm3 = settings.rm3 and settings.rm3.model_dump()
    job = {
        "k1": settings.k1,
        "b": settings.b,
        "rm3": rm3,
        "threads": settings.threads,
        "rankings": [_as_json(ranking) for ranking in rankings],
    }
    if settings.index != "build":
        run_worker({**job, "index": settings.index, "build": False})
        return
    assert index_folder is not None, "an index that is built has a folder"
    if index_folder.exists():
        run_worker({**job, "index": str(index_folder.absolute()), "build": False})
    elif documents is None:
        raise FileNotFoundError(
            f"there is no BM25 index at {index_folder}, and no documents were passed to build it from"
        )
    else:
        records = ({"id": id, "contents": contents} for id, contents in documents)
        # If another process has published the same index in the meantime, the runs are written nevertheless.
        with suppress(AppearedConcurrently), whole_folder(index_folder) as temporary:
            run_worker({**job, "index": str(temporary.absolute()), "build": True, "total": total}, records)


def _as_json(ranking: Bm25Job) -> dict[str, Any]:
    output = ranking.output.absolute()
    output.parent.mkdir(parents=True, exist_ok=True)
    return {"queries": ranking.queries, "hits": ranking.hits, "output": str(output), "rm3": ranking.rm3}


def run_worker(job: dict[str, Any], records: Iterable[dict[str, str]] = ()) -> None:
    """Run `job` in a worker process, which reads `records` as JSON lines; its progress bars appear on stderr.

    Raises RuntimeError with the end of the worker's error output if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="pyserini_ance.") as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job))
        command = [sys.executable, "-m", "pyserini_ance.pyserini_bridge.bm25_worker", str(path)]
        # Anserini logs to stdout.
        worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            message = _feed(worker, records)
        finally:
            worker.kill()  # after an error or Ctrl-C in this process; no effect on a worker that has ended
            worker.wait()
    if worker.returncode:
        raise RuntimeError(f"BM25 by Pyserini failed (exit status {worker.returncode}):\n{message}")


def _feed(worker: subprocess.Popen[bytes], records: Iterable[dict[str, str]]) -> str:
    """Write the records, wait for the worker, and return the end of its stderr."""
    assert worker.stdin is not None and worker.stderr is not None
    tail = bytearray()
    reader = threading.Thread(
        target=_forward, args=(cast(io.BufferedReader, worker.stderr), tail), daemon=True
    )
    reader.start()
    # The pipe breaks if the worker dies; its error output says why.
    with suppress(BrokenPipeError), worker.stdin as out:
        # ASCII, so that no text depends on how strings reach Java.
        out.writelines(json.dumps(record).encode() + b"\n" for record in records)
    reader.join()
    worker.wait()
    return tail.decode(errors="replace").strip()


def _forward(stderr: io.BufferedReader, tail: bytearray) -> None:
    """Copy the output to stderr as it arrives, with the carriage returns of progress bars; keep its end."""
    while chunk := stderr.read1():
        sys.stderr.write(chunk.decode(errors="replace"))
        sys.stderr.flush()
        tail += chunk
        del tail[:-TAIL_BYTES]
