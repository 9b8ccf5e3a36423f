import pytest
import yaml
from helpers.recipe_errors import refused
from pydantic import ValidationError

import pyserini_ance as pa
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.find import SHIPPED, shipped
from pyserini_ance.recipe.load import COMMAND_LINE, dump, load

# --- what ships


@pytest.mark.parametrize("name", shipped())
def test_every_recipe_that_ships_loads_and_comes_back_from_its_dump(name, tmp_path):
    recipe = load(name).recipe
    assert recipe.name == name
    (tmp_path / "dumped.yaml").write_text(dump(recipe), encoding="utf-8")
    assert load(tmp_path / "dumped.yaml").recipe == recipe


@pytest.mark.parametrize("base", sorted(path.parent.name for path in SHIPPED.glob("*/_base.yaml")))
def test_the_base_of_every_set_and_a_method_are_a_recipe(base, write):
    recipe = load(write("both", f"extends: [{base}/_base, _methods/bm25]")).recipe
    (stage,) = recipe.stages.values()
    assert all(map(recipe.final_evaluation.measures_of, recipe.final_evaluation.split))
    used = {*recipe.train_split.splits, *recipe.final_evaluation.split}
    if stage.evaluate:  # squad-beir has no dev split
        assert parse_measures([stage.evaluate.measure])
        used |= {*stage.evaluate.split}
    assert used <= set(getattr(recipe.data, "splits", {"train", "dev", "test"}))


def test_simans_alone_has_the_warm_up_of_ance(write):
    """The recipes of the sets extend `ance` as well; a user's own names the method alone."""
    own = "extends: [demo/_base, _methods/simans]\nstages: {ance: {refresh: {every_steps: 40}}}"
    found, of_set = load(write("own", own)).recipe.stages, load("demo/simans").recipe.stages
    assert list(found) == list(of_set) == ["bm25-neg", "ance"]
    assert [stage.terms for stage in found.values()] == [stage.terms for stage in of_set.values()]


def test_the_dump_writes_every_value_out(base):
    dumped = yaml.safe_load(dump(load(base).recipe))
    assert dumped["stages"]["only"]["optimizer"]["weight_decay"] == 0.01
    assert dumped["data"]["splits"] == {name: f"qrels/{name}.tsv" for name in ("train", "dev", "test")}


def test_awkward_values_come_back_from_the_dump(base, write):
    recipe = load(
        base, "description='a: b # c'", "name='007'", "expect={'on': {'R(rel=2)@10': 1.0e-5}, é: {}}"
    ).recipe
    assert (recipe.description, recipe.name, recipe.expect) == (
        "a: b # c",
        "007",
        {"on": {"R(rel=2)@10": 1e-5}, "é": {}},
    )
    assert load(write("dumped", dump(recipe))).recipe == recipe


def test_equal_recipes_are_equal_and_frozen(base):
    recipe = load(base).recipe
    assert recipe == load(base).recipe != load(base, "seed=7").recipe
    with pytest.raises(ValidationError, match="frozen"):
        recipe.seed = 7


def test_the_name_is_folder_and_file_unless_it_is_given(base, write):
    assert load(base).recipe.name == f"{base.parent.name}/base"
    assert load(write("named", "extends: base\nname: mine")).recipe.name == "mine"


# --- extends


def test_files_extend_one_another(base, write):
    write("middle", "extends: base\nstages: {only: {steps: 20, lr_schedule: {warmup_steps: 3}}}")
    stage = load(write("top", "extends: middle\nstages: {only: {steps: 30}}")).recipe.stages["only"]
    assert (
        stage.steps,
        stage.lr_schedule.warmup_steps,
        stage.optimizer.learning_rate,
        stage.batch_queries,
    ) == (30, 3, 1e-3, 4)


def test_a_later_base_wins(base, write):
    write("seven", "seed: 7\ndescription: seven")
    write("eight", "seed: 8")
    recipe = load(write("top", "extends: [base, seven, eight]")).recipe
    assert (recipe.seed, recipe.description) == (8, "seven")


def test_extended_files_are_siblings_in_another_folder_or_shipped(base, write):
    write("inner/beside", "extends: ../base")
    assert load(write("inner/one", "extends: beside")).recipe.data.kind == "beir"
    assert load(write("inner/two", "extends: beside.yaml")).recipe.data.kind == "beir"
    assert (
        load(write("inner/three", "extends: demo/ance\nseed: 1")).recipe.stages.keys()
        == load("demo/ance").recipe.stages.keys()
    )


def test_a_list_replaces_a_list(base, write):
    recipe = load(
        write(
            "top",
            "extends: base\nstages: "
            "{only: {terms: {query: {negatives: [{kind: random, num_negatives: 3}]}}}}",
        )
    ).recipe
    assert [
        (source.kind, source.num_negatives) for source in recipe.stages["only"].terms["query"].negatives
    ] == [("random", 3)]


def test_a_component_of_the_same_kind_merges(base, write):
    for text in ("{kind: beir, relevance_threshold: 2}", "{relevance_threshold: 2}"):
        data = load(write("top", f"extends: base\ndata: {text}")).recipe.data
        assert (str(data.folder), data.relevance_threshold) == ("some/where", 2)


def test_a_component_of_another_kind_replaces(base, write):
    assert load(
        write("top", "extends: base\ndata: {kind: docstrings, packages: [numpy]}")
    ).recipe.data.packages == ("numpy",)
    assert load(base, "data={kind: docstrings}").recipe.data.kind == "docstrings"
    recipe = load(base, "data.kind=docstrings", "data.packages=[numpy]").recipe
    assert recipe == load(base, "data={kind: docstrings, packages: [numpy]}").recipe


def test_a_default_kind_merges(base, write):
    top = load(write("top", "extends: base\nstages: {only: {optimizer: {kind: adamw, eps: 1e-6}}}"))
    assert top.recipe.stages["only"].optimizer.learning_rate == 1e-3


def test_a_circle_is_refused(write):
    write("inner/one", "extends: ../two")
    two = write("two", "extends: inner/one")
    assert refused(two).startswith("recipes extend one another in a circle: ")
    assert refused(two).count("two.yaml") == 2


def test_a_file_extended_twice_is_not_a_circle(base, write):
    write("left", "extends: base\nseed: 1")
    write("right", "extends: base\ndescription: right")
    recipe = load(write("top", "extends: [left, right]")).recipe
    assert (recipe.seed, recipe.description) == (1, "right")


def test_a_missing_base_is_named_with_the_file_that_wants_it(write):
    top = write("top", "extends: nowhere")
    with pytest.raises(FileNotFoundError, match=f"{top}: extends: no recipe 'nowhere'"):
        load(top)


def test_a_missing_base_is_answered_by_files_beside_the_one_that_wants_it(write):
    write("_bases", "extends: base")
    with pytest.raises(FileNotFoundError, match="no recipe '_bse': .*; did you mean _bases, "):
        load(write("top", "extends: _bse"))
    with pytest.raises(FileNotFoundError, match="; did you mean _methods/rand-batch, "):
        load(write("top", "extends: _methods/randbatch"))


def test_a_problem_of_a_stage_that_a_file_adds_names_the_inherited_stages(two_stages, write):
    top = write("top", "extends: filled\nstages: {wram: {steps: 1, terms: {query: {negatives: null}}}}")
    (problem,) = [line for line in refused(top).splitlines() if "wram.terms.query" in line]
    assert problem.endswith("; 'wram' is a new stage (did you mean 'warm'?); inherited: only, warm, then")
    assert "new stage" not in refused(write("top", "extends: filled\nstages: {warm: {steps: none}}"))


@pytest.mark.parametrize("value", ["5", "", "{a: b}", "[base, 5]"])
def test_extends_must_be_names(write, value):
    assert "extends: expected the name of a recipe or a list of them" in refused(
        write("top", f"extends: {value}")
    )


# --- stage_defaults


def test_stage_defaults_fill_missing_keys(write):
    loaded = load(
        write(
            "two",
            """
            data: {kind: docstrings}
            encoder: {kind: transformer, model: some-model}
            stage_defaults:
              batch_queries: 8
              optimizer: {learning_rate: 1e-3}
              lr_schedule: {warmup_steps: 5}
              terms: {query: {negatives: [{kind: random}], loss: {kind: nll, scale: 20}}}
            stages:
              one: {steps: 1}
              two:
                steps: 2
                batch_queries: 2
                lr_schedule: {warmup_steps: 6}
                terms: {query: {in_batch_negatives: true}}
            """,
        ),
        "stage_defaults.save_every_steps=9",
        "stages.one.lr_schedule.warmup_steps=7",
    )
    one, two = loaded.recipe.stages.values()
    assert (
        one.batch_queries,
        one.lr_schedule.warmup_steps,
        one.save_every_steps,
        one.terms["query"].in_batch_negatives,
    ) == (8, 7, 9, False)
    assert (
        two.batch_queries,
        two.lr_schedule.warmup_steps,
        two.save_every_steps,
        two.terms["query"].in_batch_negatives,
    ) == (2, 6, 9, True)
    assert one.terms["query"].loss == two.terms["query"].loss and two.terms["query"].loss.scale == 20
    assert (
        loaded.origins["stages.one.lr_schedule.warmup_steps"]
        == loaded.origins["stages.two.save_every_steps"]
        == COMMAND_LINE
    )
    assert loaded.origins["stages.two.optimizer.learning_rate"].endswith("two.yaml")


def test_stage_defaults_must_be_a_mapping(base):
    assert refused(base, "stage_defaults=5") == "stage_defaults: expected a mapping of a stage's keys, got 5"


def test_a_wrong_key_of_stage_defaults_is_reported_with_its_file(base, write):
    top = write("top", "extends: base\nstage_defaults: {stepz: 5}")
    assert "stage_defaults.stepz: unknown key 'stepz' (did you mean 'steps'?)" in refused(top)
    assert refused(top).endswith(f"got 5 (set in {top})")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("batch_querys", "8"),
        ("batch_queries", "0"),
        ("evaluate", "{every_stepz: 5}"),
        ("terms.query.loss", "nl"),
    ],
)
def test_a_mistake_under_stage_defaults_is_reported_once(two_stages, key, value):
    lines = refused(two_stages, f"stage_defaults.{key}={value}").splitlines()
    assert len(lines) == 2 and lines[1].startswith(f"  stage_defaults.{key}")


def test_a_mistake_in_a_stage_is_reported_there(two_stages):
    lines = refused(two_stages, "stage_defaults.batch_queries=0", "stages.warm.batch_queries=-1").splitlines()
    keys = sorted(line.partition(":")[0].strip() for line in lines[1:])
    assert keys == ["stage_defaults.batch_queries", "stages.warm.batch_queries"]


# --- overrides


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("stages.only.steps=11", lambda recipe: recipe.stages["only"].steps == 11),
        (
            "stages.only.optimizer={learning_rate: 0.5}",
            lambda recipe: recipe.stages["only"].optimizer.learning_rate == 0.5,
        ),
        (
            "stages.only.optimizer.learning_rate=2e-5",
            lambda recipe: recipe.stages["only"].optimizer.learning_rate == 2e-5,
        ),
        (
            "stages.only.evaluate.every_steps=5",
            lambda recipe: recipe.stages["only"].evaluate.every_steps == 5,
        ),
        (
            "stages.only.terms.query.negatives.1.top_k=7",
            lambda recipe: recipe.stages["only"].terms["query"].negatives[1].top_k == 7,
        ),
        (
            "stages.only.terms.query.negatives.0=bm25",
            lambda recipe: recipe.stages["only"].terms["query"].negatives[0].kind == "bm25",
        ),
        (
            "stages.only.terms.query.loss=nll",
            lambda recipe: recipe.stages["only"].terms["query"].loss.kind == "nll",
        ),
        ("final_evaluation.measures=[RR@5]", lambda recipe: recipe.final_evaluation.measures == ("RR@5",)),
        ("bm25={k1: 1.2}", lambda recipe: (recipe.bm25.k1, recipe.bm25.b) == (1.2, 0.4)),
        ("description=a=b", lambda recipe: recipe.description == "a=b"),
    ],
)
def test_an_override_sets_what_it_names(base, override, value):
    assert value(load(base, override).recipe)


def test_a_later_override_wins(base):
    assert load(base, "seed=1", "seed=2").recipe.seed == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "override 'seed': expected dotted.key=value, for example"),
        ("=5", "override '=5': expected dotted.key=value"),
        ("seed=[1", "override 'seed=[1' is not YAML"),
        ("seed={a: 1, a: 2}", "override 'seed={a: 1, a: 2}':1: key 'a' is written twice"),
        ("seed.x=1", "seed: Input should be a valid integer"),
        (
            "encoder.model.x=1",
            "override 'encoder.model.x=1': 'model' is 'some-model', which has no keys below it",
        ),
        ("stages.only.terms.query.negatives.2.top_k=1", "'2' must be a position in a list of 2 (from 0)"),
        ("stages.only.terms.query.negatives.-1.top_k=1", "'-1' must be a position in a list of 2 (from 0)"),
        ("stages.only.terms.query.negatives.first=1", "'first' must be a position in a list of 2 (from 0)"),
        ("stages.only.terms.query.negatives.1.kind.x=1", "'kind' is 'bm25', which has no keys below it"),
        ("a..b=1", "a: unknown key 'a'"),
    ],
)
def test_a_bad_override_is_named(base, override, message):
    assert message in refused(base, override)


def test_an_override_below_a_scalar_in_a_list_is_refused(base):
    betas = "stages.only.optimizer.betas"
    assert "'0' is 0.9, which has no keys below it" in refused(base, f"{betas}=[0.9, 0.99]", f"{betas}.0.x=1")


def test_an_alias_is_a_value_of_its_own(write, base):
    text = (
        base.read_text().replace("stages:\n  only:", "stages:\n  only: &only").rstrip() + "\n  again: *only\n"
    )
    stages = load(
        write("aliases", text), "stages.again.steps=3", "stages.again.terms.query.negatives.1.top_k=7"
    ).recipe.stages
    assert (stages["only"].steps, stages["again"].steps) == (10, 3)
    assert [stages[name].terms["query"].negatives[1].top_k for name in ("only", "again")] == [50, 7]


# --- origins


def test_origins_name_the_file_or_the_command_line(base, write):
    top = write("top", "extends: base\nseed: 1\nencoder: {kind: transformer, pooling: mean}\nexpect: {}")
    origins = load(top, "encoder.pooling=cls", "stages.only.terms.query.negatives.1.top_k=7").origins
    query = "stages.only.terms.query"
    assert origins == {
        **dict.fromkeys(
            [
                "data.kind",
                "data.folder",
                "encoder.model",
                "stages.only.steps",
                "stages.only.batch_queries",
                "stages.only.optimizer.learning_rate",
                f"{query}.negatives",
                f"{query}.loss.kind",
                f"{query}.loss.scale",
            ],
            str(base),
        ),
        **dict.fromkeys(["seed", "encoder.kind", "expect"], str(top)),
        **dict.fromkeys(["encoder.pooling", f"{query}.negatives.1.top_k"], COMMAND_LINE),
    }


@pytest.mark.parametrize("override", ["data={kind: docstrings}", "data.kind=docstrings"])
def test_replaced_values_have_no_origin(base, override):
    origins = load(base, override).origins
    assert {key: origin for key, origin in origins.items() if key.startswith("data")} == {
        "data.kind": COMMAND_LINE
    }


# --- what is refused


def test_a_key_written_twice_is_refused_with_its_line(write):
    path = write("twice", "seed: 1\ndescription: x\nseed: 2\n")
    assert refused(path) == f"{path}:3: key 'seed' is written twice in one mapping; keep one"
    path = write("below", "bm25:\n  k1: 1\n  k1: 1\n")
    assert refused(path).startswith(f"{path}:3: key 'k1'")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [1\n", "is not YAML"),
        (b"caf\xe9: 1", "is not YAML"),
        (b"", "got NoneType"),
        (b"- a", "got list"),
    ],
)
def test_a_file_that_is_not_a_recipe_is_reported(write, content, message):
    path = write("broken", "")
    path.write_bytes(content)
    assert str(path) in refused(path) and message in refused(path)


def test_every_problem_is_named_with_its_origin(base, write):
    top = write("top", "extends: base\nseed: -1\nstages: {only: {steps: 0}}")
    assert refused(top, "bm25.b=2").splitlines()[1:] == [
        "  bm25.b: Input should be less than or equal to 1, got 2 (set in command line)",
        f"  stages.only.steps: Input should be greater than 0, got 0 (set in {top})",
        f"  seed: Input should be greater than or equal to 0, got -1 (set in {top})",
    ]


def test_an_element_of_a_list_has_the_origin_of_the_list(base):
    assert refused(base, "stages.only.terms.query.negatives=[{kind: bm25, top_k: 0}]").endswith(
        "got 0 (set in command line)"
    )


def test_an_override_of_a_misspelt_stage_is_rejected(base):
    assert "no stage 'onyl' (did you mean 'only'?); stages: only" in refused(base, "stages.onyl.steps=5")


# --- null


@pytest.fixture
def two_stages(base, write):
    write(
        "two",
        "extends: base\nstages: {warm: {steps: 3}, then: {steps: 4}}\nstage_defaults: {batch_queries: 2}",
    )
    text = "{optimizer: {learning_rate: 1}, terms: {query: {negatives: [{kind: random}]}}}"
    return write("filled", f"extends: two\nstages: {{warm: {text}, then: {text}}}")


def test_null_removes_an_inherited_stage(two_stages, write):
    loaded = load(
        write(
            "top",
            "extends: filled\n"
            "stages: {warm: null, more: {steps: 5, terms: {query: {in_batch_negatives: true}}}}",
        ),
        "stages.more.optimizer.learning_rate=1",
        "stages.only=null",
    )
    assert [*loaded.recipe.stages] == ["then", "more"]
    assert not [key for key in loaded.origins if key.startswith(("stages.warm", "stages.only"))]


def test_a_removed_stage_may_be_written_anew_by_a_file_that_extends_this_one(two_stages, write):
    write("without", "extends: filled\nstages: {warm: null}")
    text = "{steps: 7, optimizer: {learning_rate: 1}, terms: {query: {negatives: [{kind: random}]}}}"
    stages = load(write("top", f"extends: without\nstages: {{warm: {text}}}")).recipe.stages
    assert [*stages] == ["only", "then", "warm"] and stages["warm"].steps == 7


def test_null_for_a_stage_that_is_not_inherited_is_refused(two_stages, write):
    top = write("top", "extends: filled\nstages: {wram: null}")
    message = "stages.wram: null removes an inherited stage, but no stage 'wram' is inherited"
    rest = (
        " (did you mean 'warm'?); inherited: only, warm, then. "
        "A stage with the values of stage_defaults alone is {}"
    )
    assert refused(top) == f"{top}: {message}{rest}"
    assert refused(two_stages, "stages.wram=null") == f"override 'stages.wram=null': {message}{rest}"


def test_ance_without_its_warm_up_needs_no_bm25(write):
    top = write("top", "extends: demo/ance\nbm25: null\nstages: {bm25-neg: null}")
    assert [*load(top).recipe.stages] == ["ance"]


def test_an_error_names_the_place_of_a_bm25_source_and_the_file_that_set_it(write):
    top = write("top", "extends: demo/ance\nbm25: null")
    where = SHIPPED / "_methods" / "bm25.yaml"
    assert refused(top).splitlines() == [
        f"recipe {top} is not valid:",
        "  stages.bm25-neg.terms.query.negatives.0: a source or a teacher of kind `bm25` needs BM25, but "
        "`bm25: null`; configure `bm25:`, pass a file to the kind `ranking`, or remove the source, or its "
        f"stage (`STAGE: null`) (set in {where})",
    ]


def test_overrides_from_python_are_not_said_to_be_from_a_command_line(base):
    with pytest.raises(ValueError, match=r"seed: Input should be .* \(set in an override\)"):
        pa.load_recipe(base, "seed=-1")


# --- splits


def split_files(recipe) -> dict[str, str]:
    return {name: str(path) for name, path in recipe.data.splits.items()}


def test_null_removes_a_split_of_the_kinds_default(base, write):
    expected = {"train": "qrels/train.tsv", "test": "qrels/test.tsv"}
    assert split_files(load(base, "data.splits.dev=null").recipe) == expected
    assert split_files(load(write("top", "extends: base\ndata: {splits: {dev: null}}")).recipe) == expected


def test_null_beside_a_split_of_the_kinds_default_leaves_the_others(base, write):
    top = write("top", "extends: base\ndata: {splits: {test: qrels/dev.tsv, dev: null}}")
    expected = {"train": "qrels/train.tsv", "test": "qrels/dev.tsv"}
    assert split_files(load(top).recipe) == expected
    overridden = load(base, "data.splits.test=qrels/dev.tsv", "data.splits.dev=null")
    assert split_files(overridden.recipe) == expected


def test_an_override_of_a_split_of_the_kinds_default_leaves_the_others(base):
    expected = {"train": "qrels/train.tsv", "dev": "qrels/valid.tsv", "test": "qrels/test.tsv"}
    assert split_files(load(base, "data.splits.dev=qrels/valid.tsv").recipe) == expected
    alone = load(base, "data.splits={dev: qrels/valid.tsv}")
    assert split_files(alone.recipe) == {"dev": "qrels/valid.tsv"}


def test_null_removes_an_inherited_split(base, write):
    write("three", "extends: base\ndata: {splits: {train: a, dev: b, test: c}}")
    loaded = load(
        write("top", "extends: three\ndata: {splits: {dev: null, more: d}}"), "data.splits.test=null"
    )
    assert split_files(loaded.recipe) == {"train": "a", "more": "d"}
    assert not [key for key in loaded.origins if key.startswith(("data.splits.dev", "data.splits.test"))]


def test_null_for_a_split_that_is_not_inherited_is_refused(base, write):
    message = "data.splits.{0}: null removes an inherited split, but no split {0!r} is inherited"
    override = refused(base, "data.splits.dve=null")
    assert override.startswith(
        f"override 'data.splits.dve=null': {message.format('dve')} (did you mean 'dev'?)"
    )
    assert "inherited: train, dev, test." in override
    top = write("top", "extends: base\ndata: {splits: {train: a, dve: null}}")
    assert refused(top).startswith(f"{top}: {message.format('dve')} (did you mean 'dev'?)")
    tevatron = "data: {kind: tevatron, splits: {train: a, dev: null}}"
    assert f"{message.format('dev')}; inherited: none." in refused(write("top", f"extends: base\n{tevatron}"))


def test_null_of_another_kind_does_not_remove_from_the_bases_splits(base, write):
    data = "{kind: tevatron, splits: {train: a.jsonl, dev: null}}"
    assert "no split 'dev' is inherited" in refused(write("top", f"extends: base\ndata: {data}"))
