"""The command on run directories over the small collection, with rankings written by hand; Pyserini's part is
a stand-in: it runs elsewhere.
"""

import pytest
from helpers.small_set import ONE_STEP, make_finished_run

from pyserini_ance.commands import fuse
from pyserini_ance.data.trec import best_first, read_run
from pyserini_ance.reports import fusion

QRELS = {split: f"{split}-0 0 red 1\n{split}-1 0 green 1\n" for split in ("dev", "test")}
BM25 = "{0}-0 Q0 red 1 9 t\n{0}-0 Q0 blue 2 8 t\n{0}-1 Q0 pink 1 9 t\n{0}-1 Q0 green 2 1 t\n"
DENSE = "{0}-0 Q0 blue 1 2 t\n{0}-0 Q0 red 2 1.85 t\n{0}-1 Q0 green 1 4 t\n"


def summed(runs, method, weight=None):
    """weight x first + second; a lacking document has 0."""
    queries = dict.fromkeys(query for run in runs for query in run)
    first, second = runs
    scores = {
        q: {
            d: (weight or 1) * first.get(q, {}).get(d, 0) + second.get(q, {}).get(d, 0)
            for d in {**first[q], **second[q]}
        }
        for q in queries
    }
    return {
        query: {document: found[document] for document in best_first(found)}
        for query, found in scores.items()
    }


@pytest.fixture
def run(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(fusion, "fuse", summed)
    recipe = small_recipe(
        {"only": ONE_STEP},
        final_evaluation={"split": ["test", "dev"], "measures": ["RR@10"], "hits": 20},
        cache=str(tmp_path / "cache"),
    )
    rankings = {f"run.{split}.trec": DENSE.format(split) for split in QRELS} | {
        f"runs/bm25.{split}.trec": BM25.format(split) for split in QRELS
    }
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


@pytest.mark.parametrize(
    ("method", "weight", "expected"),
    [
        ("interpolation", "nan", "--weight nan: expected a number from 0 to 1"),
        ("interpolation", "7", "--weight 7: expected a number from 0 to 1"),
        ("hybrid", "inf", "--weight inf: expected a number from 0 "),
        ("hybrid", "-1", "--weight -1: expected a number from 0 "),
    ],
)
def test_a_weight_out_of_range_is_refused(tmp_path, method, weight, expected):
    flags = ["--method", method, f"--weight={weight}", "--output", str(tmp_path / "fused.trec")]
    with pytest.raises(ValueError, match=expected):
        fuse.main(["a.trec", "b.trec", *flags])


def test_the_weight_is_chosen_on_another_split(run, tmp_path, capsys):
    fuse.main(
        [
            str(run.folder),
            "--method",
            "hybrid",
            "--choose-on",
            "dev",
            "--measures",
            "MRR@10",
            "--output",
            str(tmp_path / "fused.trec"),
        ]
    )
    said = capsys.readouterr().out
    # w x 9 + 1.85 beats w x 8 + 2 from 0.15 on; w x 1 + 4 beats w x 9 up to 0.5: the first weight between
    assert said.startswith(
        "MRR@10 on dev by weight: 0.005: 0.7500, 0.01: 0.7500, 0.02: 0.7500, 0.05: 0.7500, 0.1: "
        "0.7500, 0.2: 1.0000, 0.5: "
    )
    assert cells(table_lines(said)[-1]) == ["hybrid, weight 0.2", "1.0000"]


def test_files_and_rows(run, tmp_path, capsys):
    qrels, file = tmp_path / "qrels.txt", tmp_path / "own.trec"
    qrels.write_text("test-1 0 green 1\n")
    file.write_text(BM25.format("test"))
    flags = [
        "--output",
        str(tmp_path / "fused.trec"),
        "--method",
        "hybrid",
        "--weight",
        "0.1",
        "--measures",
        "P@1",
    ]
    fuse.main([str(file), str(file.with_name("run")), "--qrels", str(qrels), *flags])
    assert cells(table_lines(capsys.readouterr().out)[-1]) == ["hybrid, weight 0.1", "1.0000"]
    with pytest.raises(
        ValueError,
        match=r"own.trec is of one split; to choose a weight on 'dev' pass rankings of run directories",
    ):
        fuse.main(
            [
                str(file),
                str(run.folder),
                "--method",
                "hybrid",
                "--choose-on",
                "dev",
                "--output",
                str(tmp_path / "x"),
            ]
        )
    with pytest.raises(
        ValueError, match="rankings alone do not say which documents are relevant; pass --qrels FILE"
    ):
        fuse.main([str(file), str(file), "--output", str(tmp_path / "x")])


def test_what_cannot_be_fused_is_refused(run, tmp_path, capsys):
    out = ["--output", str(tmp_path / "x")]
    with pytest.raises(ValueError, match="hybrid fuses two rankings, given: "):
        fuse.main(
            [str(run.folder), str(run.folder), str(run.folder), "--method", "hybrid", "--weight", "1", *out]
        )
    with pytest.raises(
        ValueError, match="rrf fuses two rankings or more, given: .*bm25; pass a run directory alone"
    ):
        fuse.main([f"{run.folder}:bm25", *out])
    with pytest.raises(FileNotFoundError, match="absent is neither a run directory nor a file"):
        fuse.main([str(tmp_path / "absent"), str(run.folder), *out])
    with pytest.raises(FileNotFoundError, match=r"runn is neither .* nor a file \(did you mean 'run'\?\)"):
        fuse.main([f"{run.folder}n", *out])
    refused = {
        ("--method", "hybrid"): "has a weight: pass --weight W",
        ("--weight", "1"): "rrf has no weight",
    }
    for flags, words in {
        **refused,
        ("--method", "hybrid", "--choose-on", "test"): "on the measured split 'test'",
    }.items():
        with pytest.raises(SystemExit):
            fuse.main([str(run.folder), *flags, *out])
        assert words in capsys.readouterr().err


def test_neither_an_input_nor_a_file_of_a_run_is_replaced(run, tmp_path):
    file = tmp_path / "own.trec"
    file.write_text(BM25.format("test"))
    with pytest.raises(FileExistsError, match=r"own.trec is an input, which would be replaced"):
        fuse.main([str(file), str(run.folder), "--output", str(tmp_path / "run" / ".." / "own.trec")])
    final = run.final_run("test")
    with pytest.raises(FileExistsError, match=r"run.test.trec is a name for the own files of the run"):
        fuse.main([str(file), str(final), "--output", str(final)])
    assert file.read_text() == BM25.format("test") and final.read_text() == DENSE.format("test")


def test_files_are_of_one_split(run, tmp_path, capsys):
    file = str(run.final_run("test"))
    with pytest.raises(SystemExit, match="2"):
        fuse.main([file, file, "--split", "nosuch", "--output", str(tmp_path / "x")])
    assert "a file is a ranking of one split; remove --split" in capsys.readouterr().err
