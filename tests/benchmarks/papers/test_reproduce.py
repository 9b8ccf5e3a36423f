"""Every command of docs/guides/reproduce.md for a table or figure of the papers, on tiny finished runs."""

import importlib
import json
import re
import shlex
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from helpers.finished_run import finished

from benchmarks.papers import __main__ as papers
from pyserini_ance.pipeline import experiment, grid
from pyserini_ance.recipe.grid_spec import Grid
from pyserini_ance.recipe.load import SHIPPED, dump, load

from .conftest import stage

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "guides" / "reproduce.md").read_text(encoding="utf-8")
ROWS = [row.split(" | ") for row in re.findall(r"^\| (?:ANCE|LTRe|DANCE|ANCE-Tele) \|.*", PAGE, re.MULTILINE)]
COMMANDS = dict.fromkeys(command for row in ROWS for command in re.findall(r"`([^`]+)`", row[2]))
TRAINED = [command for command in COMMANDS if command.startswith("train ")]
OF_RUNS = [command for command in COMMANDS if not command.startswith("train ")]
DEV = {"every_steps": 2, "keep_best": False}
FINAL = {"measures": ["RR@10"], "query_measures": ["RR@10"], "indexes": ["SQ8"]}

# What the paper has and the command has not.
PARTLY = [("ANCE", f"Table {number}") for number in (1, 4, 4, 6, 6)]
PARTLY += [("ANCE", "A.3, Figure 9"), ("LTRe", "Figure 3"), ("LTRe", "Table 2"), ("DANCE", "Tables 1, 2")]
# Columns of a study that have a value on these runs.
FILLED = {"index-costs": ("RR@10 before", "index GB", "hours"), "stage-hours": ("times", "hours")}


def test_the_page_has_a_row_for_each_table_and_figure_with_a_command():
    assert Counter(row[0][2:] for row in ROWS) == {"ANCE": 12, "LTRe": 6, "DANCE": 6, "ANCE-Tele": 9}
    assert all("`" in row[2] for row in ROWS)
    assert [(row[0][2:], row[1].partition(":")[0]) for row in ROWS if row[3].strip(" |")] == PARTLY


@pytest.mark.parametrize("command", TRAINED)
def test_what_is_trained_is_a_recipe_or_a_grid(command, tmp_path):
    recipe, _, axes = command.removeprefix("train ").partition("--grid ")
    runs = grid.GridRuns(recipe.strip() or None, [], Grid.parse([axes]), tmp_path) if axes else None
    assert len(runs.check()) > 1 if runs else load(*recipe.split()).stages


@pytest.fixture(scope="module")
def names(small_recipe, tiny_cross_encoder, tiny_reader, tmp_path_factory) -> dict[str, str]:
    """The folders that stand for the words in capitals."""
    folder = tmp_path_factory.mktemp("reproduced")
    # RUN has six generations, and rankings that change so much that negatives swing; OTHER has all positives
    # in its rankings, as forgetting needs them.
    ance = stage("ann", 6, refresh={"every_steps": 4}, evaluate=DEV)
    ance["terms"]["query"]["negatives"][0]["top_k"] = 27
    live = {**stage("live", 4, evaluate=DEV), "trainable": "query_tower"}
    live["terms"]["query"]["negatives"] = [{"kind": "live", "top_k": 9, "index": "SQ8"}]
    swinging = {**ance, "optimizer": {"learning_rate": 0.1}, "refresh": {"every_steps": 1}}
    live["init_from"] = {"folder": str(folder / "OTHER")}
    for name, of_stage in {"RUN": swinging, "OTHER": ance, "LTRE": live}.items():
        rows = ["bm25", "untrained"] if name == "RUN" else ["untrained", "start"]
        more = {"bm25": {}} if name == "RUN" else {}
        more |= {"final_evaluation": {**FINAL, "rows": rows}, "save_total_limit": 9}
        experiment.train(small_recipe({"main": of_stage}, **more), folder / name)
    passages = "id\ttext\ttitle\n1\tAaron is a prophet.\tA\n2\tThe year 1984.\tB\n3\tIt was 1985.\tC\n"
    (folder / "psgs.tsv").write_text(passages)
    asked = [{"question": "which year", "answers": ["1984"], "positive_ctxs": [{"passage_id": "2"}]}]
    asked += [{"question": "who", "answers": ["Aaron"], "positive_ctxs": [{"passage_id": "1"}]}]
    (folder / "q.json").write_text(json.dumps([{**each, "hard_negative_ctxs": []} for each in asked]))
    splits = {name: {"questions": str(folder / "q.json")} for name in ("train", "test")}
    data = {"kind": "dpr", "passages": str(folder / "psgs.tsv"), "splits": splits}
    random = stage("random", 1, batch_queries=2, evaluate=None)
    final = {"split": "test", "measures": ["Success@1"]}
    experiment.train(small_recipe({"only": random}, data=data, final_evaluation=final), folder / "QA")
    _write_grid(folder / "GRID")
    words = {name: str(folder / name) for name in ("RUN", "OTHER", "LTRE", "QA", "GRID")}
    return {**words, "READER": str(tiny_reader), "RERANKER": str(tiny_cross_encoder)}


def _write_grid(folder: Path) -> None:
    """Two recipes with one setting each."""
    told = []
    for recipe, value in {"set/bm25": 0.4, "set/ance": 0.6}.items():
        (folder / recipe.replace("/", "-")).mkdir(parents=True)
        rows = [{"row": "last", "RR@10": value, "train seconds": 1.0}]
        results = {"recipe": recipe, "config_hash": "x", "measures": ["RR@10"], "rows": rows}
        (folder / recipe.replace("/", "-") / "measures.json").write_text(json.dumps(results))
        told.append({"run": recipe.replace("/", "-"), "recipe": recipe, "status": "finished", "seed": "1"})
    keys = {"recipe": "recipe", "seed": "seed"}
    (folder / "grid.json").write_text(json.dumps({"recipe": None, "keys": keys, "runs": told}))


@pytest.mark.long
@pytest.mark.parametrize("command", OF_RUNS)
def test_a_command_gives_rows(command, names, tmp_path, capsys):
    name, *words = shlex.split(command)
    replace = {**names, "OUT": str(tmp_path / "out")}
    in_capitals = re.compile(r"\b[A-Z]+\b(?=$|[/:])")
    words = [in_capitals.sub(lambda word: replace.get(word[0], word[0]), each) for each in words]
    if "forgetting" in words or "--forgetting" in words:
        words = [each.replace(names["RUN"], names["OTHER"]) for each in words]
    if name == "answer":
        words += ["length_tokens=40", "overlap_tokens=4", "question_tokens=12", "answer_tokens=5"]
    if name == "tables":
        [of_set] = words
        _measure_a_recipe(SHIPPED / Path(of_set).name, tmp_path / "runs")
        words = [Path(of_set).name, "--runs", str(tmp_path / "runs")]
    if name == "analyze":
        words += ["--queries", "8", "--top-k", "5", "--device", "cpu", "--output", str(tmp_path)]
    if name in ("tables", "analyze", "answer"):
        papers.main([name, *words])
    else:
        importlib.import_module(f"pyserini_ance.commands.{name}").main(words)
    printed = capsys.readouterr().out
    rows = [line for line in printed.splitlines() if line.startswith("| ") and re.search(r"\d", line)]
    assert rows, printed
    if name == "tables":
        assert any("| measured" in row and "0.123" in row for row in rows)
        assert any(re.search(r"table \d", row) for row in rows)
    if name == "analyze":
        made = json.loads((tmp_path / f"{words[0]}.json").read_text())["rows"]
        assert made and all(any(row.get(key) is not None for row in made) for key in FILLED.get(words[0], ()))
        if command == "analyze t-sne OTHER LTRE":  # LTRe's documents are those of its start
            assert {row["picture"] for row in made} == {"OTHER, LTRE", "queries"}
        assert (tmp_path / f"{words[0]}.png").read_bytes().startswith(b"\x89PNG")
        assert ElementTree.fromstring((tmp_path / f"{words[0]}.svg").read_text()).tag.endswith("svg")


def _measure_a_recipe(folder: Path, runs: Path) -> None:
    """A finished run of the set's ance or ltre-ance whose every measure is 0.123."""
    name = "ance" if (folder / "ance.yaml").exists() else "ance-firstp"
    run = finished(runs / "one", folder / f"{name}.yaml", {"last": 0.123}, name=f"{folder.name}/{name}")
    results = json.loads((run / "measures.json").read_text())
    recipe = load(f"{folder.name}/{name}")
    columns = recipe.final_evaluation.columns.values()
    results["rows"] = [{"row": "last", **dict.fromkeys(columns, 0.123), "train seconds": 1.0}]
    (run / "measures.json").write_text(json.dumps(results))
    (run / "recipe.yaml").write_text(dump(recipe))
