import json
import re
from types import SimpleNamespace
from unittest.mock import Mock

import huggingface_hub
import pytest
import yaml
from helpers.finished_run import finished, ranked

from pyserini_ance.commands import publish
from pyserini_ance.data.formats.datasets import Datasets
from pyserini_ance.reports import model_card
from pyserini_ance.reports.model_card import write_model_card
from pyserini_ance.runs.rundir import RunDir

SIDE = {"format": 2, "dimension": 32, "pooling": "mean", "normalize": "query"}
DIFFERENCES = {
    "sentence-transformers": {"share": 2e-7, "side": "query", "text": "a query"},
    "transformers": {"share": 1e-7, "side": "query", "text": "a query"},
    "Pyserini's class auto, queries": {"share": 3e-7, "side": "query", "text": "a query"},
    "Pyserini's class auto, documents": {"share": 0.5, "side": "document", "text": "a document"},
}


@pytest.fixture
def run(base, tmp_path) -> RunDir:
    """A finished run in sentence-transformers' form, started from a folder whose card names a licence."""
    start = tmp_path / "start"
    start.mkdir()
    (start / "README.md").write_text("---\nlicense: mit\n---\n")
    overrides = [f"encoder.model={start}", "encoder.pooling=mean"]
    folder = tmp_path / "run"
    run = RunDir(ranked(folder, base, "set/ance", {"a": 1, "b": 1, "c": 3}, *overrides))
    run.model.mkdir()
    (run.model / "pyserini_ance.json").write_text(json.dumps(SIDE))
    given = {"encoder": "model", "topics": "topics.test.json", "index": "index", "output": "run.txt"}
    command = f"/usr/bin/python -m pyserini.search.faiss --sparse-index {tmp_path}/cache/raw"
    command += "".join(f" --{name} {folder}/{file}" for name, file in given.items())
    results = json.loads(run.measures.read_text())
    results["export"] = {"command": command, "differences": DIFFERENCES}
    run.measures.write_text(json.dumps(results))
    return run


def test_the_metadata(run):
    data = huggingface_hub.ModelCard.load(write_model_card(run)).data
    assert (data.license, data.base_model, data.library_name) == ("mit", None, "sentence-transformers")
    assert {"sentence-transformers", "feature-extraction"} <= set(data.tags)
    [measured] = data.eval_results
    assert (measured.metric_name, measured.metric_value, measured.dataset_split) == ("RR@10", 0.7778, "test")
    # The data is not the benchmark BEIR: its kind only says how some/where is laid out.
    assert (measured.dataset_name, measured.dataset_type) == ("where", "where")


def test_tables_of_this_machine_are_no_data_set_of_the_hub(tmp_path):
    for path, name in ((str(tmp_path / "docs.parquet"), "docs"), ("BeIR/nfcorpus", "BeIR/nfcorpus")):
        table = {"path": path}
        data = Datasets(documents=table, queries=table, splits={"test": table})
        assert model_card._data_name(SimpleNamespace(data=data)) == name


def test_the_text_has_measures_commands_and_the_recipe_and_no_path_of_the_machine(run, tmp_path):
    text = huggingface_hub.ModelCard.load(write_model_card(run)).text
    assert str(tmp_path) not in text and "/usr/bin" not in text
    assert re.search(r"\| only +\| 0\.7778 \|", text)
    assert re.search(r"\| bm25 +\| \+0\.278, p 0\.\d{3} \(2/0/1\) \|", text)  # 1 - 1/2 twice, and 1/3 - 1/2
    searched = "--encoder MODEL --topics topics.test.json --index INDEX --output run.txt"
    assert f"python -m pyserini.search.faiss --sparse-index .../raw {searched}" in text
    assert "SentenceTransformer('MODEL')" in text
    recipe = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert (recipe["name"], recipe["encoder"]["model"]) == ("set/ance", ".../start")


def test_the_use_in_sentence_transformers_says_what_its_files_do_not(run):
    document = {"length_tokens": 48, "template": "passage: {title} {text}"}
    tokenization = {"query": {"length_tokens": 24, "template": "{text}"}, "document": document}
    (run.model / "pyserini_ance.json").write_text(json.dumps({**SIDE, "tokenization": tokenization}))
    text = write_model_card(run).read_text()
    assert 'model.encode_document(["A title a text"])' in text
    assert "\n\nA document's title is the beginning of its text. Lengths" in text
    assert "pooled by `mean`, scaled to length 1 for a query.\n\n### pyserini_ance\n" in text
    assert "use `encode_query` and `encode_document`, not `encode`" in text
    assert "transformers: 2e-07; transformers: 1e-07; Pyserini's class auto, queries: 3e-07." in text


def test_another_form_names_a_hub_model_and_no_sentence_transformers(base, tmp_path):
    run = RunDir(finished(tmp_path / "run", base, {"only": 0.5}, ["encoder.model=org/base"]))
    run.model.mkdir()
    card = huggingface_hub.ModelCard.load(write_model_card(run, "me/mine"))
    assert (card.data.base_model, card.data.license) == ("org/base", None)
    assert "sentence-transformers" not in card.content and "me/mine" in card.text
    assert "paired t test" not in card.text


def test_publish_uploads_the_folder_with_its_card(run, monkeypatch, capsys):
    hub = Mock(**{"create_repo.return_value": "https://hub/me/mine"})
    for name, value in {"get_token": lambda: "t", "get_session": Mock, "HfApi": lambda: hub}.items():
        monkeypatch.setattr(huggingface_hub, name, value)
    publish.main([str(run.folder), "me/mine", "--private"])
    hub.create_repo.assert_called_once_with("me/mine", private=True, exist_ok=True)
    sent = hub.upload_folder.call_args.kwargs
    assert (sent["repo_id"], sent["folder_path"]) == ("me/mine", run.model)
    assert "*.json" in sent["delete_patterns"]  # of an earlier model
    assert "https://hub/me/mine" in capsys.readouterr().out
    assert "SentenceTransformer('me/mine')" in (run.model / "README.md").read_text()


@pytest.mark.parametrize(("token", "reason"), [(None, "not logged in"), ("t", "no route to host")])
def test_without_token_or_network_the_folder_is_ready(run, monkeypatch, token, reason):
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: token)
    monkeypatch.setattr(huggingface_hub, "get_session", Mock(side_effect=OSError("no route to host")))
    with pytest.raises(ConnectionError, match=f"me/mine was not published: .*{reason}") as error:
        publish.main([str(run.folder), "me/mine"])
    assert f"{run.model} is ready" in str(error.value)
    assert str(error.value).endswith(f"repeat: pyserini-ance publish {run.folder} me/mine")
    assert (run.model / "README.md").is_file()


def test_publish_wants_a_run_and_a_name_of_the_hub(run):
    with pytest.raises(FileNotFoundError, match=r"recipe.yaml is not a run directory: a file\. Pass"):
        publish.main([str(run.recipe), "me/mine"])
    with pytest.raises(ValueError, match="Repo id must"):
        publish.main([str(run.folder), "a/b/c"])
