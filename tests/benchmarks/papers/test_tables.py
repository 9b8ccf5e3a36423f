"""The papers' tables of a set: recipes, published rows, run directories, folders of `rerank` and `answer`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from helpers.finished_run import finished

from benchmarks.papers.tables import read_tables
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.provenance import config_hash
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import sha256_file, write_json
from pyserini_ance.storage.publish import publishing

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
DERIVED = """
sources: {paper: a paper}
rows:
- {method: bm25-search, as: BM25, source: paper, dev: {RR@10: 0.2, Hole@2: 0.1, Overlap@2: 1.0}}
- {method: bm25-search, as: BM25 alone, source: paper, milliseconds: 62, dev: {RR@10: 0.19}}
- {method: ance, as: ANCE, source: paper, dev: {Hole@2: 0.2, Overlap@2: 0.3, EM: 0.4}}
- {method: ance, as: ANCE + BERT, source: paper, reranker: "BERT, first 3", milliseconds: 79.4,
   dev: {RR@10: 0.36}}
- {method: ance, as: "ANCE, Epi-1", source: paper, interval: only, train: {forgotten: 0.089}}
"""
RANKINGS = {"bm25": {"q1": [*"abc"], "q2": [*"ab"]}, "only": {"q1": [*"axb"], "q2": [*"xya"]}}
QRELS = "q1 0 a 1\nq1 0 b 0\nq2 0 a 1\nq2 0 b 0\nq3 0 a 1\n"
SYSTEMS, INDEXES = "Systems without a recipe here:", "By the index that searched"
JUDGED = "Unjudged documents, and documents shared with BM25's ranking"


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


def run_of(folder: Path, name: str, rows: dict, *overrides: str, recipe: str = "set/ance") -> Path:
    """A finished run beside the set, in the folder `runs`."""
    file = folder / f"{recipe.rpartition('/')[2]}.yaml"
    return finished(folder.parent / "runs" / name, file, rows, overrides, name=recipe)


def tables(folder: Path) -> dict[str, list[list[str]]]:
    """The cells of the tables by heading; `notes` has the lines below them."""
    texts = read_tables(str(folder), folder.parent / "runs").as_markdown().split("\n\n")
    found = {}
    for heading, text in zip(["", *texts], texts):
        if text.startswith("|"):
            rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
            found[heading.partition(" (")[0]] = rows
    return found | {"notes": texts[-1].splitlines()}


def test_without_runs_the_tables_have_published_scores(folder):
    text = read_tables(str(folder), folder / "absent").as_markdown()
    columns = "| recipe | figures | source | runs | dev RR@10 | dl19 nDCG@10 | dl19-rerank nDCG@10 |"
    assert text.split("\n")[0].split() == columns.split()
    assert tables(folder) == {
        "": [
            ["bm25-search", "measured", "-", "-", "-", "-", "-"],
            ["bm25-search", "BM25", "one, table 1", "-", "0.240", "-", "-"],
            ["bm25-search", "BM25", "two", "-", "0.187", "-", "-"],
            ["ance", "expected", "recipe", "-", "0.330", "0.648", "-"],
            ["ance", "measured", "-", "-", "-", "-", "-"],
            ["ance", "ANCE", "one, table 1", "-", "0.330", "-", "0.677"],
            ["ance", "ANCE (Ours)", "two", "-", "0.338", "-", "-"],
            ["nce", "measured", "-", "-", "-", "-", "-"],
        ],
        SYSTEMS: [["SPLADE", "two", "0.3401", "0.684"]],
        JUDGED: [["ance", "ANCE (Ours)", "two, table 2", "-", "0.148"]],
        "Answers of a reader": [["-", "-", "Reader", "two", "-", "0.410"]],
        "notes": ["- one: First paper", "- two: Second paper"],
    }


def test_seeds_are_one_row_with_the_difference_to_what_is_expected(folder):
    for seed, value in enumerate((0.30, 0.34)):
        rows = {"bm25": 0.2, "untrained": 0.05, "only": value}
        run_of(folder, f"ance-{seed}", rows, "final_evaluation.split=[dev,dl20]", f"seed={seed}")
    run_of(folder, "again", {"only": 0.5}, "final_evaluation.split=dev")
    runs = folder.parent / "runs"
    again, both = (config_hash(RunDir(runs / name).read_recipe())[:6] for name in ("again", "ance-0"))
    rows = tables(folder)[""]
    assert ["bm25-search", "measured", "ance-0 and 1 more", "2", "0.200", "-", "-"] in rows
    assert ["untrained", "measured", "ance-0 and 1 more", "2", "0.050", "-", "-"] in rows
    assert [row for row in rows if row[0] == "ance"][1:3] == [
        ["ance", f"measured [{again}]", "again", "1", "0.500, +0.170", "-", "-"],
        ["ance", f"measured [{both}]", "ance-0 and 1 more", "2", "0.320 (0.300-0.340), -0.010", "-", "-"],
    ]


def test_a_variant_has_a_row_and_no_difference_and_a_line_says_why(folder):
    run = run_of(folder, "ance", {"only": 0.3}, "final_evaluation.split=dev", "stages.only.steps=11")
    label, found = config_hash(RunDir(run).read_recipe())[:6], tables(folder)
    assert ["ance", f"measured [{label}]", "ance", "1", "0.300", "-", "-"] in found[""]
    why = f"- [{label}]: no expectation for this variant of set/ance: stages.only.steps 11 instead of 10"
    assert found["notes"][-1] == why


def test_each_index_that_searched_has_a_row_next_to_the_published_one(folder):
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
    run = run_of(folder, "a", rows, "final_evaluation.split=dev")
    results = json.loads((run / "measures.json").read_text())
    for row in results["rows"]:
        if "+" in row["row"]:
            del row["train seconds"]
    (run / "measures.json").write_text(json.dumps(results))
    assert tables(folder)[INDEXES] == [
        ["ance", "PQ6", "measured", "a", "1", "0.220"],
        ["ance", "PQ6", "PQ6, searched in PQ6", "ltre, table 4", "-", "0.200"],
        ["ance", "IndexFlatIP", "measured", "a", "1", "0.320"],
        ["ance", "IndexFlatIP", "PQ6, searched in IndexFlatIP", "ltre, table 4", "-", "0.310"],
        ["ance", "PQ9", "measured", "a", "1", "0.250"],
    ]


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("name:", "former_key: 1\nname:", "skipped: RUN cannot be read: recipe RUN/recipe.yaml"),
        ('"rows"', '"former"', "skipped: RUN/measures.json has no 'rows'; evaluate again, or remove the run"),
    ],
)
def test_a_run_that_cannot_be_read_is_named_and_the_others_stay(folder, old, new, note):
    for name in ("new", "old"):
        run = run_of(folder, name, {"only": 0.32}, "final_evaluation.split=dev")
    for path in (run / "recipe.yaml", run / "measures.json"):
        path.write_text(path.read_text().replace(old, new))
    found = read_tables(str(folder), folder.parent / "runs")
    assert found.figures.source[found.figures.runs > 0].unique().tolist() == ["new"]
    [told] = found.notes
    assert told.startswith(note.replace("RUN", str(run)))


def test_the_format_follows_the_files_ending(folder, tmp_path):
    run_of(folder, "ance", {"only": 0.3201}, "final_evaluation.split=dev")
    table = read_tables(str(folder), tmp_path / "runs")
    for ending in ("md", "json", "csv"):
        table.write(tmp_path / f"table.{ending}")
    assert (tmp_path / "table.md").read_text() == table.as_markdown() + "\n"
    written = json.loads((tmp_path / "table.json").read_text())
    assert written["sources"]["one"] == "First paper" and len(written["figures"]) == 12
    (measured,) = [figure for figure in written["figures"] if figure["figures"] == "measured"]
    head = {"recipe": "ance", "part": None, "figures": "measured", "source": "ance", "runs": 1}
    value = {"value": 0.3201, "lowest": 0.3201, "highest": 0.3201, "difference": pytest.approx(-0.0099)}
    assert measured == {**head, "split": "dev", "measure": "RR@10", **value}
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert [row["value"] for row in rows] == [str(figure["value"]) for figure in written["figures"]]


@pytest.fixture
def run(folder) -> RunDir:
    """A run with rankings of BM25 and of its result, in a set that publishes what results tables lack."""
    (folder / "_published.yaml").write_text(DERIVED)
    made = RunDir(run_of(folder, "a", {"bm25": 0.2, "only": 0.3}))
    made.qrels("dev").write_text(QRELS)
    made.run_files.mkdir()
    for row, ranking in RANKINGS.items():
        ranked = [(query, *each) for query, documents in ranking.items() for each in enumerate(documents, 1)]
        lines = [f"{query} Q0 {document} {rank} {9 - rank} t\n" for query, rank, document in ranked]
        made.ranking(row, "dev").write_text("".join(lines))
    made.final_run("dev").write_text(made.ranking("only", "dev").read_text())
    return made


def test_holes_and_overlap_of_the_first_two(folder, run):
    """x and y are not judged: 1 of 2 and 2 of 2; of BM25's first two the result has 1 of 2 and 0 of 2."""
    assert tables(folder)[JUDGED] == [
        ["bm25-search", "measured", "a", "1", "0.000", "1.000"],
        ["bm25-search", "BM25", "paper", "-", "0.100", "1.000"],
        ["ance", "measured", "a", "1", "0.750", "0.250"],
        ["ance", "ANCE", "paper", "-", "0.200", "0.300"],
    ]
    run.ranking("bm25", "dev").unlink()
    assert ["ance", "measured", "a", "1", "0.750", "no BM25 ranking"] in tables(folder)[JUDGED]


def folder_about(ranking: Path, made: Path, about: dict, rows: list[dict]) -> None:
    """A finished folder of `rerank` or `answer` that was made from `ranking`."""
    made.mkdir()
    about = {**about, "ranking": str(ranking), "ranking_sha256": sha256_file(ranking)}
    write_json(made / "about.json", about)
    write_json(made / "measures.json", {"rows": rows})


def test_two_stages_with_the_latency_of_both(folder, run):
    for ranking, timed in {run.final_run("dev"): {"mean ms": 40.2}, run.ranking("bm25", "dev"): {}}.items():
        rows = [{"ranking": "first stage", "RR@10": 0.3, **timed}]
        rows.append({"ranking": "first 3", "RR@10": 0.35, "mean ms": 30.4, "50% ms": 30.0})
        folder_about(ranking, run.folder / f"reranked-{len(timed)}", {"model": "hub/BERT"}, rows)
    assert tables(folder)["Reranked"] == [
        ["bm25-search", "-", "measured", "a", "1", "0.300", "search not timed"],
        ["bm25-search", "-", "BM25 alone", "paper", "-", "0.190", "62"],
        ["bm25-search", "BERT, first 3", "measured", "a", "1", "0.350", "search not timed"],
        ["ance", "BERT, first 3", "measured", "a", "1", "0.350", "71"],
        ["ance", "BERT, first 3", "ANCE + BERT", "paper", "-", "0.360", "79"],
        ["ance", "-", "measured", "a", "1", "0.300", "40"],
    ]
    run.final_run("dev").write_text("q1 Q0 a 1 1 t\n")
    skipped = f"skipped: {run.folder / 'reranked-1'} was made from an earlier {run.final_run('dev')}"
    assert skipped in tables(folder)["notes"]


def test_answers_of_a_reader(folder, run):
    reader = {"reader": {"kind": "extractive", "model": "hub/reader"}}
    rows = [{"passages": 5, "EM": 0.25, "F1": 0.5}]
    folder_about(run.final_run("dev"), run.folder.parent / "answers", reader, rows)
    assert tables(folder)["Answers of a reader"] == [
        ["ance", "-", "ANCE", "paper", "-", "0.400"],
        ["ance", "reader, first 5", "measured", "a", "1", "0.250"],
    ]


def test_forgetting_by_episode(folder, run):
    """One of four queries ranks worse at the end of the stage than at its start."""
    mined = "stages.only.terms.query.negatives=[{kind: ann, top_k: 100}]"
    mining = (mined, "stages.only.refresh={every_steps: 5}")
    run.recipe.write_text(dump(load(run.recipe, *mining)))
    about = {"event": "generation", "stage": "only", "tables": {"query.0": {"positives": {}}}}
    generations = {0: [1, 4, 7, 9], 5: [2, 1, 7, 9]}
    run.metrics.write_text("".join(json.dumps({**about, "checkpoint_step": n}) + "\n" for n in generations))
    for step, ranks in generations.items():
        with publishing(run.generation("only", step), {}) as generation:
            np.save(generation / "query.0.positive_ranks.npy", np.array(ranks, np.int32))
    [rows] = [rows for heading, rows in tables(folder).items() if "rank worse" in heading]
    assert rows[0][:2] + rows[0][3:] == ["ance", "only", "a", "1", "0.250"]
    assert rows[1] == ["ance", "only", "ANCE, Epi-1", "paper", "-", "0.089"]
