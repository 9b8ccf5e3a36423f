"""The tables in docs/guides/evaluating.md are what their commands print."""

import shlex
from pathlib import Path

from benchmarks.papers import __main__ as papers
from pyserini_ance.commands import evaluate

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "evaluating.md").read_text(encoding="utf-8")


def test_the_command_shown_prints_the_table_shown(shared_data, monkeypatch, capsys):
    monkeypatch.chdir(shared_data / "msmarco-passage-dl19-pool")
    shown = shlex.split(PAGE.split("```bash\n")[1].split("```")[0].replace("\\\n", " "))
    assert shown[:2] == ["pyserini-ance", "evaluate"]
    runs = sorted(str(path) for path in Path("runs").glob("*.gz"))
    evaluate.main([word for part in shown[2:] for word in (runs if "*" in part else [part])])
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(table) == 8 and "\n".join(table) in PAGE


def test_the_papers_table_shown_is_what_is_published(tmp_path, capsys):
    papers.main(["tables", "openqa-multi", "--runs", str(tmp_path)])
    tables, _, sources = capsys.readouterr().out.rpartition("\n\n- ance: ")
    assert sources and len(tables.splitlines()) == 15 and tables in PAGE
