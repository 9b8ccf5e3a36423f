"""The command `analyze`: its studies, its files and its errors."""

import json
from pathlib import Path
from unittest.mock import Mock
from xml.etree import ElementTree

import pytest
import yaml

from benchmarks.papers import __main__ as papers
from benchmarks.papers.studies import figures, negative_overlap
from benchmarks.papers.studies.figures import Line, Panel
from benchmarks.papers.studies.studied_run import Findings, NotKept


@pytest.fixture
def study(monkeypatch):
    """A study of two numbers, in place of `negative-overlap`."""

    def made(runs):
        rows = [{"run": run.name, "share": place / 2} for place, run in enumerate(runs)]
        lines = {row["run"]: Line([0, 1], [0, row["share"]]) for row in rows}
        return Findings(rows, [Panel("A title", "step", "share (%)", figures.lines(lines))], notes=["a note"])

    monkeypatch.setattr(negative_overlap, "study", made)


def test_a_study_writes_its_numbers_and_its_picture(runs, study, tmp_path, capsys):
    output = tmp_path / "out"
    papers.main(["analyze", "negative-overlap", *runs, "--output", str(output), "--queries", "7"])
    written = json.loads((output / "negative-overlap.json").read_text())
    assert written["rows"] == [{"run": "one", "share": 0.0}, {"run": "two", "share": 0.5}]
    assert written["runs"] == {"one": runs[0], "two": runs[1]}
    assert (written["queries"], written["top_k"], written["notes"]) == (7, 100, ["a note"])
    assert (output / "negative-overlap.png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.fromstring((output / "negative-overlap.svg").read_text()).tag.endswith("svg")
    printed = capsys.readouterr().out
    assert "| two | 0.5000 |" in printed and "- a note" in printed
    assert f"written: {output}/negative-overlap.json, {output}/negative-overlap.png" in printed


def test_what_a_run_lacks_is_an_error_alone_and_a_line_among_all(runs, monkeypatch, caplog):
    monkeypatch.setattr(papers, "STUDIES", {"negative-overlap": "a study"})
    monkeypatch.setattr(negative_overlap, "study", Mock(side_effect=NotKept("train it again")))
    with pytest.raises(NotKept, match="train it again"):
        papers.main(["analyze", "negative-overlap", runs[0]])
    with pytest.raises(ValueError, match="no study was made: the runs lack what each of them reads"):
        papers.main(["analyze", "all", runs[0]])
    assert caplog.messages == ["left out: negative-overlap: train it again"]


def test_several_runs_write_beside_them(runs, study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    papers.main(["analyze", "negative-overlap", "one", "two"])
    assert (tmp_path / "analysis/negative-overlap.svg").exists()
    papers.main(["analyze", "negative-overlap", "one"])
    assert (tmp_path / "one/analysis/negative-overlap.svg").exists()


PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "monitoring.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## The files that readers use")[2].partition("\n## ")[0]
LINES = [line for line in TABLE.splitlines() if line.startswith("| `")]
ROWS = [[cell.split("`")[1::2] for cell in line.split("|")[1:4]] for line in LINES]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[0] + row[1]))
def test_a_finished_run_has_the_file_and_its_fields(row, small_run):
    [pattern], kind, fields = row
    files = sorted(small_run.glob(pattern))
    assert files, f"the run has no {pattern}: {sorted(path.name for path in small_run.iterdir())}"
    if not fields:
        return
    text, suffix = files[0].read_text(encoding="utf-8"), files[0].suffix
    read = yaml.safe_load if suffix == ".yaml" else json.loads
    records = [read(part) for part in (text.splitlines() if suffix == ".jsonl" else [text])]
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
