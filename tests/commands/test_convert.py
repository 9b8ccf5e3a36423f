import numpy as np
import pytest
import yaml
from helpers import ranking_files as ranked
from helpers.small_set import ONE_STEP, make_small_collection, small_settings

from pyserini_ance.commands.convert import main
from pyserini_ance.data.trec import read_run
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.pipeline.preparation import recipe_data
from pyserini_ance.recipe.components import component_class
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.generation import publish_generation
from pyserini_ance.runs.rundir import RunDir


@pytest.fixture
def recipe(tmp_path) -> Recipe:
    (tmp_path / "data").mkdir()
    files = make_small_collection(tmp_path / "data")
    stages = {"ance": ONE_STEP, "a-later": ONE_STEP}
    return Recipe.model_validate(small_settings(files, tmp_path / "no-model", stages))


@pytest.fixture
def run(recipe, tmp_path) -> RunDir:
    """Three generations, each with another candidate first."""
    run = RunDir(tmp_path / "run")
    run.negatives.mkdir(parents=True)
    run.recipe.write_text(dump(recipe))
    digest = recipe_data(recipe).read().digest
    for first, (stage, step) in enumerate([("ance", 0), ("ance", 10), ("a-later", 5)]):
        about = {"stage": stage, "step": step, "weights": "w", "collection": digest}
        publish_generation(run.generation(stage, step), {("query", 0): table(20 + first)}, {}, {}, about)
    return run


def table(first: int, anchor: str = "query") -> NegativeTable:
    candidates = np.tile(np.array([first, 29, first, PADDING], np.int32), (15, 1))
    scores = np.tile(np.array([2.5, 1.25, 2.5, -np.inf], np.float32), (15, 1))
    found = "document" if anchor == "query" else "query"
    return NegativeTable(anchor, found, np.arange(15, dtype=np.int32), candidates, scores, "ann")


def convert(capsys, *arguments) -> dict:
    main([str(argument) for argument in arguments])
    return yaml.safe_load(capsys.readouterr().out.split("\n")[1])


def test_a_recipes_collection_as_beir_and_tevatron(recipe, tmp_path, capsys):
    path = tmp_path / "recipe.yaml"
    path.write_text(dump(recipe))
    read = recipe.data.read()
    for layout in ("beir", "tevatron"):
        said = convert(capsys, path, "--to", layout, "--output", tmp_path / layout)["data"]
        again = component_class("data", layout).model_validate(said).read()
        assert again.documents.columns["text"] == read.documents.columns["text"]
        assert again.digest == read.digest


@pytest.mark.parametrize("layout", ["beir", "tevatron"])
def test_what_a_format_cannot_hold_is_named(recipe, tmp_path, capsys, caplog, layout):
    asked, path = tmp_path / "data" / "asked.jsonl", tmp_path / "recipe.yaml"
    asked.write_text('{"id": "1", "title": "who", "answers": ["a"]}\n')
    path.write_text(dump(recipe))
    flags = (f"data.splits.asked.topics={asked}", "--to", layout, "--output", tmp_path / layout)
    assert list(convert(capsys, path, *flags)["data"]["splits"]) == ["train", "dev", "test"]
    assert f"split asked is left out with its 1 queries: {layout} needs judgments" in caplog.messages


def test_the_relevance_threshold_is_printed_for_beir_only(recipe, tmp_path, capsys):
    path = tmp_path / "recipe.yaml"
    path.write_text(dump(recipe))
    for split in ("train", "dev", "test"):
        qrels = tmp_path / "data" / f"{split}.qrels"
        qrels.write_text(qrels.read_text().replace(" 1\n", " 2\n") + f"{split}-1 0 red-cloud 1\n")
    for to, threshold in (("beir", 2), ("tevatron", None)):
        said = convert(capsys, path, "data.relevance_threshold=2", "--to", to, "--output", tmp_path / to)
        read = component_class("data", to).model_validate(said["data"]).read()
        assert said["data"].get("relevance_threshold") == threshold
        assert len(read.split("train").qrels.positives.rows) == 16


@pytest.mark.parametrize(
    ("chosen", "first"),
    [([], 22), (["--table", "ance-00000010"], 21), (["--table", "ance-00000000/query.0"], 20)],
)
def test_mined_negatives_of_a_chosen_table(recipe, run, tmp_path, capsys, chosen, first):
    ids = recipe.data.read().documents.ids
    lines = {
        "trec": f"train-0 Q0 {ids[first]} 1 2.5 pyserini_ance\n",
        "msmarco": f"train-0\t{ids[first]}\t1\ntrain-0\t{ids[29]}\t2\n",
    }
    for layout, begin in lines.items():
        convert(capsys, run.folder, "--to", layout, "--output", tmp_path / layout, *chosen)
        assert (tmp_path / layout).read_text().startswith(begin)


@pytest.mark.parametrize("layout", ["trec", "msmarco", "tevatron"])
@pytest.mark.parametrize("number", [1, 3, 40])
def test_the_first_negatives_of_each_query(recipe, run, tmp_path, capsys, layout, number):
    """The newest generation has 12 of the 30 documents for each query, then padding; two repeat."""
    order = [5, 3, 5, 9, 0, 3, 29, 28, 27, 26, 1, 2, 4, 6, PADDING]
    candidates = np.tile(np.array(order, np.int32), (15, 1))
    scores = np.tile(np.arange(len(order), 0, -1, dtype=np.float32), (15, 1))
    deep = NegativeTable("query", "document", np.arange(15, dtype=np.int32), candidates, scores, "ann")
    collection = recipe.data.read()
    about = {"stage": "a-later", "step": 9, "weights": "w", "collection": recipe_data(recipe).read().digest}
    publish_generation(run.generation("a-later", 9), {("query", 0): deep}, {}, {}, about)
    flags = ["--to", layout, "--output", tmp_path / layout, "--num-negatives", number]
    convert(capsys, run.folder, *flags)
    file = tmp_path / "tevatron" / "train.jsonl" if layout == "tevatron" else tmp_path / layout
    queries, ids = collection.split("train").queries, collection.documents.ids
    expected = [ids[row] for row in [5, 3, 9, 0, 29, 28, 27, 26, 1, 2, 4, 6]][:number]
    found = ranked.read(file, queries, collection.documents)
    assert {query: list(hits) for query, hits in found.items()} == dict.fromkeys(queries.ids, expected)


def test_one_of_several_tables_must_be_named(recipe, run, tmp_path):
    about = {"stage": "a-later", "step": 9, "weights": "w", "collection": recipe_data(recipe).read().digest}
    tables = {("query", 0): table(3), ("document", 1): table(4, "document")}
    publish_generation(run.generation("a-later", 9), tables, {}, {}, about)
    flags = [str(run.folder), "--to", "trec", "--output", str(tmp_path / "trec")]
    with pytest.raises(ValueError, match=r"has the tables document\.1, query\.0; pass one of them: --table"):
        main(flags)
    with pytest.raises(ValueError, match="holds queries for documents"):
        main([*flags, "--table", "a-later-00000009/document.1"])
    main([*flags, "--table", "a-later-00000009/query.0"])


@pytest.mark.parametrize(("row", "split", "name"), [("", "test", "run"), (":bm25", "dev", "runs/bm25")])
def test_a_ranking_as_leaderboards_take_it(run, tmp_path, capsys, row, split, name):
    """By score, ties as measures see them, whatever the order of the lines."""
    run.run_files.mkdir()
    file, output = run.folder / f"{name}.{split}.trec", tmp_path / "out"
    file.write_text("t-1 Q0 red-horse 1 0.5 t\nt-0 Q0 a 1 1.0 t\nt-0 Q0 b 2 1.0 t\nt-0 Q0 c 3 2.5 t\n")
    flags = [f"{run.folder}{row}", "--split", split, "--output", output]
    said = convert(capsys, *flags, "--to", "msmarco")
    assert output.read_text() == "t-1\tred-horse\t1\nt-0\tc\t1\nt-0\tb\t2\nt-0\ta\t3\n"
    assert said == {"final_evaluation": {"rerank": {split: {"file": str(output)}}}}
    convert(capsys, *flags[:-1], tmp_path / "out.trec", "--to", "trec")
    assert read_run(tmp_path / "out.trec") == read_run(file)


TREC, TEVATRON, BEIR = ["--to", "trec"], ["--to", "tevatron"], ["--to", "beir"]
RANKED = "a ranking is written as it is, by --to trec or msmarco, without overrides and --table; for"
NO_RUN = "is not a run directory: it has no rankings and no mined negatives; pass one, as FOLDER or"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["run", *TREC, "--output", "data/corpus.jsonl"], FileExistsError, "input, which would be replaced"),
        (["run", "--split", "train", *TREC], ValueError, "no ranking of split 'train' .* have one: none"),
        (["run", "--split", "test", *BEIR], ValueError, RANKED),
        (["run:bm25", *TREC, "--table", "ance-00000010"], ValueError, RANKED),
        (["run:bm25", "a.key=3", *TREC], ValueError, RANKED),
        (["demo/ance", "--split", "test", *TREC], ValueError, NO_RUN),
        (["empty", *TEVATRON], ValueError, "empty has mined no negatives; pass a run that has. For its"),
        (["recipe.yaml", *TREC], ValueError, NO_RUN),
        (["run", *BEIR, "--table", "ance-00000010"], ValueError, "which the beir format cannot hold"),
        (["run", *BEIR, "--num-negatives", "3"], ValueError, "--num-negatives 3 limits the mined"),
        (["data", *BEIR], FileNotFoundError, r"is not a run directory \(recipe.yaml is missing\)"),
        (["run", *TREC, "--table", "ance-7"], ValueError, "no generation ance-7; generations: a-later-00000"),
        (["other", *TREC], RuntimeError, "was mined with collection"),
    ],
)
def test_what_cannot_be_written_is_refused(recipe, run, tmp_path, monkeypatch, arguments, error, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text(dump(recipe))
    RunDir(tmp_path / "empty").create(dump(recipe))  # of a run with in-batch negatives alone
    if arguments[0] == "other":
        (tmp_path / "run").rename("other")
        (tmp_path / "data" / "train.qrels").write_text("train-0 0 red-apple 1\n")
    before = (tmp_path / "data" / "corpus.jsonl").read_bytes()
    with pytest.raises(error, match=message):
        main([*arguments, *([] if "--output" in arguments else ["--output", "out"])])
    assert not (tmp_path / "out").exists() and (tmp_path / "data" / "corpus.jsonl").read_bytes() == before
