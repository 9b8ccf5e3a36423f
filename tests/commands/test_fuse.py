"""The command over rankings written by hand; a stand-in plays Pyserini's part, which runs elsewhere."""

import re

import pytest
from helpers.small_set import ONE_STEP, make_finished_run

from pyserini_ance.commands import fuse
from pyserini_ance.data.trec import best_first, read_run
from pyserini_ance.recipe.load import dump
from pyserini_ance.reports import fusion

QRELS = {split: f"{split}-0 0 red 1\n{split}-1 0 green 1\n" for split in ("dev", "test")}
BM25 = "{0}-0 Q0 red 1 9 t\n{0}-0 Q0 blue 2 8 t\n{0}-1 Q0 pink 1 9 t\n{0}-1 Q0 green 2 1 t\n"
WEIGHTED = ["--method", "interpolation"]
DENSE = "{0}-0 Q0 blue 1 2 t\n{0}-0 Q0 red 2 1.85 t\n{0}-1 Q0 green 1 4 t\n"


def summed(runs, method, weight=None):
    """weight x first + (1 - weight) x second, or their sum; a lacking document has 0."""
    first, second, fused = *runs, {}
    of_first, of_second = (1, 1) if weight is None else (weight, 1 - weight)
    for query in first | second:
        ours, theirs = first.get(query, {}), second.get(query, {})
        scores = {d: of_first * ours.get(d, 0) + of_second * theirs.get(d, 0) for d in ours | theirs}
        fused[query] = {document: scores[document] for document in best_first(scores)}
    return fused


@pytest.fixture
def run(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(fusion, "fuse", summed)
    test = {"split": ["test", "dev"], "measures": ["RR@10"]}
    recipe = small_recipe({"only": ONE_STEP}, final_evaluation=test, cache=str(tmp_path / "cache"))
    forms = {"run": DENSE, "runs/bm25": BM25}
    rankings = {f"{row}.{split}.trec": forms[row].format(split) for row in forms for split in QRELS}
    return make_finished_run(tmp_path / "run", recipe, QRELS, rankings)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def table_lines(printed: str) -> list[str]:
    """The lines of the table in what a command prints; a legend follows it."""
    assert "\n\n- the last row is the fusion" in printed
    return [line for line in printed.splitlines() if line.startswith("|")]


def test_a_run_directory_and_its_bm25(run, tmp_path, capsys):
    fuse.main([str(run.folder), "--output", str(tmp_path / "fused.trec")])
    rows = [cells(line) for line in table_lines(capsys.readouterr().out)]
    # by hand: BM25 1 and 1/2; dense 1/2 and 1; summed 10.85 against 10, and 5 against 9
    assert rows[2:] == [[f"{run.folder}:bm25", "0.7500"], [str(run.folder), "0.7500"], ["rrf", "0.7500"]]
    assert read_run(tmp_path / "fused.trec")["test-0"] == {"red": 10.85, "blue": 10.0}


def test_files_are_read_as_the_data_of_the_run_says(run, tmp_path, capsys):
    recipe = run.read_recipe()
    data = recipe.data.model_copy(update={"ignore_identical_ids": True})
    text = dump(recipe.model_copy(update={"data": data}))
    run.recipe.write_text(text.replace("kind: nll", "kind: not_here:Nll"))  # as a run of own classes
    (tmp_path / "own.trec").write_text("test-0 Q0 test-0 1 9 t\ntest-0 Q0 red 2 8 t\n")
    fuse.main([str(run.folder), str(tmp_path / "own.trec"), "--output", str(tmp_path / "fused.trec")])
    assert cells(table_lines(capsys.readouterr().out)[3]) == [str(tmp_path / "own.trec"), "0.5000"]
    assert read_run(tmp_path / "fused.trec")["test-0"].keys() == {"blue", "red"}


def test_the_weight_is_chosen_on_another_split(run, tmp_path, capsys):
    flags = [*WEIGHTED, "--choose-on", "dev", "--measures", "MRR@10"]
    fuse.main([str(run.folder), *flags, "--output", str(tmp_path / "fused.trec")])
    said = capsys.readouterr().out
    # red is above blue from w = 0.13 on, green above pink up to 1/3: the first weight between
    assert said.startswith("RR@10 on dev by weight: 0.005: 0.7500, 0.01: 0.7500, 0.02: 0.7500, 0.05: ")
    assert "0.1: 0.7500, 0.2: 1.0000, 0.3: " in said
    assert cells(table_lines(said)[-1]) == ["interpolation, weight 0.2", "1.0000"]


def test_files_and_rows(run, tmp_path, capsys):
    qrels, file = tmp_path / "qrels.txt", tmp_path / "own.trec"
    qrels.write_text("test-1 0 green 1\n")
    file.write_text(BM25.format("test"))
    (tmp_path / "link").symlink_to("fused.trec")
    flags = f"--output {tmp_path}/link --method interpolation --weight 0.1 --measures P@1".split()
    fuse.main([str(file), str(file.with_name("run")), "--qrels", str(qrels), *flags])
    assert (tmp_path / "link").is_symlink() and "test-1 Q0 " in (tmp_path / "fused.trec").read_text()
    assert cells(table_lines(capsys.readouterr().out)[-1]) == ["interpolation, weight 0.1", "1.0000"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["run", "run", "run", *WEIGHTED, "--weight", "1"], ValueError, "interpolation fuses two rankings"),
        (["run:bm25"], ValueError, "rrf fuses two rankings or more, given: .*bm25; pass a run directory"),
        (["runn"], FileNotFoundError, r"runn is neither .* nor a file \(did you mean 'run'\?\)"),
        (["own.trec", "run", *WEIGHTED, "--choose-on", "dev"], ValueError, "own.trec is of one split"),
        (["own.trec", "own.trec"], ValueError, "do not say which documents are relevant; pass --qrels FILE"),
        (["run", *WEIGHTED], SystemExit, "pass --weight W or --choose-on SPLIT for --method interpolation"),
        (["run", "--weight", "1"], SystemExit, "for --method interpolation, and for it alone"),
        (["run", *WEIGHTED, "--choose-on", "test"], ValueError, "'test' is the measured split; choose the"),
        (["ranks.tsv", "own.trec", "--method", "average"], ValueError, "ranks.tsv has ranks without scores"),
        (["own.trec", "own.trec", "--split", "x"], ValueError, "one split; remove --split"),
        (["run", *WEIGHTED, "--weight=7"], SystemExit, "less than or equal to 1"),
        (["own.trec", "run", "--output", "run/../own.trec"], FileExistsError, "own.trec is an input"),
        (["run", "--output", "run/run.test.trec"], FileExistsError, "a name for the own files of the run"),
    ],
)
def test_what_cannot_be_fused_is_refused(run, tmp_path, monkeypatch, capsys, arguments, error, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.trec").write_text(BM25.format("test"))
    (tmp_path / "ranks.tsv").write_text("test-0\tred\t1\n")
    with pytest.raises(error) as raised:
        fuse.main([*arguments, *([] if "--output" in arguments else ["--output", "fused.trec"])])
    assert re.search(message, capsys.readouterr().err if error is SystemExit else str(raised.value))
    assert not (tmp_path / "fused.trec").exists()
    assert (tmp_path / "own.trec").read_text() == BM25.format("test")
    assert run.final_run("test").read_text() == DENSE.format("test")
