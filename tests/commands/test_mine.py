import json
import re

import pytest
import yaml
from helpers.small_set import ONE_STEP

from pyserini_ance import api
from pyserini_ance.commands import mine


@pytest.fixture
def files(tiny_bert, small_recipe, tmp_path, monkeypatch):
    """The arguments that name encoder, collection, cache and output."""
    recipe = small_recipe({"a": ONE_STEP})
    (tmp_path / "collection.yaml").write_text(yaml.safe_dump(recipe.data.model_dump(mode="json")))
    monkeypatch.chdir(tmp_path)
    names = f"--encoder {tiny_bert} --collection collection.yaml --output out/negatives.jsonl".split()
    return [*names, "--cache", str(recipe.cache), "--device", "cpu", "--precision", "fp32"]


def lines(tmp_path) -> list[dict]:
    return [json.loads(line) for line in (tmp_path / "out" / "negatives.jsonl").read_text().splitlines()]


def test_negatives_and_a_table(files, tmp_path, capsys):
    mine.main([*files, "--top-k", "10", "--num-negatives", "4", "--filters", "duplicates", "range_min=2"])
    written = lines(tmp_path)
    assert len(written) == 16
    columns = ["anchor", "positive", "negative_1", "negative_2", "negative_3", "negative_4"]
    assert all([*line] == columns for line in written)
    shown = capsys.readouterr().out
    cells = ("| ann    |      15 |", "| known positives |", "| range_min       |")
    assert all(cell in shown for cell in cells)
    assert shown.endswith("out/negatives.jsonl: 15 queries\n")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["negatives.jsonl"]


def test_the_command_writes_what_the_function_mines(files, tiny_bert, tmp_path):
    """Files of another split need not exist."""
    data = yaml.safe_load((tmp_path / "collection.yaml").read_text())
    data["splits"]["gone"] = {**data["splits"]["train"], "qrels": "gone.txt"}
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(data))
    settings = ["--encoder-settings", "length_tokens={document: 20}", "--collection", "more.yaml"]
    mine.main([*files, "--top-k", "10", "--num-negatives", "2", "--seed", "3", *settings])
    collection = api.load_collection(tmp_path / "collection.yaml", cache=files[7])
    encoder = api.load_encoder(tiny_bert, device="cpu", length_tokens={"document": 20})
    source = {"kind": "ann", "top_k": 10}
    more = {"num_negatives": 2, "seed": 3, "encoding": {"precision": "fp32"}, "cache": files[7]}
    assert lines(tmp_path) == api.mine(encoder, collection, source, **more).to_dataset().to_list()


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("duplicates", "duplicates"),
        ("relative_margin=0.05", {"kind": "relative_margin", "margin": 0.05}),
        ("range_min=10", {"kind": "range_min", "ranks": 10}),
        ("{kind: relative_margin, margin: 0.1}", {"kind": "relative_margin", "margin": 0.1}),
        ("duplicates=1", "--filters duplicates=1: duplicates has no settings; write duplicates"),
    ],
)
def test_filters_on_the_command_line(text, settings):
    if isinstance(settings, dict) or settings == text:
        assert mine.filter_settings(text) == settings
    else:
        with pytest.raises(ValueError, match=re.escape(settings)):
            mine.filter_settings(text)


def test_no_input_is_replaced(files, tmp_path):
    corpus = yaml.safe_load((tmp_path / "collection.yaml").read_text())["corpus"]
    for path in ("collection.yaml", corpus):
        with pytest.raises(FileExistsError, match="is an input, which would be replaced"):
            mine.main([*files, "--output", path])


def test_advice_writes_nothing_and_negatives_need_a_file(files, capsys):
    advise, other = ["--advise"], ["--source", "bm25"]
    refused = {"give --output": files[:4], "remove --output": [*files, *advise]}
    refused["remove --source"] = [*files[:4], *advise, *other]
    for message, arguments in refused.items():
        with pytest.raises(SystemExit):
            mine.main(arguments)
        assert message in capsys.readouterr().err
