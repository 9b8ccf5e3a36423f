import json
import math
import re

import numpy as np
import pytest
from helpers import report_pages
from helpers.finished_run import ranked

from pyserini_ance.commands import report
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.reports.report import write_report
from pyserini_ance.reports.run_history import COLOURS, Series, line_plot, running_mean
from pyserini_ance.runs.rundir import RunDir

NASTY = "<script>alert('&')</script>"


def steps(count: int, loss: float = 1.0) -> str:
    one = {"event": "step", "stage": "only", "grad_norm": 2.0, "seconds": 1.0}
    losses = {step: loss / (step + 1) for step in range(count)}
    made = [{**one, "step": n, "loss": of, "terms": {"query": of}} for n, of in losses.items()]
    return "".join(f"{json.dumps(line)}\n" for line in made)


def page_of(folder) -> str:
    return write_report(RunDir(folder)).read_text()


def finished_run(base, recipe: str, places: dict[str, int], *overrides: str):
    folder = ranked(base.parent / "run", base, recipe, places, *overrides)
    (folder / "metrics.jsonl").write_text(steps(3))
    return folder


def test_the_result_is_tested_against_each_other_row(base):
    shown = page_of(finished_run(base, "set/ance", {"a": 1, "b": 1, "c": 3}))
    # 1 - 1/2 twice, and 1/3 - 1/2: by hand +0.278, two won, one lost.
    tested = next(one for one in report_pages.tables(shown) if one[0] == ["row", "RR@10"] and len(one) == 2)
    assert re.fullmatch(r"\+0\.278, p 0\.\d{3} \(2/0/1\)", tested[1][1])
    assert "No negatives were mined." in shown and "Memory was not recorded." in shown
    assert "The dev measure was not evaluated during training." in shown
    assert ["optimizer steps", "3.0"] in [row for rows in report_pages.tables(shown) for row in rows]
    assert "The recipe expects no scores, or is changed." in shown and "pyserini-ance search faiss" in shown


def test_expected_scores_are_next_to_the_measured_ones(base):
    folder = finished_run(base, "set/ance", {"a": 1, "b": 2, "c": 2}, "expect={test: {RR@10: 0.5}}")
    rows = report_pages.tables(page_of(folder))
    assert ["RR@10", "0.5000", "0.6667", "+0.1667"] in [row for of_table in rows for row in of_table]
    RunDir(folder).qrels("test").unlink()
    assert "No significance tests: " in page_of(folder)


def test_margins_of_different_sources_have_axes_of_their_own(base, tmp_path):
    """BM25's scores are a hundred times the model's: on one axis the model's margins would be flat."""
    run = RunDir(tmp_path / "run")
    run.create(dump(load(base)))
    records = []
    for step, margin in ((0, 0.05), (4, 0.25)):
        tables = {
            name: {"kind": kind, "dropped": {}, "new_share": None, "margin": {"mean": scale * margin}}
            for name, kind, scale in (("query.0", "bm25", 100), ("query.1", "ann", 1))
        }
        adoption = {"event": "generation", "stage": "only", "step": step, "checkpoint_step": step}
        records.append({**adoption, "tables": tables, "seconds": {}})
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    shown = page_of(run.folder)
    for kind, scale in (("bm25", 100), ("ann", 1)):
        drawn = report_pages.points(report_pages.plot(shown, f"Margin of {kind}"), COLOURS[0])
        assert drawn == [pytest.approx(of, rel=0.02) for of in ((0, 0.05 * scale), (4, 0.25 * scale))]


def test_a_failed_run_has_a_report_of_what_it_has(base, tmp_path):
    run = RunDir(tmp_path / "run")
    run.create(dump(load(base)))
    with run.trainer.held():
        run.trainer.mark("failed", "stage only, step 2", reason=f"the disk is full {NASTY}")
    run.metrics.write_text(steps(2))
    shown = write_report(run).read_text()
    assert "failed at stage only, step 2, 2 steps" in shown
    assert "failed at stage only, step 2: the disk is full &lt;script&gt;" in shown
    assert "No results yet" in shown and report_pages.plot(shown, "Loss by term")
    links = re.findall(r'(?:src|href|action|data|poster)="([^"]*)"', shown)
    links += re.findall(r"url\(([^)]*)\)", shown)
    # Nothing that a browser would fetch, or could be led to, other than parts of the page.
    assert "@import" not in shown and all(link.startswith(("#", "data:,")) for link in links)


def test_the_command_writes_it_into_the_run_or_where_one_wants_it(base, tmp_path, capsys):
    folder = finished_run(base, "set/ance", {"a": 1, "b": 1, "c": 3})
    report.main([str(folder)])
    assert capsys.readouterr().out == f"written: {folder}/report.html\n"
    report.main([str(folder), "--output", str(tmp_path / "mine.html")])
    assert (tmp_path / "mine.html").read_text() == (folder / "report.html").read_text()
    with pytest.raises(SystemExit, match="2"):
        report.main([str(folder / "report.html")])


def test_a_long_line_is_interrupted_between_stages():
    values = [1.0] * 451 + [math.nan] + [1.0] * 448
    svg = line_plot({"a": Series(list(range(900)), values)}, "loss")
    (line,) = re.findall(rf'<path d="([^"]*)"[^>]*stroke: {COLOURS[0].lower()}', svg)
    assert line.count("M") == 2


def test_the_first_of_equal_dev_measures_is_the_best(base):
    folder = finished_run(base, "set/ance", {"a": 1, "b": 1, "c": 3})
    dev = {"event": "dev", "stage": "only", "measure": "RR@10", "seconds": 1.0}
    values = {1: 0.2, 2: 0.5, 3: 0.5}
    records = [{**dev, "checkpoint_step": step, "step": step, "value": values[step]} for step in values]
    records += [{**dev, "stage": "warm", "measure": "R@9", "checkpoint_step": 4, "step": 4, "value": 0.9}]
    (folder / "metrics.jsonl").write_text(steps(3) + "".join(json.dumps(one) + "\n" for one in records))
    shown = page_of(folder)
    assert "Best dev measure of only: RR@10 0.5000 at step 2." in shown and "of warm: R@9 0.9000" in shown


def test_texts_are_escaped(base):
    run = RunDir(finished_run(base, f"set/{NASTY}", {"a": 1, "b": 2, "c": 2}))
    results = json.loads(run.measures.read_text())
    results |= {"warnings": [NASTY], "export": {"command": NASTY}}
    run.measures.write_text(json.dumps({**results, "rows": [*results["rows"], {"row": NASTY, NASTY: 1.0}]}))
    shown = page_of(run.folder)
    assert "<script" not in shown and shown.count("&lt;script&gt;") >= 6
    assert "<script" not in line_plot({NASTY: Series([0, 1], [1, 2]), "b": Series([0], [1])}, NASTY)


def test_a_running_mean_does_not_cross_stages():
    means = running_mean(np.array([1.0, 3.0, 5.0, float("nan"), 9.0, 11.0]), 2).tolist()
    assert means[:3] == [1.0, 2.0, 4.0] and means[3] != means[3] and means[4:] == [9.0, 10.0]
