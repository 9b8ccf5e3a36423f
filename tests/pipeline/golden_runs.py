"""Golden runs: weights, tables and measures of small runs, to compare two states of the code.

    python tests/pipeline/golden_runs.py FILE [--only NAME ...]

The first call writes FILE. Later calls compare with it and exit with 1 if anything differs; a row of measures
that FILE lacks is new, not different. Hashes hold on one machine only. The runs use the code of the current
directory, and `data/samples` as recipes/samples/derive.py makes it.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

FP32 = "encoding.precision=fp32 precision=fp32"
DEMO = f"data.max_documents=500 {FP32}"
# So few steps may not improve on the start, which would be the result then.
LAST = "stage_defaults.evaluate.keep_best=false"
RUNS = {
    "ance": (
        "demo/ance",
        f"{DEMO} {LAST} stages.bm25-neg.steps=6 stages.ance.steps=18 stages.ance.refresh.every_steps=6 "
        "stages.ance.evaluate.every_steps=9",
    ),
    "ance-async": (
        "demo/ance-background",
        f"{DEMO} {LAST} stages.bm25-neg.steps=6 stages.ance.steps=24 stages.ance.refresh.every_steps=8 "
        "stages.ance.evaluate.every_steps=12",
    ),
    "ltre": (
        "demo/ltre-bm25",
        f"{DEMO} {LAST} stages.bm25-neg.steps=6 stages.ltre.steps=12 stages.ltre.evaluate.every_steps=6",
    ),
    "dance": (
        "demo/dance",
        f"{DEMO} {LAST} stages.bm25-neg.steps=6 stages.ance.steps=6 stages.norm.steps=6 stages.dual.steps=12 "
        "stages.dual.refresh.every_steps=6",
    ),
    "ance-tele": (
        "demo/ance-tele",
        f"{DEMO} stages.epi-1.steps=6 stages.epi-2.steps=6 stages.epi-3.steps=12",
    ),
    "maxp": (
        "samples/msmarco-doc",
        f"{FP32} {LAST} stages.bm25-neg.steps=4 stages.ance.steps=8 stages.ance.refresh.every_steps=4",
    ),
    "two-towers": (
        "samples/nq",
        f"{FP32} {LAST} encoder.tied=false stages.dpr.steps=8 stages.dpr.evaluate.every_steps=4",
    ),
}


def golden(recipe: str, overrides: str) -> dict:
    """Train `recipe` on one thread with an empty cache; return hashes and measures."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "pyserini_ance.train", recipe, *overrides.split(), "threads=1"]
        command += [f"cache={folder}/cache", "--output", str(run)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        weights = sorted((run / "model").rglob("*.safetensors"))
        tables = sorted((run / "negatives").glob("*"))
        rows = json.loads((run / "measures.json").read_text())["rows"]
        return {
            "weights": sorted(tensor_hash(load_file(path)) for path in weights),
            "tables": {path.name: table_hash(path) for path in tables},
            "measures": {row["row"]: without_seconds(row) for row in rows},
        }


def tensor_hash(tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].tobytes())
    return digest.hexdigest()


def table_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.npy")):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def without_seconds(row: dict) -> dict:
    return {name: value for name, value in row.items() if name != "row" and "seconds" not in name}


def without_new_rows(measures: dict[str, dict], expected: dict[str, dict]) -> dict[str, dict]:
    """The measures of the rows that `expected` has; a row that is missing stays a difference."""
    return {row: values for row, values in measures.items() if row in expected}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    args = parser.parse_args()
    results = {name: golden(*RUNS[name]) for name in args.only}
    if not args.file.exists():
        args.file.write_text(json.dumps(results, indent=1))
        return 0
    expected = json.loads(args.file.read_text())
    for name in results:
        results[name]["measures"] = without_new_rows(results[name]["measures"], expected[name]["measures"])
    differences = [
        (name, part)
        for name in results
        for part in results[name]
        if results[name][part] != expected[name][part]
    ]
    for name, part in differences:
        print(f"{name}: {part} differ\n  expected {expected[name][part]}\n  found    {results[name][part]}")
    print(f"{len(results)} golden runs, {len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
