from pathlib import Path

import pytest
import yaml

from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.load import SHIPPED, dump, load, shipped
from pyserini_ance.recipe.yaml_text import read_yaml

# --- what ships


@pytest.mark.parametrize("name", shipped())
def test_every_recipe_that_ships_loads_expects_what_its_file_says_and_survives_a_dump(name, write):
    """A set on which a ranking is perfect cannot show that training works."""
    recipe = load(name)
    own = read_yaml((SHIPPED / f"{name}.yaml").read_text(), name).get("expect") or {}
    assert (recipe.name, recipe.expect) == (name, own)
    assert all(any(value < 1 for value in of_split.values()) for of_split in own.values())
    assert load(write("dumped", dump(recipe))) == recipe


@pytest.mark.parametrize("base", sorted(path.parent.name for path in SHIPPED.glob("*/_base.yaml")))
def test_the_base_of_every_set_and_a_method_are_a_recipe(base, write):
    recipe = load(write("both", f"extends: [{base}/_base, _methods/bm25]"))
    (stage,) = recipe.stages.values()
    assert all(map(recipe.final_evaluation.measures_of, recipe.final_evaluation.split))
    assert parse_measures([stage.evaluate.measure])
    used = {*recipe.train_split, *recipe.final_evaluation.split, *stage.evaluate.split}
    assert used <= {*(recipe.data.split_names or ("train", "dev", "test"))}


@pytest.mark.parametrize("method", ["recommended", "distilled"])
def test_two_lines_are_a_recipe_for_own_data(method, write):
    text = f"extends: [_base/minilm, _methods/{method}]\ndata: {{kind: beir, folder: data/mine}}"
    recipe = load(write("mine", text))
    *_, last = recipe.stages.values()
    assert (last.steps, last.refresh.every_steps, last.evaluate.every_steps) == (1000, 200, 200)
    assert recipe.encoder.pooling == "mean" and recipe.data.folder == Path("data/mine")


def test_an_instruction_fits_the_collection(write):
    encoder = r'{tokenization: {query: {template: "Instruct: {instruction}\nQuery: {text}"}}}'
    text = f"extends: [_base/minilm, _methods/recommended]\nencoder: {encoder}\ndata: {{kind: beir, folder: a"
    for task in ("find pages", "find laws"):
        recipe = load(write("mine", f"{text}, instruction: {task}}}"))
        assert recipe.encoder.tokenization.prompts()["query"] == f"Instruct: {task}\nQuery: "
    assert load(write("dumped", dump(recipe))) == recipe
    with pytest.raises(ValueError, match=r"encoder: tokenization.query.template has .* set data.instruction"):
        load(write("mine", f"{text}}}"))


def test_the_dump_writes_every_value_out(base, write):
    dumped = yaml.safe_load(dump(load(base)))
    assert dumped["stages"]["only"]["optimizer"]["weight_decay"] == 0.01
    assert dumped["data"]["splits"] == {name: f"qrels/{name}.tsv" for name in ("train", "dev", "test")}
    assert dumped["expect"] == {}
    figures = "expect={'on': {'R(rel=2)@10': 1.0e-5, R@9: 1, RR@10: 0}, dev: {RR@10: 0.33}, é: {}}"
    awkward = load(base, "name='007: b # c'", figures)
    of_on = {"R(rel=2)@10": 1e-5, "R@9": 1.0, "RR@10": 0.0}
    assert awkward.expect == {"on": of_on, "dev": {"RR@10": 0.33}, "é": {}} and awkward.name == "007: b # c"
    assert load(write("dumped", dump(awkward))) == awkward


# --- extends


def test_mappings_merge_lists_replace_and_a_later_base_wins(base, write):
    write("middle", "extends: base\nstages: {only: {steps: 20, lr_schedule: {warmup_steps: 3}}}")
    negatives = "terms: {query: {negatives: [{kind: random, num_negatives: 3}]}}"
    only = load(write("top", f"extends: middle\nstages: {{only: {{steps: 30, {negatives}}}}}")).stages["only"]
    assert (only.steps, only.lr_schedule.warmup_steps, only.optimizer.learning_rate) == (30, 3, 1e-3)
    assert [source.num_negatives for source in only.terms["query"].negatives] == [3]
    write("seven", "extends: base\nseed: 7\nthreads: 7")
    write("eight", "extends: base\nseed: 8")
    loaded = load(write("both", "extends: [seven, eight]"))
    assert (loaded.seed, loaded.threads) == (8, 7)
    merged = r"\S+base.yaml, \S+seven.yaml, \S+base.yaml, \S+eight.yaml"
    with pytest.raises(ValueError, match=rf"both.yaml \(extends {merged}\)"):
        load(write("both", "extends: [seven, eight]\nseed: x"))


def test_a_component_of_the_same_kind_merges_and_of_another_replaces(base, write):
    for text in ("{kind: beir, relevance_threshold: 2}", "{relevance_threshold: 2}"):
        data = load(write("top", f"extends: base\ndata: {text}")).data
        assert (str(data.folder), data.relevance_threshold) == ("some/where", 2)
    own = load(write("top", "extends: base\ndata: {kind: docstrings, packages: [numpy]}")).data
    assert own == load(base, "data.kind=docstrings", "data.packages=[numpy]").data
    assert own == load(base, "data={kind: docstrings, packages: [numpy]}").data
    cosine = "stages: {only: {optimizer: {kind: adamw, weight_decay: 0}, lr_schedule: {kind: cosine}}}"
    stage = load(write("top", f"extends: base\n{cosine}"), "stages.only.lr_schedule.warmup_steps=2")
    assert stage.stages["only"].optimizer.learning_rate == 1e-3
    linear = load(base, "stages.only.lr_schedule.warmup_steps=2", "stages.only.lr_schedule.kind=cosine")
    assert linear.stages["only"].lr_schedule == stage.stages["only"].lr_schedule


# --- stage_defaults


def test_stage_defaults_fill_missing_keys(write, tmp_path):
    text = """
        data: {kind: docstrings}
        encoder: {model: some-model}
        stage_defaults:
          batch_queries: 8
          optimizer: {learning_rate: 1e-3}
          lr_schedule: {warmup_steps: 5}
          terms: {query: {negatives: [{kind: random}], loss: {kind: nll, scale: 20}}}
        stages:
          one: {steps: 1}
          two: {steps: 2, batch_queries: 2, terms: {query: {in_batch_negatives: true}}}
        """
    overrides = ("stage_defaults.save_every_steps=9", "stages.one.lr_schedule.warmup_steps=7")
    one, two = load(write("two", text), *overrides).stages.values()
    for stage, batch, warmup, in_batch in ((one, 8, 7, False), (two, 2, 5, True)):
        assert (stage.batch_queries, stage.lr_schedule.warmup_steps) == (batch, warmup)
        assert stage.save_every_steps == 9 and stage.terms["query"].loss.scale == 20
        assert stage.terms["query"].in_batch_negatives == in_batch
    with pytest.raises(ValueError, match=r"no effect: .*; override stages\.one\.steps, stages\.two\.steps"):
        load(tmp_path / "two.yaml", "stage_defaults.steps=9")
    with pytest.raises(ValueError, match=r"effect: .*; override stages\.one\.steps, stages\.two\.steps$"):
        load(tmp_path / "two.yaml", "stage_defaults={steps: 9, batch_queries: 7}")
    one, two = load(tmp_path / "two.yaml", "stage_defaults={batch_queries: 7}").stages.values()
    assert (one.batch_queries, two.batch_queries) == (7, 2)
    twice = "stage_defaults={batch_queries: 7}", "stage_defaults.batch_queries=6"
    assert load(tmp_path / "two.yaml", *twice).stages["one"].batch_queries == 6
    load(tmp_path / "two.yaml", "stages.one.terms.query.loss=nll", "stage_defaults.terms.query.loss.scale=5")


# --- overrides


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("stages.only.steps=11", lambda recipe: recipe.stages["only"].steps == 11),
        ("final_evaluation.measures=[RR@5]", lambda recipe: recipe.final_evaluation.measures == ("RR@5",)),
        ("bm25={k1: 1.2}", lambda recipe: (recipe.bm25.k1, recipe.bm25.b) == (1.2, 0.4)),
        ("name=a=b", lambda recipe: recipe.name == "a=b"),
        ("stages.only.terms.query.negatives.1.top_k=7", lambda recipe: recipe.sources[1].top_k == 7),
        ("stages.only.terms.query.negatives.0=bm25", lambda recipe: recipe.sources[0].kind == "bm25"),
    ],
)
def test_an_override_sets_what_it_names(base, override, value):
    assert value(load(base, override))
    assert load(base, "seed=1", override, "seed=2").seed == 2


@pytest.mark.parametrize(("text", "number"), [("010", 10), ("08", 8)])
def test_a_number_that_yaml_1_2_does_not_know_is_text_for_settings_of_text(base, write, text, number):
    assert load(base, f"seed={text}").seed == number
    names = (f"name={text}", f"data.folder={text}", f"data.splits.{text}={text}", f"train_split={text}")
    recipe = load(base, *names)
    assert (recipe.name, str(recipe.data.folder), recipe.train_split) == (text, text, (text,))
    assert str(recipe.data.splits[text]) == text
    assert load(write("dumped", dump(recipe))) == recipe
    same = yaml.safe_load(dump(recipe))  # readers of version 1.1 read the same
    assert (same["name"], same["data"]["folder"], same["data"]["splits"][text]) == (text, text, text)


@pytest.mark.parametrize("text", ["1:30", "on", "2026-01-01", "a #2", "#2", "'a #2'", "0b11", "1e", "._1"])
def test_what_is_no_number_in_yaml_1_2_is_text(base, text):
    assert load(base, f"name={text}").name == text.strip("'")
    with pytest.raises(ValueError, match="seed: Input should be a valid integer"):
        load(base, f"seed={text}")


@pytest.mark.parametrize("text", ["{a: 1, a: 2}", "{{seed}}", "{[a]: 1}"])
def test_a_key_is_one_name(base, text):
    with pytest.raises(ValueError, match="override 'bm25=.*':1: (key 'a' is written twice|a key is a list)"):
        load(base, f"bm25={text}")


def test_an_alias_is_a_value_of_its_own(write, base):
    text = base.read_text().replace("stages:\n  only:", "stages:\n  only: &only").rstrip()
    overrides = ("stages.again.steps=3", "stages.again.terms.query.negatives.1.top_k=7")
    stages = load(write("aliases", f"{text}\n  again: *only\n"), *overrides).stages
    assert (stages["only"].steps, stages["again"].steps) == (10, 3)
    assert [stages[name].terms["query"].negatives[1].top_k for name in ("only", "again")] == [50, 7]


# --- null


def test_null_removes_an_inherited_ranking_to_rerank(base, write):
    top = write("top", "extends: base\nfinal_evaluation: {rerank: {test: bm25}}")
    assert load(top).final_evaluation.rerank == {"test": "bm25"}
    assert load(top, "final_evaluation.rerank.test=null").final_evaluation.rerank == {}


def test_null_removes_an_inherited_stage_which_may_be_written_anew(base, write):
    inherited = "stages: {warm: {steps: 3}, then: {steps: 4}}\nstage_defaults: {batch_queries: 2}"
    write("two", f"extends: base\n{inherited}")
    text = "{optimizer: {learning_rate: 1}, terms: {query: {negatives: [{kind: random}]}}}"
    write("filled", f"extends: two\nstages: {{warm: {text}, then: {text}}}")
    more = "{steps: 5, optimizer: {learning_rate: 1}, terms: {query: {in_batch_negatives: true}}}"
    top = write("top", f"extends: filled\nstages: {{warm: null, more: {more}}}")
    assert [*load(top, "stages.only=null").stages] == ["then", "more"]
    stages = load(write("anew", f"extends: top\nstages: {{warm: {more}}}")).stages
    assert [*stages] == ["only", "then", "more", "warm"] and stages["warm"].steps == 5


@pytest.mark.parametrize(
    ("data", "overrides", "splits"),
    [
        ("{}", ["data.splits.dev=null"], {"train": "qrels/train.tsv", "test": "qrels/test.tsv"}),
        ("{splits: {test: t, dev: null}}", [], {"train": "qrels/train.tsv", "test": "t"}),
        ("{}", ["data.splits={dev: d}"], {"dev": "d"}),
        ("{}", ["data.splits.dev=d"], {"train": "qrels/train.tsv", "dev": "d", "test": "qrels/test.tsv"}),
        ("{splits: {train: a, dev: b}}", ["data.splits.dev=null", "data.splits.m=d"], dict(train="a", m="d")),
    ],
)
def test_null_removes_a_split_that_is_inherited_or_the_kinds_default(base, write, data, overrides, splits):
    recipe = load(write("top", f"extends: base\ndata: {data}"), *overrides)
    assert {name: str(path) for name, path in recipe.data.splits.items()} == splits
