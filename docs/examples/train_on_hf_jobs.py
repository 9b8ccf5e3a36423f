# /// script
# requires-python = ">=3.12"
# dependencies = ["huggingface_hub>=2"]
# ///
"""Train FOLDER/recipe.yaml on Hugging Face Jobs, and keep FOLDER and the run in a bucket.

    pip wheel --no-deps --wheel-dir FOLDER .    # in a checkout of pyserini_ance
    uv run train_on_hf_jobs.py FOLDER USER/BUCKET [--flavor a10g-large] [--hours 12]

FOLDER holds the recipe, the data that it names by relative paths, and the wheel. A job stops before its time
is over; the same command resumes it. To fetch the run: hf buckets sync hf://buckets/USER/BUCKET/NAME RUNS
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

STORE = "/store"
MARGIN_SECONDS = 900  # for the last checkpoint, and the copy of the run


def launch(folder: Path, bucket: str, flavor: str, hours: int) -> str:
    """Start the job; return its address."""
    from huggingface_hub import HfApi, Volume

    if not (wheels := sorted(folder.glob("pyserini_ance-*.whl"))):
        sys.exit(f"{folder} has no wheel; in a checkout: pip wheel --no-deps --wheel-dir {folder} .")
    name = folder.resolve().name
    extra = "cpu" if flavor.startswith("cpu") else "gpu"
    api = HfApi()
    api.create_bucket(bucket, private=True, exist_ok=True)
    api.sync_bucket(str(folder), f"hf://buckets/{bucket}/{name}")  # the bucket keeps its runs
    job = api.run_uv_job(
        __file__,
        script_args=["--work", f"{STORE}/{name}", str(hours)],
        dependencies=[f"pyserini_ance[{extra}] @ file://{STORE}/{name}/{wheels[-1].name}"],
        flavor=flavor,
        timeout=f"{hours}h",
        volumes=[Volume(type="bucket", source=bucket, mount_path=STORE)],
    )
    return job.url


def work(store: Path, hours: float) -> int:
    """In the job: train on the machine's own disk, as a mounted store has no locks and no atomic rename; then
    copy the run to the store. A copy counts once `run-N.done` is there."""
    local, done = Path(tempfile.mkdtemp()) / "work", sorted(store.glob("run-*.done"))
    shutil.copytree(store, local, ignore=shutil.ignore_patterns("run-*", "*.whl"))
    if done:
        shutil.copytree(done[-1].with_suffix(""), local / "run")
    how = ["--resume"] if (local / "run" / "environment.json").exists() else []
    train = ["pyserini-ance", "train", "recipe.yaml", "--output", "run", *how]
    process = subprocess.Popen(train, cwd=local)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        code = process.wait(hours * 3600 - MARGIN_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()  # training writes a checkpoint
        code = process.wait()
    copy = store / f"run-{int(done[-1].stem[4:]) + 1 if done else 1:04}"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(local / "run", copy)
    copy.with_suffix(".done").touch()
    for older in done:
        older.unlink()
        shutil.rmtree(older.with_suffix(""))
    return code


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        sys.exit(work(Path(sys.argv[2]), float(sys.argv[3])))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("bucket")
    parser.add_argument("--flavor", default="l4x1")
    parser.add_argument("--hours", type=int, default=24)
    print(launch(**vars(parser.parse_args())))
