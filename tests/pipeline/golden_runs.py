"""Golden runs: weights, tables and measures of small runs, to compare two states of the code.

    python tests/pipeline/golden_runs.py FILE [--only NAME ...]

The first call writes FILE. Later calls compare with it and exit with 1 if anything differs; a row of measures
that FILE lacks is new, not different. Hashes hold on one machine only. The runs use the code of the current
directory, and `data/samples` as recipes/samples/derive.py makes it.
"""

import argparse
import hashlib
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.small_set import make_tiny_roberta

FP32 = "encoding.precision=fp32 precision=fp32"
BF16 = "encoding.precision=bf16 precision=bf16"
SMALL = "data.max_documents=300 encoder.layers=[0,1]"
DEMO = f"{SMALL} {FP32}"
# So few steps may not improve on the start, which would be the result then.
LAST = "stage_defaults.evaluate.keep_best=false"
SHORT_ANCE = "stages.bm25-neg.steps=6 stages.ance.steps=12 stages.ance.refresh.every_steps=6 "
SHORT_LTRE = "stages.bm25-neg.steps=6 stages.ltre.steps=12 stages.ltre.evaluate.every_steps=6"
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
    "ltre": ("demo/ltre-bm25", f"{DEMO} {LAST} {SHORT_LTRE}"),
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
    "distilled": (
        "demo/distilled",
        f"{DEMO} {LAST} stages.distilled.steps=12 stages.distilled.refresh.every_steps=6",
    ),
    "recommended": (
        "demo/recommended",
        f"{DEMO} {LAST} stages.recommended.steps=12 stages.recommended.refresh.every_steps=6",
    ),
    "ar2": (
        "demo/ar2",
        f"{DEMO} {LAST} teachers.ranker-1.steps=4 teachers.ranker-2.steps=4 stages.warm-up.steps=4 "
        "stages.iteration-1.steps=4 stages.iteration-1.refresh.every_steps=4 "
        "stages.iteration-2.steps=4 stages.iteration-2.refresh.every_steps=4",
    ),
    "ltre-lambdarank": ("demo/ltre-lambdarank", f"{DEMO} {LAST} {SHORT_LTRE}"),
    "ltre-opq12": ("demo/ltre-opq12", f"{DEMO} {LAST} {SHORT_LTRE} data.max_documents=500"),
    "simans": ("demo/simans", f"{DEMO} {LAST} {SHORT_ANCE}"),
    "roberta-ance": (
        "demo/ance",
        f"{DEMO} {LAST} {SHORT_ANCE} encoder.model={{roberta}} encoder.projection=768 "
        "encoder.layer_norm=true encoder.pooling=cls encoder.normalize=false encoder.layers=null "
        "encoder.tokenization.query.length_tokens=64 "
        "'encoder.tokenization.document={{length_tokens: 256, template: \"{{title}} {{text}}\"}}'",
    ),
    "answers": (
        "samples/nq",
        f"{FP32} {LAST} stages.dpr.steps=8 stages.dpr.evaluate.every_steps=4 "
        "stages.dpr.refresh.every_steps=4 "
        "'stages.dpr.terms.query.negatives=[{{kind: ann, top_k: 100, filters: [answers]}}]'",
    ),
    "bf16": ("demo/ance", f"{SMALL} {BF16} {LAST} {SHORT_ANCE}"),
    "two-ranks": ("demo/ance", f"{DEMO} {LAST} {SHORT_ANCE}"),
}
RANKS = {"two-ranks": 2}


def golden(name: str) -> dict:
    """Train the run `name` on one thread with an empty cache; return hashes and measures."""
    recipe, overrides = RUNS[name]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        roberta = Path(folder) / "roberta"
        if "{roberta}" in overrides:
            roberta.mkdir()
            make_tiny_roberta(roberta)
        command = [sys.executable, "-m"]
        if ranks := RANKS.get(name):
            command += ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
        command += ["pyserini_ance.train", recipe, *shlex.split(overrides.format(roberta=roberta))]
        command += ["threads=1", f"cache={folder}/cache", "--output", str(run)]
        ended = subprocess.run(command, text=True, capture_output=True)
        if ended.returncode:
            raise RuntimeError(f"{name}: exit code {ended.returncode}\n{ended.stdout}\n{ended.stderr}")
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
    results = {name: golden(name) for name in args.only}
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
