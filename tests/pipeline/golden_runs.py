"""Golden runs: weights, tables and measures of small runs, to compare two states of the code.

    python tests/pipeline/golden_runs.py FILE [--only NAME ...]

The first call writes FILE. Later calls compare with it and exit with 1 if anything differs; a row of measures
that FILE lacks is new, not different. Hashes hold on one machine only. The runs use the code of the current
directory, and `data/samples` as recipes/samples/derive.py makes it.
"""

import hashlib
import json
import shlex
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
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


def short(recipe: str, steps: str, every: str = "", more: str = "", start: str = f"{DEMO} {LAST}"):
    """A recipe and its overrides: `stage=steps` each, and `stage.refresh=steps` or `stage.evaluate=steps`."""
    words = [f"stages.{word.replace('=', '.steps=')}" for word in steps.split()]
    words += [f"stages.{word.replace('=', '.every_steps=')}" for word in every.split()]
    return recipe, " ".join([start, *words, more])


SHORT_ANCE = ("bm25-neg=6 ance=12", "ance.refresh=6")
SHORT_LTRE = ("bm25-neg=6 ltre=12", "ltre.evaluate=6")
OF_ANSWERS = "'stages.dpr.terms.query.negatives=[{{kind: ann, top_k: 100, filters: [answers]}}]'"
RUNS = {
    "ance": short("demo/ance", "bm25-neg=6 ance=18", "ance.refresh=6 ance.evaluate=9"),
    "ance-async": short("demo/ance-background", "bm25-neg=6 ance=24", "ance.refresh=8 ance.evaluate=12"),
    "ltre": short("demo/ltre-bm25", *SHORT_LTRE),
    "dance": short("demo/dance", "bm25-neg=6 ance=6 norm=6 dual=12", "dual.refresh=6"),
    "ance-tele": short("demo/ance-tele", "epi-1=6 epi-2=6 epi-3=12", start=DEMO),
    "maxp": short("samples/msmarco-doc", "bm25-neg=4 ance=8", "ance.refresh=4", start=f"{FP32} {LAST}"),
    "two-towers": short("samples/nq", "dpr=8", "dpr.evaluate=4", "encoder.tied=false", f"{FP32} {LAST}"),
    "distilled": short("demo/distilled", "distilled=12", "distilled.refresh=6"),
    "recommended": short("demo/recommended", "recommended=12", "recommended.refresh=6"),
    "ar2": short(
        "demo/ar2",
        "warm-up=4 iteration-1=4 iteration-2=4",
        "iteration-1.refresh=4 iteration-2.refresh=4",
        "teachers.ranker-1.steps=4 teachers.ranker-2.steps=4",
    ),
    "ltre-lambdarank": short("demo/ltre-lambdarank", *SHORT_LTRE),
    "ltre-opq12": short("demo/ltre-opq12", *SHORT_LTRE, "data.max_documents=500"),
    "simans": short("demo/simans", *SHORT_ANCE),
    "roberta-ance": short(
        "demo/ance",
        *SHORT_ANCE,
        "encoder.model={roberta} encoder.projection=768 encoder.layer_norm=true encoder.pooling=cls "
        "encoder.normalize=false encoder.layers=null encoder.tokenization.query.length_tokens=64 "
        "'encoder.tokenization.document={{length_tokens: 256, template: \"{{title}} {{text}}\"}}'",
    ),
    "answers": short("samples/nq", "dpr=8", "dpr.evaluate=4 dpr.refresh=4", OF_ANSWERS, f"{FP32} {LAST}"),
    "bf16": short("demo/ance", *SHORT_ANCE, start=f"{SMALL} {BF16} {LAST}"),
    "two-ranks": short("demo/ance", *SHORT_ANCE),
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
        hashes = {"weights": sorted(tensor_hash(load_file(path)) for path in weights)}
        hashes["tables"] = {path.name: table_hash(path) for path in tables}
        return hashes | {"measures": {row["row"]: without_seconds(row) for row in rows}}


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


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    args = parser.parse_args()
    results = {name: golden(name) for name in args.only}
    if not args.file.exists():
        args.file.write_text(json.dumps(results, indent=1))
        return 0
    expected = json.loads(args.file.read_text())
    for name, found in results.items():
        known = expected[name]["measures"]  # a row that is missing stays a difference
        found["measures"] = {row: values for row, values in found["measures"].items() if row in known}
    parts = [(name, part) for name in results for part in results[name]]
    differences = [(name, part) for name, part in parts if results[name][part] != expected[name][part]]
    for name, part in differences:
        print(f"{name}: {part} differ\n  expected {expected[name][part]}\n  found    {results[name][part]}")
    print(f"{len(results)} golden runs, {len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
