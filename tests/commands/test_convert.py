from dataclasses import replace

import pytest
import yaml
from helpers.small_set import ONE_STEP, make_small_collection, small_settings

from pyserini_ance.commands.convert import main
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.given_collection import make_collection
from pyserini_ance.recipe.components import component_class
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir


@pytest.fixture
def recipe(tmp_path) -> Recipe:
    (tmp_path / "data").mkdir()
    files = make_small_collection(tmp_path / "data")
    made = Recipe.model_validate(small_settings(files, tmp_path / "no-model", {"ance": ONE_STEP}))
    (tmp_path / "recipe.yaml").write_text(dump(made))
    return made


def convert(capsys, *arguments) -> dict:
    """The section `data` that the command prints."""
    main([str(argument) for argument in arguments])
    return yaml.safe_load(capsys.readouterr().out.split("\n")[1])["data"]


def test_a_recipes_collection_as_beir_and_tevatron(recipe, tmp_path, capsys):
    read = recipe.data.read()
    for layout in ("beir", "tevatron"):
        said = convert(capsys, tmp_path / "recipe.yaml", "--to", layout, "--output", tmp_path / layout)
        again = component_class("data", layout).model_validate(said).read()
        assert again.documents.columns["text"] == read.documents.columns["text"]
        assert again.digest == read.digest


def test_a_dev_split_that_is_cut_needs_no_file(recipe, tmp_path, capsys):
    convert(capsys, tmp_path / "recipe.yaml", "--to", "beir", "--output", tmp_path / "beir")
    (tmp_path / "beir" / "qrels" / "dev.tsv").unlink()
    own = (tmp_path / "recipe.yaml", f"data={{kind: beir, folder: {tmp_path / 'beir'}, hold_out: 2}}")
    said = convert(capsys, *own, "--to", "tevatron", "--output", tmp_path / "tevatron")
    assert list(said["splits"]) == ["train", "dev", "test"]


@pytest.mark.parametrize("layout", ["beir", "tevatron"])
def test_what_a_format_cannot_hold_is_named(recipe, tmp_path, capsys, caplog, layout):
    asked = tmp_path / "data" / "asked.jsonl"
    asked.write_text('{"id": "1", "title": "who", "answers": ["a"]}\n')
    given = (tmp_path / "recipe.yaml", f"data.splits.asked.topics={asked}")
    said = convert(capsys, *given, "--to", layout, "--output", tmp_path / layout)
    assert list(said["splits"]) == ["train", "dev", "test"]
    assert f"split asked is left out with its 1 queries: {layout} needs judgments" in caplog.messages


def test_what_changes_rankings_is_printed_and_unread_fields_are_named(recipe, tmp_path, capsys, caplog):
    asks = "Find an article"
    given = (tmp_path / "recipe.yaml", "data.ignore_identical_ids=true", f"data.instruction={asks}")
    for to in ("beir", "tevatron"):
        said = convert(capsys, *given, "--to", to, "--output", tmp_path / to)
        assert (said["ignore_identical_ids"], said["instruction"]) == (True, asks)
    assert "are written, but not read again" not in caplog.text
    clash = {name: {"q": name} for name in ("a", "b")}
    with_url = make_collection({"d": "text"}, clash, {name: {"q": {"d": 1}} for name in clash})
    message = "two splits have one id for different queries, and ignore_identical"
    with pytest.raises(ValueError, match=message):
        replace(with_url, ignore_identical_ids=True).to_beir(tmp_path / "clash")
    replace(with_url, documents=Texts(["d"], {"url": ["u"], "text": ["t"]})).to_beir(tmp_path / "url")
    assert "the fields ['url'] are written, but not read again" in caplog.text


def test_the_relevance_threshold_is_printed_for_beir_only(recipe, tmp_path, capsys, caplog):
    path = tmp_path / "recipe.yaml"
    for split in ("train", "dev", "test"):
        qrels = tmp_path / "data" / f"{split}.qrels"
        qrels.write_text(qrels.read_text().replace(" 1\n", " 2\n") + f"{split}-1 0 red-cloud 1\n")
    for to, threshold in (("beir", 2), ("tevatron", None)):
        said = convert(capsys, path, "data.relevance_threshold=2", "--to", to, "--output", tmp_path / to)
        read = component_class("data", to).model_validate(said).read()
        assert said.get("relevance_threshold") == threshold
        assert len(read.split("train").qrels.positives.rows) == 16
        kept = "split train keeps 15 of 15 queries and 16 of 17 judgments, as grade 1: Tevatron's files have "
        assert (f"{kept}relevant documents alone; --to beir keeps all" in caplog.messages) == (to != "beir")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["run", "--to", "beir", "--output", "data/corpus.jsonl"], FileExistsError, "would be replaced"),
        (["data", "--to", "beir"], FileNotFoundError, r"is not a run directory \(recipe.yaml is missing\)"),
    ],
)
def test_what_cannot_be_written_is_refused(recipe, tmp_path, monkeypatch, arguments, error, message):
    monkeypatch.chdir(tmp_path)
    RunDir(tmp_path / "run").create(dump(recipe))
    before = (tmp_path / "data" / "corpus.jsonl").read_bytes()
    with pytest.raises(error, match=message):
        main([*arguments, *([] if "--output" in arguments else ["--output", "out"])])
    assert not (tmp_path / "out").exists() and (tmp_path / "data" / "corpus.jsonl").read_bytes() == before
