"""What a recipe refuses: each problem is named once, at its key, with the value, what was expected, and the
cure."""

import pytest
from helpers.recipe_errors import refused

from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.find import SHIPPED
from pyserini_ance.recipe.load import load

ANN = "stages.only.terms.query.negatives=[{kind: ann}]"
STAGE = "steps: 1, batch_queries: 1, optimizer: {learning_rate: 1}"
IN_BATCH = "terms: {q: {in_batch_negatives: true}}"
NEXT = f"stages.next={{{STAGE}, {IN_BATCH}"
FIRST = "{kind: ann}], refresh: {every_steps: 10}"
DISTIL = "stages.only.terms.query"


def drawn(name: str, negatives: str, more: str = "") -> str:
    return f"stages.{name}={{{STAGE}, terms: {{query: {{negatives: [{negatives}]}}}}{more}}}"


def refresh(settings: str) -> list[str]:
    return [ANN, f"stages.only.refresh={{every_steps: 4, {settings}}}"]


REFRESHED, CHUNKED = ", refresh: {every_steps: 5}", ", refresh: {every_steps: 5, query_chunks: 2}"
MOMENTUM = drawn("next", "{kind: momentum}")

REFUSED = [  # overrides of the base recipe, fragments of the message
    # unknown keys and kinds, types and bounds
    ("sead=1", "sead: unknown key 'sead' (did you mean 'seed'?); keys here: bm25, cache, "),
    ("5=1", "5: unknown key '5'"),
    ("a..b=1", "a: unknown key 'a'"),
    ("refresh.every_steps=30", "unknown key 'refresh' (a key of stages: stages.NAME.refresh)"),
    ("stages.only.stepz=5", "stages.only.stepz: unknown key 'stepz' (did you mean 'steps'?)"),
    ("stage_defaults.stepz=5", "stages.only.stepz: unknown key 'stepz'"),
    (f"{DISTIL}.negatives.1.topk=5", "query.negatives.1.topk: unknown key 'topk' (did you mean 'top_k'?)"),
    ("data.kind=bier", "data: unknown kind 'bier' of data (did you mean 'beir'?); kinds: beir, datasets, "),
    (f"{DISTIL}.loss.kind=5", "stages.only.terms.query.loss: expected a mapping with `kind`, one of: "),
    ("data=5", "data: expected a mapping with `kind`, one of: beir, "),
    (f"{DISTIL}.negatives=[{{top_k: 5}}]", "negatives.0: expected a mapping with `kind`, one of: "),
    (
        f"{DISTIL}.loss={{kind: hinge, scale: 20}}",
        "query.loss.scale: unknown key 'scale'; keys here: kind, m",
    ),
    (f"{DISTIL}.negatives.1={{kind: bm25, filters: [answer]}}", "(did you mean 'answers'?)"),
    ("stages.only.steps=0", "stages.only.steps: Input should be greater than 0, got 0"),
    ("seed=", "seed: Input should be a valid integer, got None"),
    ("stages.only.optimizer.learning_rate=.inf", "learning_rate: Input should be a finite number"),
    ("stages.only.terms=null", "stages.only.terms: Input should be a valid dictionary, got None"),
    ("stages=5", "stages: Input should be a valid dictionary, got 5"),
    ("stages.Two={}", "stages.Two."),
    (f"{NEXT.replace('next', 'bm25', 1)}}}", "stage name 'bm25': use small letters"),
    (f"{NEXT.replace('next', 'start-a', 1)}}}", "none of bm25, hybrid, initial, untrained, start-..."),
    ("refresher.device=gpu", "refresher.device: String should match pattern"),
    ("retention.keep_negatives=some", "retention.keep_negatives: expected `all` or a number from 1, got 's"),
    # overrides
    ("seed", "override 'seed': expected dotted.key=value, for example"),
    ("seed=[1", "override 'seed=[1' is not YAML"),
    ("seed={a: 1, a: 2}", "override 'seed={a: 1, a: 2}':1: key 'a' is written twice"),
    ("stage_defaults=5", "stage_defaults: expected a mapping of a stage's keys, got 5"),
    ("stages.onyl.steps=5", "no stage 'onyl' (did you mean 'only'?); stages: only"),
    ("encoder.model.x=1", "'model' is 'some-model', which has no keys below it"),
    (f"{DISTIL}.negatives.2.top_k=1", "'2' must be a position in a list of 2 (from 0)"),
    (f"{DISTIL}.negatives.first=1", "'first' must be a position in a list of 2 (from 0)"),
    ("stages.onyl=null", "stages.onyl: null removes an inherited name, but 'onyl' is not inherited (did you"),
    ("data.splits.dve=null", "(did you mean 'dev'?); inherited: train, dev, test"),
    # a stage and its terms
    ("stages.only.lr_schedule.total_steps=5", "only: lr_schedule.total_steps 5 ends before steps 10"),
    (
        "stages.only.refresh={every_steps: 5}",
        "only: `refresh:` is set, but no source of negatives is mined w",
    ),
    (ANN, "stages.only: a source of negatives is mined with the model; set how often"),
    (f"{DISTIL}.negatives=[]", "stages.only.terms.query: a term needs negatives: list a source"),
    ("encoder.document_model=other", "encoder: document_model is set, but the towers share their weights"),
    ("encoder.tokenization.query={length_tokens: 5, template: none}", "a template needs at least one field"),
    (refresh("mode: async, adopt: soon"), ".adopt: expected `when_ready` or `{after_steps: N}`, got 'soon'"),
    (refresh("mode: async, adopt: 3"), "refresh.adopt: expected `when_ready` or `{after_steps: N}`, got 3"),
    (refresh("mode: async, adopt: {after_steps: 0}"), "adopt.after_steps: Input should be greater than 0"),
    (refresh("mode: async, adopt: {after: 3}"), ".adopt.after: unknown key 'after' (did you mean 'after_st"),
    (refresh("adopt: when_ready"), "refresh: mode: sync adopts at once; remove `adopt`, or set mode: async"),
    (refresh("max_staleness_steps: 2"), "to 3 steps old; raise it to 3, or refresh more often"),
    (refresh("mode: async, max_staleness_steps: 6"), "up to 7 steps old"),
    (refresh("mode: async, adopt: when_ready, max_staleness_steps: 3"), "up to 4 steps old"),
    (refresh("query_chunks: 2, positives_top_k: 3"), "remove one of them"),
    ("stages.only.evaluate={every_steps: 4, patience: 2, keep_best: false}", "it needs keep_best: true"),
    ("stages.only.evaluate={every_steps: 4, adopt: when_ready}", "only: evaluate.adopt is set, but a sync "),
    ("stages.only.average={checkpoints: 2}", "average.checkpoints is 2, but dev evaluates 0 checkpoints"),
    (f"{DISTIL}.teacher=hybrid", "loss `nll` uses no teacher; set loss: kl or margin_mse"),
    (f"{DISTIL}.loss=kl", "loss `kl` follows a teacher's scores; name one: `teacher: {kind: hybrid}`"),
    # stages that follow one another
    ("stages.only.keep_optimizer=true", "stages.only.keep_optimizer: this is the first stage"),
    (f"{NEXT}, trainable: query_tower, keep_optimizer: true}}", "next.keep_optimizer: stages.only has anoth"),
    (
        f"{NEXT.replace('1}', '1, kind: lamb}')}, keep_optimizer: true}}",
        "make them equal, or remove keep_opt",
    ),
    (f"{NEXT}, keep_optimizer: true, init_from: {{folder: a}}}}", "have no moments; use init_from: previous"),
    (f"{NEXT}, init_from: last}}", "init_from: expected `initial`, `previous`, `{stage: NAME}`, `{run: FOLD"),
    (f"{NEXT}, init_from: {{}}}}", "next.init_from: expected one origin: `initial`, "),
    (f"{NEXT}, init_from: {{run: a, folder: b}}}}", "next.init_from: expected one origin: "),
    (f"{NEXT}, init_from: {{folder: a, stage: b}}}}", "next.init_from: expected one origin: "),
    (f"{NEXT}, init_from: {{runs: a}}}}", "init_from.runs: unknown key 'runs' (did you mean 'run'?)"),
    (f"{NEXT}, init_from: {{stage: onyl}}}}", "init_from.stage: no stage 'onyl' before 'next' (did you mean"),
    (f"{NEXT}, init_from: {{stage: next}}}}", "no stage 'next' before 'next'; earlier: only"),
    (drawn("only", "{kind: momentum}"), "only.terms.query.negatives: momentum draws from the tables of the "),
    ([f"{DISTIL}.negatives=[random]", MOMENTUM], "no term 'query' with `anchor: query` and a source that is"),
    (["stages.only.terms.q.negatives=[bm25]", f"{DISTIL}.negatives=[random]", MOMENTUM], "terms: query, q)"),
    (
        [drawn("only", "{kind: ann}", CHUNKED), MOMENTUM],
        "remove min_candidates and refresh.query_chunks there",
    ),
    ([drawn("only", "{kind: ann, min_candidates: 2}", REFRESHED), MOMENTUM], "remove min_candidates and"),
    (drawn("only", "{kind: mix, sources: [ann, bm25]}", CHUNKED), "refresh.query_chunks: a mix holds a sour"),
    (refresh("initial_model: previous_stage"), "only.refresh.initial_model: previous_stage, but no stage co"),
    # BM25
    (
        "bm25.hits=40",
        "bm25.hits: 40, but a `bm25` source with its filters reads 50 documents; set bm25.hits=50",
    ),
    (f"{DISTIL}.negatives.1={{kind: bm25, filters: [{{kind: range_min, ranks: 10}}]}}", "set bm25.hits=210"),
    (drawn("only", "{kind: mix, sources: [{kind: bm25, top_k: 300}]}"), "set bm25.hits=300"),
    (
        "bm25=null",
        "negatives.1: a source or a teacher of kind `bm25` needs BM25, but `bm25: null`; configure",
    ),
    # splits
    ("train_split=[nq, trivia]", "train_split: Input should be a valid dictionary or instance of TrainSplit"),
    ("train_split={splits: [nq, nq]}", "train_split.splits: expected the name of a split, or a list of diff"),
    ("train_split={splits: []}", "train_split.splits: expected the name of a split, or a list of different "),
    ("train_split={split: [a, b]}", "train_split.split: unknown key 'split' (did you mean 'splits'?)"),
    ("train_split={splits: ['n q', a]}", "train_split: merged splits have names without blanks and colons"),
    ("train_split={splits: nq, sampling: equal}", "sampling: equal, but 'nq' is the only split; list more"),
    ("train_split={splits: [a, b, c], sampling: equal}", "only.batch_queries: 4 is not a multiple of 3"),
    ("final_evaluation.split=5", "final_evaluation.split: expected the name of a split, or a list of diff"),
    ("final_evaluation.split=dl/19", "split 'dl/19': files are named after splits"),
    ("data.splits={train: train.tsv, dl/19: dl19.tsv}", "split 'dl/19': files are named after splits"),
    ("data.keep_unjudged=[dev]", "keep_unjudged: split 'dev' is evaluated, held out from, or not trained on"),
    (
        ["data.keep_unjudged=[train]", *refresh("query_chunks: 2")],
        "query_chunks: data.keep_unjudged keeps qu",
    ),
    (refresh("positives_top_k: 5"), "positives_top_k: `data` leaves questions without positives out; data.k"),
    # the final evaluation
    ("final_evaluation.measures=RR@10", "measures: expected a list of measures, or one for each split, for "),
    ("final_evaluation.measures={dev: RR@10}", "measures: expected a list of measures, or one for each spl"),
    ("final_evaluation.measures={dev: [RR@10]}", "measures: split 'test' is evaluated, but has no measures"),
    ("final_evaluation.query_measures={dv: [RR]}", "query_measures: no split 'dv' (did you mean 'dev'?); sp"),
    ("final_evaluation.rerank={tests: {}}", "rerank: no split 'tests' (did you mean 'test'?); splits of `da"),
    ("final_evaluation.rerank={test: {hits: 200}}", "rerank.test.hits: 200, but BM25 ranks 100 documents; s"),
    ("final_evaluation.rerank={test: {top_k: 2}}", "test.top_k: unknown key 'top_k'; keys here: file, hits"),
    (["final_evaluation.rows=[]", "final_evaluation.rerank={test: {}}"], "rerank.test: reranks the row bm25"),
    (
        ["final_evaluation.split=[test, test-rerank]", "final_evaluation.rerank={test: {}}"],
        "'test-rerank' is",
    ),
    ("final_evaluation.rows=[bm25, x]", "rows.1: Input should be 'bm25', 'untrained', 'start', 'stages' or "),
    ("final_evaluation.rows=[hybrid]", "rows: `hybrid` fuses the ranking of the row `bm25`; add it, or remo"),
    ("expect={RR@10: 0.3}", "expect.RR@10: Input should be a valid dictionary, got 0.3"),
    ("expect={dev: {MRR@10: 0.3}}", "expect.dev.MRR@10: tables call MRR@10 RR@10; write RR@10"),
    ("expect={dev: {RR@10: 33.0}}", "expect.dev.RR@10: Input should be less than or equal to 1, got 33.0"),
]


@pytest.mark.parametrize(("overrides", "fragment"), REFUSED, ids=[fragment for _, fragment in REFUSED])
def test_a_contradiction_is_named_once_with_its_key(base, overrides, fragment):
    overrides = [overrides] if isinstance(overrides, str) else overrides
    said = refused(base, *overrides)
    assert fragment in said
    assert said.count("\n") == 1 or "is not valid" not in said or "stages.Two" in said


TEACHERS = [  # overrides of demo/ar2
    ("ranker-1.after=warmup", "no stage 'warmup' (did you mean 'warm-up'?); stages: warm-up, "),
    ("ranker-1.after=iteration-1", "stages.iteration-1.terms.query.teacher: `teachers` has no"),
    ("ranker-2.init_from={teacher: ranker-2}", "init_from.teacher: `teachers` has no 'ranker-2'"),
    ("ranker-2.init_from={teacher: a, model: b}", "expected `initial`, `{teacher: NAME}`, or"),
    ("ranker-2.init_from=ranker-1", "expected `initial`, `{teacher: NAME}`, or `{model: "),
    ("ranker-1.negatives=[random]", "`random` is not mined from the result of a stage; use ann"),
    ("ranker-1.negatives=[momentum]", "`momentum` is not mined from the result of a stage"),
    ("ranker-1.negatives=[{kind: ann, rolling: true}]", "rolling of `ann` has no effect here"),
    ("warm-up={after: warm-up, negatives: [ann]}", "teachers.warm-up: a stage has this name; give the"),
    ("ranker-3=null", "teachers.ranker-3: null removes an inherited name, but 'ranker-3' is not inherited"),
    ("Ranker={after: warm-up, negatives: [ann]}", "teacher name 'Ranker': use small letters"),
]


@pytest.mark.parametrize(("override", "fragment"), TEACHERS)
def test_a_wrong_teacher_is_named_with_its_key(override, fragment):
    assert fragment in refused("demo/ar2", f"teachers.{override}")


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"a: [1\n", "is not YAML"),
        (b"caf\xe9: 1", "is not YAML"),
        (b"", "got NoneType"),
        (b"seed: 1\nseed: 2\n", ":2: key 'seed' is written twice in one mapping; keep one"),
        (b"extends: [base, 5]", "extends: expected the name of a recipe or a list of them"),
        (b"extends: broken", "recipes extend one another in a circle: "),
        (b"extends: base\nstages: {onyl: null}", "stages.onyl: null removes an inherited name"),
        (
            b"extends: base\ndata: {splits: {train: a, dve: null}}",
            "data.splits.dve: null removes an inherited",
        ),
        (b"extends: base\ndata: {kind: tevatron, splits: {train: a, dev: null}}", "'dev' is not inherited"),
    ],
)
def test_a_file_that_is_not_a_recipe_is_named(base, write, content, fragment):
    path = write("broken", "")
    path.write_bytes(content)
    assert str(path) in refused(path) and fragment in refused(path)


def test_every_problem_is_named_with_the_files_that_were_merged(base, write):
    top = write("top", "extends: base\nseed: -1\nstages: {only: {steps: 0}}")
    assert refused(top, "bm25.b=2").splitlines() == [
        f"recipe {top} (extends {base}), with bm25.b=2 is not valid:",
        "  bm25.b: Input should be less than or equal to 1, got 2",
        "  stages.only.steps: Input should be greater than 0, got 0",
        "  seed: Input should be greater than or equal to 0, got -1",
    ]
    said, problem = refused(write("top", "extends: demo/ance\nbm25: null")).splitlines()
    assert str(SHIPPED / "_methods" / "bm25.yaml") in said
    assert problem.startswith(
        "  stages.bm25-neg.terms.query.negatives.0: a source or a teacher of kind `bm25`"
    )


def test_a_missing_base_is_answered_by_files_beside_the_one_that_wants_it(write):
    write("_bases", "")
    for base, near in (("_bse", "_bases, "), ("_methods/randbatch", "_methods/rand-batch, ")):
        top = write("top", f"extends: {base}")
        with pytest.raises(FileNotFoundError, match=f"{top}: extends: no recipe '{base}': .*mean {near}"):
            load(top)


@pytest.mark.parametrize("evaluate", ["{every_steps: 5, keep_best: false}", "null"])
def test_a_schedule_goes_on_only_from_the_last_step(base, evaluate):
    """The result of a stage with `keep_best` may be a step that its schedule has long left."""
    then = f"{NEXT}, lr_schedule: {{offset_steps: 5, total_steps: 50}}}}"
    load(base, f"stages.only.evaluate={evaluate}", then)
    said = refused(base, "stages.only.evaluate={every_steps: 5}", then)
    assert "stages.next.lr_schedule.offset_steps: with stages.only.evaluate.keep_best: true" in said


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndcg@10", "unknown measure 'ndcg@10' .did you mean 'nDCG'"),
        ("ndcg_cut_10", "did you mean 'nDCG'"),
        ("map", "did you mean 'AP'"),
        ("bogus", "unknown measure 'bogus'; examples: nDCG@10"),
        ("nDCG@", "not of the form"),
        ("nDCG@0", "not of the form"),
        ("nDCG at 10", "not of the form"),
        ("P", "takes cutoff .required., rel, judged_only"),
        ("RR(grade=2)@10", "takes cutoff, rel, judged_only"),
        ("RR(rel=two)@10", "not of the form"),
        ("RR(2)@10", "not of the form"),
        ("alpha_nDCG@10", "cannot be computed here.*pip install"),
    ],
)
def test_a_measure_that_cannot_be_computed_is_refused(name, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        parse_measures([name])
