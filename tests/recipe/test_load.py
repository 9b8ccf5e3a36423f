import pytest
import yaml
from pydantic import ValidationError

from pyserini_ance.measures.evaluate import parse
from pyserini_ance.recipe.find import SHIPPED, shipped
from pyserini_ance.recipe.load import COMMAND_LINE, dump, load
from pyserini_ance.recipe.parts import Part

OWN_LOSSES = """
from pyserini_ance.recipe import Part

class Triplet(Part):
    margin: float = 1.0

class NoPart:
    pass
"""


def refused(*arguments) -> str:
    with pytest.raises(ValueError) as error:
        load(*arguments)
    return str(error.value)


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
    assert parse([*recipe.test.measures, stage.evaluate.measure])
    assert {"train", recipe.test.split, stage.evaluate.split} <= set(getattr(recipe.data, "splits", {"train", "dev", "test"}))


def test_the_dump_writes_every_value_out(base):
    dumped = yaml.safe_load(dump(load(base).recipe))
    assert dumped["stages"]["only"]["optimizer"]["weight_decay"] == 0.01
    assert dumped["data"]["splits"] == {name: f"qrels/{name}.tsv" for name in ("train", "dev", "test")}


def test_awkward_values_come_back_from_the_dump(base, write):
    recipe = load(base, "about='a: b # c'", "name='007'", "expect={x: [1, {y: null}], 'on': 1.0e-5, é: ''}").recipe
    assert (recipe.about, recipe.name, recipe.expect) == ("a: b # c", "007", {"x": [1, {"y": None}], "on": 1e-5, "é": ""})
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
    write("middle", "extends: base\nstages: {only: {steps: 20, optimizer: {warmup_steps: 3}}}")
    stage = load(write("top", "extends: middle\nstages: {only: {steps: 30}}")).recipe.stages["only"]
    assert (stage.steps, stage.optimizer.warmup_steps, stage.optimizer.learning_rate, stage.batch_queries) == (30, 3, 1e-3, 4)


def test_a_later_base_wins(base, write):
    write("seven", "seed: 7\nabout: seven")
    write("eight", "seed: 8")
    recipe = load(write("top", "extends: [base, seven, eight]")).recipe
    assert (recipe.seed, recipe.about) == (8, "seven")


def test_extended_files_lie_beside_the_file_in_another_folder_or_among_the_shipped(base, write):
    write("inner/beside", "extends: ../base")
    assert load(write("inner/one", "extends: beside")).recipe.data.kind == "beir"
    assert load(write("inner/two", "extends: beside.yaml")).recipe.data.kind == "beir"
    assert load(write("inner/three", "extends: demo/ance\nseed: 1")).recipe.stages.keys() == load("demo/ance").recipe.stages.keys()


def test_a_list_replaces_a_list(base, write):
    recipe = load(write("top", "extends: base\nstages: {only: {terms: {query: {negatives: [{kind: random, per_query: 3}]}}}}")).recipe
    assert [(source.kind, source.per_query) for source in recipe.stages["only"].terms["query"].negatives] == [("random", 3)]


def test_a_part_of_the_same_kind_merges(base, write):
    for text in ("{kind: beir, relevance_threshold: 2}", "{relevance_threshold: 2}"):
        data = load(write("top", f"extends: base\ndata: {text}")).recipe.data
        assert (str(data.folder), data.relevance_threshold) == ("some/where", 2)


def test_a_part_of_another_kind_replaces(base, write):
    assert load(write("top", "extends: base\ndata: {kind: docstrings, packages: [numpy]}")).recipe.data.packages == ("numpy",)
    assert load(base, "data={kind: docstrings}").recipe.data.kind == "docstrings"
    recipe = load(base, "data.kind=docstrings", "data.packages=[numpy]").recipe
    assert recipe == load(base, "data={kind: docstrings, packages: [numpy]}").recipe


def test_a_kind_that_was_left_to_the_default_merges(base, write):
    top = load(write("top", "extends: base\nstages: {only: {optimizer: {kind: adamw, warmup_steps: 1}}}"))
    assert top.recipe.stages["only"].optimizer.learning_rate == 1e-3


def test_a_circle_is_refused(write):
    write("inner/one", "extends: ../two")
    two = write("two", "extends: inner/one")
    assert refused(two).startswith("recipes extend one another in a circle: ")
    assert refused(two).count("two.yaml") == 2


def test_a_file_reached_on_two_ways_is_no_circle(base, write):
    write("left", "extends: base\nseed: 1")
    write("right", "extends: base\nabout: right")
    recipe = load(write("top", "extends: [left, right]")).recipe
    assert (recipe.seed, recipe.about) == (1, "right")


def test_a_missing_base_is_named_with_the_file_that_wants_it(write):
    top = write("top", "extends: nowhere")
    with pytest.raises(FileNotFoundError, match=f"{top}: extends: no recipe 'nowhere'"):
        load(top)


@pytest.mark.parametrize("value", ["5", "", "{a: b}", "[base, 5]"])
def test_extends_that_is_no_name_is_refused(write, value):
    assert "extends: expected the name of a recipe or a list of them" in refused(write("top", f"extends: {value}"))


# --- every_stage


def test_every_stage_fills_what_a_stage_leaves_open(write):
    loaded = load(
        write(
            "two",
            """
            data: {kind: docstrings}
            encoder: {kind: transformer, model: some-model}
            every_stage:
              batch_queries: 8
              optimizer: {learning_rate: 1e-3, warmup_steps: 5}
              terms: {query: {negatives: [{kind: random}], loss: {kind: nll, scale: 20}}}
            stages:
              one: {steps: 1}
              two: {steps: 2, batch_queries: 2, optimizer: {warmup_steps: 6}, terms: {query: {pool: step}}}
            """,
        ),
        "every_stage.save_every_steps=9",
        "stages.one.optimizer.warmup_steps=7",
    )
    one, two = loaded.recipe.stages.values()
    assert (one.batch_queries, one.optimizer.warmup_steps, one.save_every_steps, one.terms["query"].pool) == (8, 7, 9, "own")
    assert (two.batch_queries, two.optimizer.warmup_steps, two.save_every_steps, two.terms["query"].pool) == (2, 6, 9, "step")
    assert one.terms["query"].loss == two.terms["query"].loss and two.terms["query"].loss.scale == 20
    assert loaded.origins["stages.one.optimizer.warmup_steps"] == loaded.origins["stages.two.save_every_steps"] == COMMAND_LINE
    assert loaded.origins["stages.two.optimizer.learning_rate"].endswith("two.yaml")


def test_every_stage_that_is_no_mapping_is_refused(base):
    assert refused(base, "every_stage=5") == "every_stage: expected a mapping of a stage's keys, got 5"


def test_a_wrong_key_of_every_stage_is_named_with_its_file(base, write):
    top = write("top", "extends: base\nevery_stage: {stepz: 5}")
    assert "stages.only.stepz: unknown key 'stepz' (did you mean 'steps'?)" in refused(top)
    assert refused(top).endswith(f"got 5 (set in {top})")


# --- overrides


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("stages.only.steps=11", lambda recipe: recipe.stages["only"].steps == 11),
        ("stages.only.optimizer={learning_rate: 0.5}", lambda recipe: recipe.stages["only"].optimizer.learning_rate == 0.5),
        ("stages.only.optimizer.learning_rate=2e-5", lambda recipe: recipe.stages["only"].optimizer.learning_rate == 2e-5),
        ("stages.only.evaluate.every_steps=5", lambda recipe: recipe.stages["only"].evaluate.every_steps == 5),
        ("stages.only.terms.query.negatives.1.depth=7", lambda recipe: recipe.stages["only"].terms["query"].negatives[1].depth == 7),
        ("stages.only.terms.query.negatives.0=run", lambda recipe: recipe.stages["only"].terms["query"].negatives[0].kind == "run"),
        ("stages.only.terms.query.loss=nll", lambda recipe: recipe.stages["only"].terms["query"].loss.kind == "nll"),
        ("test.measures=[RR@5]", lambda recipe: recipe.test.measures == ("RR@5",)),
        ("bm25={k1: 1.2}", lambda recipe: (recipe.bm25.k1, recipe.bm25.b) == (1.2, 0.4)),
        ("about=a=b", lambda recipe: recipe.about == "a=b"),
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
        ("encoder.model.x=1", "override 'encoder.model.x=1': 'model' is 'some-model', which has no keys below it"),
        ("stages.only.terms.query.negatives.2.depth=1", "'2' must be a position in a list of 2 (from 0)"),
        ("stages.only.terms.query.negatives.-1.depth=1", "'-1' must be a position in a list of 2 (from 0)"),
        ("stages.only.terms.query.negatives.first=1", "'first' must be a position in a list of 2 (from 0)"),
        ("stages.only.terms.query.negatives.1.kind.x=1", "'kind' is 'run', which has no keys below it"),
        ("a..b=1", "a: unknown key 'a'"),
    ],
)
def test_a_bad_override_is_named(base, override, message):
    assert message in refused(base, override)


def test_an_override_below_a_scalar_in_a_list_is_refused(base):
    betas = "stages.only.optimizer.betas"
    assert "'0' is 0.9, which has no keys below it" in refused(base, f"{betas}=[0.9, 0.99]", f"{betas}.0.x=1")


def test_an_alias_is_a_value_of_its_own(write, base):
    text = base.read_text().replace("stages:\n  only:", "stages:\n  only: &only").rstrip() + "\n  again: *only\n"
    stages = load(write("aliases", text), "stages.again.steps=3", "stages.again.terms.query.negatives.1.depth=7").recipe.stages
    assert (stages["only"].steps, stages["again"].steps) == (10, 3)
    assert [stages[name].terms["query"].negatives[1].depth for name in ("only", "again")] == [50, 7]


# --- origins


def test_origins_name_the_file_or_the_command_line(base, write):
    top = write("top", "extends: base\nseed: 1\nencoder: {kind: transformer, pooling: mean}\nexpect: {}")
    origins = load(top, "encoder.pooling=cls", "stages.only.terms.query.negatives.1.depth=7").origins
    query = "stages.only.terms.query"
    assert origins == {
        **dict.fromkeys(
            ["data.kind", "data.folder", "encoder.model", "stages.only.steps", "stages.only.batch_queries"]
            + ["stages.only.optimizer.learning_rate", f"{query}.negatives", f"{query}.loss.kind", f"{query}.loss.scale"],
            str(base),
        ),
        **dict.fromkeys(["seed", "encoder.kind", "expect"], str(top)),
        **dict.fromkeys(["encoder.pooling", f"{query}.negatives.1.depth"], COMMAND_LINE),
    }


@pytest.mark.parametrize("override", ["data={kind: docstrings}", "data.kind=docstrings"])
def test_what_was_replaced_has_no_origin_left(base, override):
    origins = load(base, override).origins
    assert {key: origin for key, origin in origins.items() if key.startswith("data")} == {"data.kind": COMMAND_LINE}


# --- what is refused


def test_a_key_written_twice_is_refused_with_its_line(write):
    path = write("twice", "seed: 1\nabout: x\nseed: 2\n")
    assert refused(path) == f"{path}:3: key 'seed' is written twice in one mapping; keep one"
    path = write("below", "bm25:\n  k1: 1\n  k1: 1\n")
    assert refused(path).startswith(f"{path}:3: key 'k1'")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a: [1\n", "is not YAML"), (b"caf\xe9: 1", "is not YAML"), (b"", "got NoneType"), (b"- a", "got list")],
)
def test_a_file_that_is_no_recipe_is_named(write, content, message):
    path = write("broken", "")
    path.write_bytes(content)
    assert str(path) in refused(path) and message in refused(path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sead=1", "sead: unknown key 'sead' (did you mean 'seed'?); keys here: about, bm25, "),
        ("stages.only.stepz=5", "stages.only.stepz: unknown key 'stepz' (did you mean 'steps'?)"),
        ("stages.only.terms.query.negatives.1.dept=5", "query.negatives.1.dept: unknown key 'dept' (did you mean 'depth'?)"),
        ("encoder.tokenization.lower=true", "encoder.tokenization.lower: unknown key 'lower' (did you mean 'lowercase'?)"),
        ("5=1", "5: unknown key '5'"),
        ("data.kind=bier", "data: unknown kind 'bier' of data (did you mean 'beir'?); kinds: beir, docstrings, "),
        ("encoder.kind=checkpoint", "encoder: unknown kind 'checkpoint' of encoder"),
        ("stages.only.terms.query.loss.kind=nlll", "stages.only.terms.query.loss: unknown kind 'nlll' of loss (did you mean 'nll'?)"),
        ("stages.only.terms.query.loss.kind=5", "stages.only.terms.query.loss: expected a mapping with `kind`, one of: "),
        ("data=5", "data: expected a mapping with `kind`, one of: beir, "),
        ("stages.only.terms.query.negatives=[{depth: 5}]", "negatives.0: expected a mapping with `kind`, one of: "),
        ("stages.only.steps=0", "stages.only.steps: Input should be greater than 0, got 0"),
        ("stages.only.steps=ten", "stages.only.steps: Input should be a valid integer"),
        ("stages.only.steps=1.5", "stages.only.steps: Input should be a valid integer"),
        ("seed=-1", "seed: Input should be greater than or equal to 0, got -1"),
        ("seed=", "seed: Input should be a valid integer, got None"),
        ("stages.only.optimizer.learning_rate=0", "learning_rate: Input should be greater than 0"),
        ("stages.only.optimizer.learning_rate=.inf", "learning_rate: Input should be a finite number"),
        ("stages.only.terms.query.weight=.nan", "weight: Input should be a finite number"),
        ("stages.only.optimizer.betas=[0.9, 1]", "stages.only.optimizer.betas.1: Input should be less than 1"),
        ("stages.only.optimizer.betas=[0.9]", "stages.only.optimizer.betas.1: Field required"),
        ("bm25.b=2", "bm25.b: Input should be less than or equal to 1"),
        ("stages.only.schedule_steps=5", "stages.only: schedule_steps 5 ends before steps 10"),
        ("stages.only.schedule_cycle_steps=0", "stages.only.schedule_cycle_steps: Input should be greater than 0, got 0"),
        ("stages.only.schedule_offset_steps=-1", "stages.only.schedule_offset_steps: Input should be greater than or equal to 0, got -1"),
        ("stages.only.optimizer.kind=adam", "stages.only.optimizer.kind: Input should be 'adamw' or 'lamb', got 'adam'"),
        ("stages.only.optimizer.decay=step", "stages.only.optimizer.decay: Input should be 'linear', 'cosine' or 'constant', got 'step'"),
        ("stages.only.terms.query.loss={kind: hinge, scale: 20}", "stages.only.terms.query.loss.scale: unknown key 'scale'; keys here: kind, margin"),
        ("stages.only.terms.query.loss={kind: lambdarank, measure: MAP}", "query.loss.measure: Input should be 'RR', 'nDCG' or 'sum_RR', got 'MAP'"),
        ("stages.only.refresh={every_steps: 5}", "stages.only: `refresh:` is set but no source of negatives is mined with the model"),
        ("stages.only.terms.query.negatives=[{kind: ann}]", "stages.only: a source of negatives is mined with the model; say how often"),
        ("stages.only.terms.query.negatives=[]", "stages.only.terms.query: pool: own has no negatives"),
        ("stages.only.keep_optimizer=true", "stages.only is the first stage: there is no optimizer to keep"),
        ("stages.only.train=documents", "stages.only.train: Input should be 'both' or 'queries', got 'documents'"),
        (
            "stages.next={train: queries, keep_optimizer: true, steps: 1, batch_queries: 1, optimizer: {learning_rate: 1}, terms: {q: {pool: step}}}",
            "stages.next trains other towers than the stage before: there are no moments to keep",
        ),
        ("encoder.document_model=other", "encoder: document_model is set, but the towers share their weights"),
        ("stages.only.terms=null", "stages.only.terms: Input should be a valid dictionary, got None"),
        ("stages=5", "stages: Input should be a valid dictionary, got 5"),
        ("stages.Two={}", "stages.Two."),
        ("stages.bm25={steps: 1, batch_queries: 1, optimizer: {learning_rate: 1}, terms: {q: {pool: step}}}", "stage name 'bm25'"),
        ("stages.a b={steps: 1, batch_queries: 1, optimizer: {learning_rate: 1}, terms: {q: {pool: step}}}", "stage name 'a b'"),
        ("bm25.hits=40", "a `run` source has depth 50, but bm25.hits is 40; set bm25.hits=50"),
        (
            "stages.only.terms.query.negatives.1={kind: run, guards: [answers, {kind: rank_floor, ranks: 10}]}",
            "a `run` source with its guards looks at 210 documents, but bm25.hits is 200; set bm25.hits=210",
        ),
        ("stages.only.terms.query.negatives.1={kind: run, guards: [answer]}", "unknown kind 'answer' of guards (did you mean 'answers'?)"),
        ("bm25=null", "a `run` source needs BM25, but `bm25: null`"),
        ("threads=0", "threads: Input should be greater than 0, got 0"),
        ("refresher.start=chld", "refresher.start: Input should be 'child' or 'elsewhere', got 'chld'"),
        ("refresher.device=gpu", "refresher.device: String should match pattern '^(auto|cpu|cuda(:\\d+)?)$', got 'gpu'"),
        ("refresher.process=2", "refresher.process: unknown key 'process' (did you mean 'processes'?); keys here: device, "),
        ("refresher.threads=0", "refresher.threads: Input should be greater than 0, got 0"),
        ("refresher.processes=0", "refresher.processes: Input should be greater than 0, got 0"),
        ("refresher.wait_seconds=0", "refresher.wait_seconds: Input should be greater than 0, got 0"),
        ("refresher.leave_after_seconds=0", "refresher.leave_after_seconds: Input should be greater than 0, got 0"),
        ("keep.vectors=1", "keep.vectors: unknown key 'vectors'; keys here: checkpoints, tables, got 1"),
        ("keep.checkpoints=0", "keep.checkpoints: Input should be greater than 0, got 0"),
        ("keep.tables=0", "keep.tables: expected `all` or a number from 1, got 0 (set in command line)"),
        ("keep.tables=some", "keep.tables: expected `all` or a number from 1, got 'some' (set in command line)"),
        ("encoder.tokenization.query={length_tokens: 5, template: nothing}", "a template names at least one field"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(base, override, message):
    said = refused(base, override)
    assert said.startswith(f"recipe {base} is not valid:\n") and message in said


def test_moments_of_one_kind_of_optimizer_are_none_of_the_other(base, write):
    two = "steps: 1, batch_queries: 1, keep_optimizer: true, optimizer: {learning_rate: 1}, terms: {q: {pool: step}}"
    kept = write("kept", f"extends: base\nstages: {{two: {{{two}}}}}")
    load(kept), load(kept, "stages.only.optimizer.kind=lamb", "stages.two.optimizer.kind=lamb")
    said = refused(kept, "stages.two.optimizer.kind=lamb")
    assert "stages.two.keep_optimizer: its optimizer is lamb, that of stages.only is adamw; use one kind for both" in said


LATE, AT_ONCE = "run: background, adopt: ready", "run: inline is adopted at once; leave out `adopt`, or set run: background"


@pytest.mark.parametrize(
    ("refresh", "key", "message"),
    [
        ("run: elsewhere", ".run", "Input should be 'inline' or 'background', got 'elsewhere'"),
        ("run: background, adopt: soon", ".adopt", "expected `ready` or `{after_steps: N}`, got 'soon'"),
        ("run: background, adopt: 3", ".adopt", "expected `ready` or `{after_steps: N}`, got 3"),
        ("run: background, adopt: [ready]", ".adopt", "expected `ready` or `{after_steps: N}`, got ['ready']"),
        ("run: background, adopt: {after_steps: 0}", ".adopt.after_steps", "Input should be greater than 0, got 0"),
        ("run: background, adopt: {after: 3}", ".adopt.after", "unknown key 'after' (did you mean 'after_steps'?); keys here: after_steps, got 3"),
        ("adopt: ready", "", AT_ONCE),
        ("adopt: {after_steps: 3}", "", AT_ONCE),
        (f"{LATE}, max_stale: 9", ".max_stale", "unknown key 'max_stale' (did you mean 'max_staleness_steps'?)"),
    ],
)
def test_a_wrong_refresh_is_named_once(base, refresh, key, message):
    _, said = refused(base, "stages.only.terms.query.negatives=[{kind: ann}]", f"stages.only.refresh={{every_steps: 4, {refresh}}}").splitlines()
    assert said.startswith(f"  stages.only.refresh{key}: {message}") and said.endswith(" (set in command line)")


@pytest.mark.parametrize(
    ("refresh", "bound", "least"),
    [
        ("run: inline", 2, 3),
        ("run: background", 6, 7),
        ("run: background, adopt: {after_steps: 3}", 5, 6),
        (LATE, 3, 4),
    ],
)
def test_a_bound_that_cannot_be_kept_is_refused_with_the_least_that_can(base, refresh, bound, least):
    settings = f"every_steps: 4, {refresh}, max_staleness_steps"
    overrides = ["stages.only.terms.query.negatives=[{kind: ann}]", f"stages.only.refresh={{{settings}: {bound}}}"]
    assert (
        f"stages.only.refresh: max_staleness_steps {bound} cannot be kept: with every_steps 4 and this `adopt` negatives are up to "
        f"{least} steps old; raise it to {least}, or refresh more often (set in command line)"
    ) in refused(base, *overrides)
    assert load(base, overrides[0], f"stages.only.refresh={{{settings}: {least}}}").recipe.stages["only"].refresh.max_staleness_steps == least


@pytest.mark.parametrize(
    ("evaluate", "message"),
    [
        ("patience: 2, keep_best: false", "only.evaluate: patience ends a stage at its best checkpoint; it needs keep_best: true"),
        ("run: inline, adopt: ready", "only.evaluate: run: inline is adopted at once; leave out `adopt`, or set run: background"),
        ("adopt: ready", "only: evaluate.adopt is set, but dev is measured inline and adopted at once; leave it out, or set evaluate.run: background"),
        ("adopt: soon", "only.evaluate.adopt: expected `ready` or `{after_steps: N}`, got 'soon'"),
        ("patience: 0", "only.evaluate.patience: Input should be greater than 0, got 0"),
    ],
)
def test_a_wrong_evaluate_is_named_once(base, evaluate, message):
    _, said = refused(base, f"stages.only.evaluate={{every_steps: 4, {evaluate}}}").splitlines()
    assert said.startswith(f"  stages.{message}")


def test_every_problem_is_named_with_its_origin(base, write):
    top = write("top", "extends: base\nseed: -1\nstages: {only: {steps: 0}}")
    assert refused(top, "bm25.b=2").splitlines()[1:] == [
        "  bm25.b: Input should be less than or equal to 1, got 2 (set in command line)",
        f"  stages.only.steps: Input should be greater than 0, got 0 (set in {top})",
        f"  seed: Input should be greater than or equal to 0, got -1 (set in {top})",
    ]


def test_an_element_of_a_list_has_the_origin_of_the_list(base):
    assert refused(base, "stages.only.terms.query.negatives=[{kind: run, depth: 0}]").endswith("got 0 (set in command line)")


# --- parts of somebody else


@pytest.fixture
def own_losses(tmp_path, monkeypatch):
    (tmp_path / "own_losses.py").write_text(OWN_LOSSES)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_class_of_somebody_else_is_a_kind(base, write, own_losses):
    kind = "own_losses:Triplet"
    recipe = load(base, f"stages.only.terms.query.loss={{kind: '{kind}', margin: 2}}").recipe
    loss = recipe.stages["only"].terms["query"].loss
    assert isinstance(loss, Part) and (loss.kind, loss.margin) == (kind, 2.0)
    assert load(write("dumped", dump(recipe))).recipe == recipe


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("own_losses:Triplett", "kind 'own_losses:Triplett' cannot be imported: module 'own_losses' has no attribute"),
        ("nowhere_at_all:Loss", "kind 'nowhere_at_all:Loss' cannot be imported: No module named"),
        ("own_losses:NoPart", "kind 'own_losses:NoPart' is not a subclass of pyserini_ance.recipe.Part"),
    ],
)
def test_a_class_that_is_no_part_is_refused(base, own_losses, kind, message):
    assert message in refused(base, f"stages.only.terms.query.loss.kind={kind}")


def test_settings_of_somebody_elses_class_are_checked(base, own_losses):
    said = refused(base, "stages.only.terms.query.loss={kind: 'own_losses:Triplet', margins: 2}")
    assert "stages.only.terms.query.loss.margins: unknown key 'margins' (did you mean 'margin'?)" in said


def test_an_override_of_a_misspelt_stage_makes_no_stage(base):
    assert "no stage 'onyl' (did you mean 'only'?); stages: only" in refused(base, "stages.onyl.steps=5")
