"""The papers' table of a set: a folder of recipes, what is published of them, and run directories."""

import csv
import json
from pathlib import Path

import pytest
from helpers.finished_run import finished

from benchmarks.papers.tables import Tables, read_tables
from pyserini_ance.runs.provenance import config_hash_of
from pyserini_ance.runs.rundir import RunDir

PUBLISHED = """
sources: {one: First paper, two: Second paper}
rows:
- {method: bm25-search, as: BM25, source: one, table: 1, dev: {RR@10: 0.24}}
- {method: bm25-search, as: BM25, source: two, dev: {RR@10: 0.187}}
- {as: SPLADE, source: two, dev: {RR@10: 0.3401}, dl19: {nDCG@10: 0.684}}
- {as: Reader, source: two, test: {EM: 0.41}}
- {method: ance, as: ANCE, source: one, table: 1, dev: {RR@10: 0.33}, dl19-rerank: {nDCG@10: 0.677}}
- {method: ance, as: ANCE (Ours), source: two, dev: {RR@10: 0.338}}
- {method: ance, as: ANCE (Ours), source: two, table: 2, dev: {Hole@10: 0.148}}
"""


@pytest.fixture
def folder(base, tmp_path) -> Path:
    """A set `set` of the recipes ance, which expects something, and nce."""
    made = tmp_path / "set"
    made.mkdir()
    (made / "_base.yaml").write_text(base.read_text() + "final_evaluation: {split: dev}\n")
    (made / "ance.yaml").write_text("extends: _base\nexpect: {dev: {RR@10: 0.330}, dl19: {nDCG@10: 0.648}}\n")
    (made / "nce.yaml").write_text("extends: _base\n")
    (made / "_published.yaml").write_text(PUBLISHED)
    return made


def cells(table: Tables) -> list[list[str]]:
    """Of the first table, that of the recipes."""
    return [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.as_markdown().split("\n\n")[0].splitlines()
    ]


def test_without_runs_the_table_has_published_scores(folder, tmp_path):
    table = read_tables(str(folder), tmp_path / "absent")
    assert table.as_markdown() == (
        "| recipe      | figures     | source       | runs | dev RR@10 | dl19 nDCG@10 | "
        "dl19-rerank nDCG@10 |\n"
        "| ----------- | ----------- | ------------ | ---- | --------- | ------------ | "
        "------------------- |\n"
        "| bm25-search | measured    | -            | -    | -         | -            | -          "
        "         |\n"
        "| bm25-search | BM25        | one, table 1 | -    | 0.240     | -            | -          "
        "         |\n"
        "| bm25-search | BM25        | two          | -    | 0.187     | -            | -          "
        "         |\n"
        "| ance        | expected    | recipe       | -    | 0.330     | 0.648        | -          "
        "         |\n"
        "| ance        | measured    | -            | -    | -         | -            | -          "
        "         |\n"
        "| ance        | ANCE        | one, table 1 | -    | 0.330     | -            | 0.677      "
        "         |\n"
        "| ance        | ANCE (Ours) | two          | -    | 0.338     | -            | -          "
        "         |\n"
        "| nce         | measured    | -            | -    | -         | -            | -          "
        "         |\n"
        "\n"
        "Systems without a recipe here:\n"
        "\n"
        "| system | source | dev RR@10 | dl19 nDCG@10 |\n"
        "| ------ | ------ | --------- | ------------ |\n"
        "| SPLADE | two    | 0.3401    | 0.684        |\n"
        "\n"
        "Unjudged documents, and documents shared with BM25's ranking (of the rankings that runs keep):\n"
        "\n"
        "| recipe | figures     | source       | runs | dev Hole@10 |\n"
        "| ------ | ----------- | ------------ | ---- | ----------- |\n"
        "| ance   | ANCE (Ours) | two, table 2 | -    | 0.148       |\n"
        "\n"
        "Answers of a reader (`answer`):\n"
        "\n"
        "| recipe | reader | figures | source | runs | test EM |\n"
        "| ------ | ------ | ------- | ------ | ---- | ------- |\n"
        "| -      | -      | Reader  | two    | -    | 0.410   |\n"
        "\n"
        "- one: First paper\n"
        "- two: Second paper"
    )


def test_seeds_are_one_row_with_the_difference_to_what_is_expected(folder, tmp_path):
    runs = tmp_path / "runs"
    for seed, value in enumerate((0.30, 0.34)):
        overrides = ["final_evaluation.split=[dev,dl20]", f"seed={seed}"]
        finished(
            runs / f"ance-{seed}",
            folder / "ance.yaml",
            {"bm25": 0.2, "untrained": 0.05, "only": value},
            overrides,
        )
    finished(runs / "again", folder / "ance.yaml", {"only": 0.5}, ["final_evaluation.split=dev"])
    again, both = (config_hash_of(RunDir(runs / name), "")[:6] for name in ("again", "ance-0"))
    rows = cells(read_tables(str(folder), runs))
    assert rows[0][4:] == ["dev RR@10", "dl19 nDCG@10", "dl19-rerank nDCG@10"]
    assert ["bm25-search", "measured", "ance-0 and 1 more", "2", "0.200", "-", "-"] in rows
    assert ["untrained", "measured", "ance-0 and 1 more", "2", "0.050", "-", "-"] in rows
    ance = [row for row in rows if row[0] == "ance"]
    assert ance[1:3] == [
        ["ance", f"measured [{again}]", "again", "1", "0.500, +0.170", "-", "-"],
        ["ance", f"measured [{both}]", "ance-0 and 1 more", "2", "0.320 (0.300-0.340), -0.010", "-", "-"],
    ]


def test_a_variant_has_a_row_and_no_difference_and_a_line_says_why(folder, tmp_path):
    settings = ["final_evaluation.split=dev", "stages.only.steps=11"]
    run = finished(tmp_path / "runs" / "ance", folder / "ance.yaml", {"only": 0.3}, settings)
    label = config_hash_of(RunDir(run), "")[:6]
    table = read_tables(str(folder), tmp_path / "runs")
    assert ["ance", f"measured [{label}]", "ance", "1", "0.300", "-", "-"] in cells(table)
    assert table.as_markdown().endswith(
        f"\n- [{label}]: no expectation for this variant of set/ance: stages.only.steps 11 instead of 10"
    )


def test_each_index_that_searched_has_a_row_next_to_the_published_one(folder, tmp_path):
    """LTRe's table 4: the recipe has the index of training, the rows those of evaluation."""
    (folder / "_published.yaml").write_text("""
sources: {ltre: a paper}
rows:
- {method: ance, as: "trained in PQ6", source: ltre, table: 3, dev: {RR@10: 0.3}}
- {method: ance, as: "PQ6, searched in PQ6", source: ltre, table: 4, index: PQ6, dev: {RR@10: 0.2}}
- {method: ance, as: "PQ6, searched in IndexFlatIP", source: ltre, table: 4, index: IndexFlatIP,
   dev: {RR@10: 0.31}}
""")
    rows = {"untrained": 0.1, "untrained+PQ6": 0.05, "only": 0.32, "only+PQ6": 0.22, "only+PQ9": 0.25}
    run = finished(tmp_path / "runs" / "a", folder / "ance.yaml", rows, ["final_evaluation.split=dev"])
    results = json.loads((run / "measures.json").read_text())
    for row in results["rows"]:
        if "+" in row["row"]:
            del row["train seconds"]
    (run / "measures.json").write_text(json.dumps(results))
    assert read_tables(str(folder), tmp_path / "runs").as_markdown().split("\n\n")[1:3] == [
        "By the index that searched (`final_evaluation.indexes`):",
        "| recipe | index       | figures                      | source        | runs | dev RR@10 |\n"
        "| ------ | ----------- | ---------------------------- | ------------- | ---: | --------- |\n"
        "| ance   | PQ6         | measured                     | a             |    1 | 0.220     |\n"
        "| ance   | PQ6         | PQ6, searched in PQ6         | ltre, table 4 |    - | 0.200     |\n"
        "| ance   | IndexFlatIP | measured                     | a             |    1 | 0.320     |\n"
        "| ance   | IndexFlatIP | PQ6, searched in IndexFlatIP | ltre, table 4 |    - | 0.310     |\n"
        "| ance   | PQ9         | measured                     | a             |    1 | 0.250     |",
    ]


def test_a_method_that_is_not_a_recipe_is_rejected(folder, tmp_path):
    (folder / "_published.yaml").write_text(
        PUBLISHED.replace("method: ance, as: ANCE,", "method: anec, as: ANCE,")
    )
    message = (
        r"_published\.yaml: rows\.4\.method: no recipe of that name "
        r"\(did you mean 'ance'\?\); remove `method` .*got 'anec'"
    )
    with pytest.raises(ValueError, match=message):
        read_tables(str(folder), tmp_path)


def test_an_unpublished_set_shows_measured_scores(base, tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "nce.yaml").write_text(base.read_text())
    finished(
        tmp_path / "runs" / "nce",
        tmp_path / "plain" / "nce.yaml",
        {"bm25": 0.2, "only": 0.4},
        name="plain/nce",
    )
    finished(
        tmp_path / "runs" / "mine",
        tmp_path / "plain" / "nce.yaml",
        {"bm25": 0.2, "only": 0.6},
        name="plain/mine",
    )
    assert cells(read_tables(str(tmp_path / "plain"), tmp_path / "runs")) == [
        ["recipe", "figures", "source", "runs", "test RR@10"],
        ["-----------", "--------", "---------------", "---:", "----------"],
        ["bm25-search", "measured", "mine and 1 more", "2", "0.200"],
        ["nce", "measured", "nce", "1", "0.400"],
        ["mine", "measured", "mine", "1", "0.600"],
    ]


def new_and_old(folder: Path, tmp_path: Path) -> list[Path]:
    """Two finished runs of one recipe."""
    return [
        finished(
            tmp_path / "runs" / name, folder / "ance.yaml", {"only": 0.3201}, ["final_evaluation.split=dev"]
        )
        for name in ("new", "old")
    ]


def test_a_run_of_another_version_is_named_and_the_others_stay(folder, tmp_path):
    runs = new_and_old(folder, tmp_path)
    recipe = runs[1] / "recipe.yaml"
    recipe.write_text(recipe.read_text() + "former_key: 1\n")
    found = read_tables(str(folder), tmp_path / "runs")
    assert found.figures.source[found.figures.runs > 0].unique().tolist() == ["new"]
    [told] = found.notes
    assert (
        told.startswith(f"skipped: {runs[1]} cannot be read: recipe {recipe}")
        and "unknown key 'former_key'" in told
    )


def test_the_format_follows_the_files_ending(folder, tmp_path):
    finished(
        tmp_path / "runs" / "ance", folder / "ance.yaml", {"only": 0.3201}, ["final_evaluation.split=dev"]
    )
    table = read_tables(str(folder), tmp_path / "runs")
    for ending in ("md", "json", "csv"):
        table.write(tmp_path / f"table.{ending}")
    assert (tmp_path / "table.md").read_text() == table.as_markdown() + "\n"
    written = json.loads((tmp_path / "table.json").read_text())
    assert written["sources"]["one"] == "First paper" and len(written["figures"]) == 12
    (measured,) = [figure for figure in written["figures"] if figure["figures"] == "measured"]
    assert measured == {
        "recipe": "ance",
        "part": None,
        "figures": "measured",
        "source": "ance",
        "runs": 1,
        "split": "dev",
        "measure": "RR@10",
        "value": 0.3201,
        "lowest": 0.3201,
        "highest": 0.3201,
        "difference": pytest.approx(-0.0099),
    }
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert [row["value"] for row in rows] == [str(figure["value"]) for figure in written["figures"]]
    with pytest.raises(ValueError, match=r"written as \.md, \.json or \.csv"):
        table.write(tmp_path / "table.txt")


def test_a_folder_without_recipes_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no recipes"):
        read_tables(str(tmp_path), tmp_path)
    with pytest.raises(FileNotFoundError, match="did you mean 'msmarco-passage'"):
        read_tables("recipes/msmarco-pasage", tmp_path)
