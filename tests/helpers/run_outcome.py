"""What of a run must not depend on how it came about: on times, interruptions, or who made what."""

import json
from pathlib import Path

from pyserini_ance.storage.files import read_json_lines, sha256_file

# Files that hold times, or what differs from machine to machine. Of these only the names are compared; what
# else they hold, `outcome` compares under a key of its own.
TIMED = {"recipe.yaml", "state.json", "refresher.json", "environment.json", "measures.json", "metrics.jsonl"}
TIMED |= {"decisions.jsonl", "manifest.json", "report.json", "report.html"}
TIMED |= {"pyserini_ance.json"}  # of an encoder: names the folder that training went on from
TIMED |= {"README.md"}  # of a model: shows the recipe and the commit


def without_times(record: dict) -> dict:
    """A record without seconds and peaks of memory."""
    return {k: v for k, v in record.items() if "seconds" not in k and k not in ("parts", "memory_bytes")}


def files(folder: Path) -> dict[str, str]:
    """The hash of every file below `folder`, hidden ones included; none for a file that holds times."""
    found = [path for path in sorted(folder.rglob("*")) if not path.is_dir()]
    return {
        str(path.relative_to(folder)): ""
        if path.name in TIMED or (path.suffix == ".json" and path.parent.name in ("evaluations", "runs"))
        else sha256_file(path)
        for path in found
    }


def folders(found: dict, parent: str) -> list[str]:
    """The names of the folders in the folder `parent` of an outcome."""
    parts = [name.split("/") for name in found["files"]]
    return sorted({each[1] for each in parts if each[0] == parent and len(each) > 2})


def outcome(folder: Path) -> dict:
    measures = json.loads((folder / "measures.json").read_text())
    decisions = read_json_lines(folder / "decisions.jsonl")
    evaluations = (folder / "evaluations").glob("*.json")
    return {
        "rows": [without_times(row) for row in measures["rows"]],
        "metrics": [without_times(record) for record in read_json_lines(folder / "metrics.jsonl")],
        "decisions": [record for record in decisions if record["event"] != "resume"],
        "evaluations": {path.name: json.loads(path.read_text())["value"] for path in evaluations},
        "files": files(folder),
    }
