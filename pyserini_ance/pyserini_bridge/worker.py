"""Start the BM25 worker as a process: a job and records go in, its progress comes out on our stderr, its errors are ours."""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

TAIL_BYTES = 3000


def run_worker(job: dict[str, Any], records: Iterable[dict[str, str]] = ()) -> None:
    """Run `job`, feeding `records` as JSON lines. Raises RuntimeError with the last lines of a failed worker."""
    with tempfile.TemporaryDirectory(prefix="pyserini_ance.") as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job))
        command = [sys.executable, "-m", "pyserini_ance.pyserini_bridge.bm25_worker", str(path)]
        # Anserini logs to stdout
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            words = _feed_and_listen(worker, records)
        finally:
            worker.kill()  # after an error or Ctrl-C of ours; no effect on a worker that has ended
            worker.wait()
    if worker.returncode:
        raise RuntimeError(f"BM25 by Pyserini failed (exit status {worker.returncode}):\n{words}")


def _feed_and_listen(worker: subprocess.Popen, records: Iterable[dict[str, str]]) -> str:
    """Returns the end of what the worker wrote to its stderr, once it has closed it."""
    tail = bytearray()
    listener = threading.Thread(target=_pass_on, args=(worker.stderr, tail), daemon=True)
    listener.start()
    try:
        with worker.stdin as out:
            # plain ASCII, so that no text depends on how strings reach Java
            out.writelines(json.dumps(record).encode() + b"\n" for record in records)
    except BrokenPipeError:
        pass  # the worker died; its last words say why
    listener.join()
    worker.wait()
    return tail.decode(errors="replace").strip()


def _pass_on(stderr: BinaryIO, tail: bytearray) -> None:
    """Copy to our stderr as it comes, carriage returns of progress bars included."""
    while chunk := stderr.read1():
        sys.stderr.write(chunk.decode(errors="replace"))
        sys.stderr.flush()
        tail += chunk
        del tail[:-TAIL_BYTES]
