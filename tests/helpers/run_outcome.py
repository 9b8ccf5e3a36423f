"""What a run leaves that must not depend on how it came about: not on times, interruptions, or who made
what.
"""

import json
from pathlib import Path

from pyserini_ance.storage.files import read_json_lines, sha256_file
from pyserini_ance.storage.publish import read_manifest


def without_times(record: dict) -> dict:
    return {key: value for key, value in record.items() if "seconds" not in key and key != "parts"}


def tables(generation: Path) -> dict[str, str]:
    """The hash of every file of a generation except its report, which holds times."""
    return {
        name: part["sha256"]
        for name, part in read_manifest(generation)["parts"].items()
        if name != "report.json"
    }


def outcome(folder: Path) -> dict:
    measures = json.loads((folder / "measures.json").read_text())
    return {
        "weights": sha256_file(folder / "model" / "model.safetensors"),
        "index": sha256_file(folder / "index" / "index"),
        "rankings": {path.name: path.read_text() for path in folder.glob("run.*.trec")},
        "rows": [without_times(row) for row in measures["rows"]],
        "metrics": [without_times(record) for record in read_json_lines(folder / "metrics.jsonl")],
        "decisions": [
            record for record in read_json_lines(folder / "decisions.jsonl") if record["event"] != "resume"
        ],
        "checkpoints": sorted(path.name for path in (folder / "checkpoints").iterdir()),
        "negatives": {path.name: tables(path) for path in (folder / "negatives").iterdir()},
        "evaluations": {
            path.name: json.loads(path.read_text())["value"]
            for path in (folder / "evaluations").glob("*.json")
        },
        "files": sorted(path.name for path in folder.iterdir()),
    }
