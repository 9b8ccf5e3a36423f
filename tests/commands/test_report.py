import pytest

from pyserini_ance.commands import report
from pyserini_ance.storage.files import write_json


def test_one_run_has_its_report_in_its_folder_or_where_one_wants_it(runs, tmp_path, capsys):
    report.main(runs[:1])
    assert capsys.readouterr().out == f"written: {tmp_path}/one/report.html\n"
    report.main([runs[0], "--output", str(tmp_path / "mine.html")])
    assert (tmp_path / "mine.html").read_text() == (tmp_path / "one/report.html").read_text()


def test_several_runs_have_one_page(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report.main(runs)
    assert capsys.readouterr().out == "written: comparison.html\n"
    assert "2 runs of set/one, set/two" in (tmp_path / "comparison.html").read_text()


def test_one_run_has_no_significance(runs, tmp_path, capsys):
    write_json(tmp_path / "grid.json", {"runs": [{"run": "one", "status": "finished"}]})
    for folder, flags in (
        (runs[0], ["--significance", "nonsense"]),
        (str(tmp_path), ["--test", "permutation"]),
    ):
        with pytest.raises(SystemExit, match="2"):
            report.main([folder, *flags])
        assert f"one alone is compared with no other run; remove {flags[0]}\n" in capsys.readouterr().err
