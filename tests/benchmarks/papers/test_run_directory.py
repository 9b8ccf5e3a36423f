"""The table of a run directory's files and fields in docs/guides/monitoring.md is true of a finished run."""

import json
from pathlib import Path

import pytest
import yaml

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "monitoring.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## The files that readers use")[2].partition("\n## ")[0]
ROWS = [
    [cell.split("`")[1::2] for cell in line.split("|")[1:4]]
    for line in TABLE.splitlines()
    if line.startswith("| `")
]


def _records(file: Path) -> list[dict]:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return [yaml.safe_load(text) if file.suffix == ".yaml" else json.loads(text)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[0] + row[1]))
def test_a_finished_run_has_the_file_and_its_fields(row, small_run):
    [pattern], kind, fields = row
    files = sorted(small_run.glob(pattern))
    assert files, f"the run has no {pattern}: {sorted(path.name for path in small_run.iterdir())}"
    if not fields:
        return
    records = _records(files[0])
    if kind == ["rows"]:
        records = records[0]["rows"]
    elif kind:
        records = [record for record in records if record["event"] == kind[0]]
    assert records
    for record in records:
        for field in fields:
            value = record
            for part in field.split("."):
                assert part in value, f"{pattern}: a record lacks {field}: {record}"
                value = value[part]
