import pytest

from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.load import SHIPPED, load

from .conftest import refused

ANN = "stages.only.terms.query.negatives=[{kind: ann}]"
STAGE = "steps: 1, batch_queries: 2, optimizer: {learning_rate: 1}"
IN_BATCH = "terms: {q: {in_batch_negatives: true}}"
NEXT = f"stages.next={{{STAGE}, {IN_BATCH}"
LAMB, KEEPS_FIRST = NEXT.replace("1}", "1, kind: lamb}"), "keep_optimizer: true, init_from: {stage: only}"
DISTIL = "stages.only.terms.query"


def drawn(name: str, negatives: str, more: str = "") -> str:
    return f"stages.{name}={{{STAGE}, terms: {{query: {{negatives: [{negatives}]}}}}{more}}}"


def refresh(settings: str) -> list[str]:
    return [ANN, f"stages.only.refresh={{every_steps: 4, {settings}}}"]


def source(settings: str) -> str:
    return f"{DISTIL}.negatives=[{settings}]"


def mix(sources: str, more: str = "") -> str:
    return source(f"{{kind: mix, sources: [{sources}]{more}}}")


def distil(settings: str) -> str:
    """A term that follows a teacher."""
    teacher = "" if "teacher" in settings else "teacher: student, "
    return f"stages.only.terms.d={{{teacher}loss: kl, {settings}}}"


VECTORS = "stages.only.terms.d={loss: embed_distill, teacher: {kind: encoder, encoder: a}"
AMBIGUOUS = "is a setting of sampling_strategy: ambiguous, but sampling_strategy is"
OWN_SIDE = "in_batch_negatives: true, same_side_negatives: true"
HYBRID = "{kind: teacher, teacher: {kind: hybrid, teachers: [student, hybrid]}, margin: 0}"
RANDOM_TOO = "stages.only.terms.r={negatives: [random]}"  # queries that search nothing
SEVERAL = "encoder.tokenization.document.passages=2"
FROZEN, SAMPLE = "stages.only.trainable=query_tower", "encode: {sample: 0.1}"
CHUNKED = ", refresh: {every_steps: 5, query_chunks: 2}"
MOMENTUM = drawn("next", "{kind: momentum}")

REFUSED = [  # overrides of the base recipe, fragments of the message
    # unknown keys and kinds, types and bounds
    ("sead=1", "sead: unknown key 'sead' (did you mean 'seed'?); keys here: bm25, cache, "),
    ("refresh.every_steps=30", "unknown key 'refresh' (a key of stages: stages.NAME.refresh)"),
    ("stages.only.stepz=5", "stages.only.stepz: unknown key 'stepz' (did you mean 'steps'?)"),
    ("data.hold_out=true", "data.hold_out: expected a number, got True"),
    ("stages.only.lr_schedule={warmup_steps: true}", "lr_schedule.warmup_steps: expected a number, got True"),
    ("data.kind=bier", "data: unknown kind 'bier' of data (did you mean 'beir'?); kinds: beir, datasets, "),
    ("data=5", "data: expected a mapping with `kind`, one of: beir, "),
    (f"{DISTIL}.negatives.1={{kind: bm25, filters: [answer]}}", "(did you mean 'answers'?)"),
    ("stages.only.terms=null", "stages.only.terms: Input should be a valid dictionary, got None"),
    (f"{NEXT.replace('next', 'bm25', 1)}}}", "stage name 'bm25': use small letters"),
    ("encoding.engine=spark", "encoding.engine: expected inline, ray, or the keys url and model of a server"),
    ("encoding.engine={url: 'http://me:key@host/v1', model: m}", "is not of the form http://localhost:8000"),
    ("encoding.engine={url: 'http://host/v1', modle: m}", "'modle' (did you mean 'model'?)"),
    # overrides
    ("seed", "override 'seed': expected dotted.key=value, for example"),
    ("seed=[1", "override 'seed=[1' is not YAML"),
    (f"seed={2**63}", "seed: Input should be less than 9223372036854775808"),
    ("stages.only.terms.query.weight=-1", "weight: Input should be greater than or equal to 0"),
    ("stages.onyl.steps=5", "no stage 'onyl' (did you mean 'only'?); stages: only"),
    ("encoder.model.x=1", "'model' is 'some-model', which has no keys below it"),
    (f"{DISTIL}.negatives.2.top_k=1", "'2' must be a position in a list of 2 (from 0)"),
    ("stages.onyl=null", "stages.onyl: null removes an inherited name, but 'onyl' is not inherited (did you"),
    ("data.splits.dve=null", "(did you mean 'dev'?); inherited: train, dev, test"),
    # a stage and its terms
    ("stages.only.lr_schedule.total_steps=5", "only: lr_schedule.total_steps 5 ends before steps 10"),
    ("stages.only.lr_schedule={offset_steps: 3, total_steps: 7}", "lr_schedule.offset_steps + steps 13"),
    ("stages.only.refresh={every_steps: 5}", "only: `refresh:` is set, but no source of negatives is"),
    (ANN, "stages.only: a source of negatives is mined with the model; set how often"),
    (f"{DISTIL}.negatives=[]", "stages.only.terms.query: a term needs negatives: list a source"),
    (f"{DISTIL}.negatives=[live]", "document vectors that do not change; set trainable: query_tower"),
    ("encoder.query=bert-small", "encoder.query: Input should be a valid dictionary or instance of TowerSt"),
    ("stages.only.terms.query.dimensions=[[384]]", "query.dimensions: expected numbers of dimensions, such"),
    ("encoder={tied: true, document: {model: b}}", "encoder: document is set, but the towers share their"),
    (
        "encoder={tied: true, query: {layers: [0]}}",
        "encoder: query is set, but the towers share their weights; set `tied: false`",
    ),
    ("stages.only.train_split=nq", "stages.only.train_split: 'nq' is none of the recipe's train_split ("),
    (
        "data.train_queries={from: crops, split: dev}",
        "data.train_queries.split: 'dev': made queries train; name",
    ),
    (
        "stages.only.terms.v={loss: {kind: embed_distill}, teacher: {kind: encoder}}",
        "a teacher of terms.v names no encoder: that is the document tower, which",
    ),
    (
        "encoder.tokenization.query={length_tokens: 5, template: none}",
        "expected a text with a field, such as",
    ),
    (refresh("mode: async, adopt: soon"), ".adopt: expected `when_ready` or a number of steps from 1, got"),
    (refresh("adopt: when_ready"), "refresh: mode: sync adopts at once; remove `adopt`, or set mode: async"),
    (refresh("query_chunks: 2, positives_top_k: 3"), "remove one of the keys"),
    (refresh(f"mode: async, adopt: when_ready, {SAMPLE}"), "when_ready skips; set `adopt` to a n"),
    (refresh("encode: {sample: 1}"), "refresh.encode.sample: Input should be less than 1, got 1"),
    (refresh("encode: {sample: 0.1, part: 0.1}"), "encode needs one of the keys `sample` and `part`, such"),
    (refresh("encode: {min_recall: 0}"), "encode needs one of the keys `sample` and `part`, such as"),
    ([*refresh(SAMPLE), FROZEN], "never changes; remove the key"),
    (refresh(f"initial_model: previous_stage, {SAMPLE}"), "another model; remove one of the keys"),
    ("stages.only.evaluate={every_steps: 4, adopt: when_ready}", "only: evaluate.adopt is set, but a sync "),
    ("stages.only.terms.a/b={negatives: [random]}", "'a/b': files are named after terms; rename it without"),
    (
        [FROZEN, f"stages.only.terms.b={{negatives: [live], {OWN_SIDE}}}"],
        "terms.b: same_side_negatives compares drawn positives, which a `live` source replaces",
    ),
    (f"{NEXT.replace('queries: 2', 'queries: 1')}}}", "next: batch_queries is 1, but terms.q has no other"),
    (f"{DISTIL}.teacher=hybrid", "loss `nll` uses no teacher; set loss: kl, margin_mse or soft"),
    (f"{DISTIL}.loss=kl", "loss `kl` follows a teacher's scores; name one: `teacher: {kind: hybrid}`"),
    (distil("negatives: [ann], same_side_negatives: true"), "without in_batch_negatives; set both, or none"),
    ([f"stages.only.terms.b={{{OWN_SIDE}}}", SEVERAL], "terms.b.same_side_negatives: documents of several"),
    (distil("in_batch_negatives: true"), "give the in-batch negatives a term of their own"),
    (distil("negatives_from: quary"), "terms.d.negatives_from is 'quary'; terms with negatives: query"),
    (distil("negatives_from: query, negatives: [random]"), "negatives of its own or those of another term"),
    (distil("negatives_from: query"), "scores the candidates of tables, but `random` has none"),
    (distil("negatives_from: query, anchor: document"), "terms.d: its anchors are of side document"),
    (distil("negatives: [ann], false_negative_margin: 0.1"), "false_negative_margin is 0.1, but the teacher"),
    ("stages.only.terms.d={regularizer: alignment, num_hardest: 1}", "a regularizer applies to all anchors"),
    ("stages.only.terms.d={regularizer: alignment, negatives_from: query}", "without loss, negatives, negat"),
    ("stages.only.terms.d={regularizer: alignment, loss: {kind: nll, scale: 9}}", "without loss, negatives"),
    ("stages.only.terms.d={regularizer: alignment, loss: hinge}", "without loss, negatives, negatives_from"),
    ("stages.only.terms.d={anchor: document, negatives: [{kind: ann, rolling: true}]}", "draws of a query"),
    (distil("negatives: [ann], anchor: document, teacher: hybrid"), "BM25's scores of different queries can"),
    (
        f"stages.only.terms.d={{anchor: document, negatives: [{{kind: ann, filters: [{HYBRID}]}}]}}",
        "BM25's sc",
    ),
    (
        [*refresh(SAMPLE), "stages.only.terms.query.anchor=document", RANDOM_TOO],
        "refresh.encode corrects vectors of documents, which no term with anchor: query mines",
    ),
    ("stages.only.terms.d={loss: embed_distill, teacher: student}", "a teacher's vectors; name an encoder"),
    (f"{VECTORS}, dimensions: [8]}}", "compares whole vectors of all its `texts`; remove num_hardest"),
    (f"{VECTORS}, negatives: [random]}}", "and with texts: anchors the negatives"),
    ([FROZEN, f"{VECTORS}, anchor: document}}"], "terms.d.loss trains the vectors of"),
    ([SEVERAL, f"{VECTORS}, anchor: document}}"], "terms.d.loss: documents of several passages have"),
    (distil("dimensions: 8"), "d.dimensions: expected numbers of dimensions, such as [384, 128], or a"),
    # sources, filters and teachers
    (source("{kind: ann, top_k: all}"), "expected `auto` or a number"),
    (source("{kind: live, num_negatives: 20}"), "set top_k=20, and remove num_negatives"),
    (source("{kind: ann, a: 2}"), f"a {AMBIGUOUS} random"),
    (source("{kind: ann, sampling_strategy: top, a: 1}"), f"a {AMBIGUOUS} top"),
    (source("{kind: lookahead, sampling_strategy: ambiguous}"), "no score; use random"),
    (source("{kind: lookahead, filters: [relative_margin]}"), "lookahead gives positives no score; rem"),
    (source("{kind: ann, rolling: true, sampling_strategy: top}"), "is top"),
    (mix("ann, random"), "sources.1: `random` has no table"),
    (mix("{kind: ann, num_negatives: 3}"), "sources.0.num_negatives has no effect"),
    (mix("ann, {kind: ann, sampling_strategy: top}"), "sources.1.sampling_strategy"),
    (mix("{kind: ann, min_candidates: 2}"), "sources.0.min_candidates has no"),
    (mix("{kind: ann, rolling: true}"), "sources.0.rolling has no effect inside a"),
    (mix("ann", ", filters: [duplicates]"), "unknown key 'filters'"),
    (mix("ann", ", weights: [1]"), "set both `weights` and `top_k`"),
    (mix("ann", ", weights: [1, 2], top_k: 5"), "2 weights for 1 sources; pass one for"),
    (source("{kind: ann, filters: [{kind: teacher, teacher: student}]}"), "give one of `max_score` and"),
    (
        source("{kind: ann, filters: [{kind: teacher, teacher: bm25, max_score: 1, margin: 0}]}"),
        "list the filter twice",
    ),
    # stages that follow one another
    ("stages.only.keep_optimizer=true", "stages.only.keep_optimizer: this is the first stage"),
    (f"{NEXT}, trainable: query_tower, keep_optimizer: true}}", "next.keep_optimizer: stages.only has anoth"),
    (f"{NEXT}, lora: {{}}, keep_optimizer: true}}", "next.keep_optimizer: stages.only has another"),
    ("stages.only.lora={target: all}", "lora.target: expected all-linear, or a list of names"),
    ([f"{LAMB}}}", f"{LAMB.replace('next', 'last')}, {KEEPS_FIRST}}}"], "last.keep_optimizer: stages.only "),
    (["shard=true", "stages.only.optimizer.kind=adamw_8bit"], "optimizer.kind: `shard` would cut the blocks"),
    (f"{NEXT}, keep_optimizer: true, init_from: {{folder: a}}}}", "have no moments; use init_from: previous"),
    (f"{NEXT}, init_from: last}}", "init_from: expected `initial`, `previous`, `{stage: NAME}`, `{folder: R"),
    (f"{NEXT}, init_from: {{folder: a, recipe: b}}}}", "next.init_from: expected one origin: "),
    (f"{NEXT}, init_from: {{stage: onyl}}}}", "init_from.stage: no stage 'onyl' before 'next' (did you mean"),
    (drawn("only", "{kind: momentum}"), "only.terms.query.negatives: momentum draws from the tables of the "),
    ([f"{DISTIL}.negatives=[random]", MOMENTUM], "no term 'query' with `anchor: query` and a source that is"),
    (["stages.only.terms.q.negatives=[bm25]", f"{DISTIL}.negatives=[random]", MOMENTUM], "terms: query, q)"),
    ([drawn("only", "{kind: ann}", CHUNKED), MOMENTUM], "remove min_candidates and refresh.query_chunks"),
    (drawn("only", "{kind: mix, sources: [ann, bm25]}", CHUNKED), "refresh.query_chunks: a mix holds a sour"),
    ([*refresh("positives_top_k: 5"), drawn("next", "ann", CHUNKED)], "query_chunks: queries without posit"),
    (refresh("initial_model: previous_stage"), "only.refresh.initial_model: previous_stage, but no stage co"),
    # BM25
    ("bm25.hits=40", "bm25.hits: 40, but a `bm25` source with its filters reads 50 documents; set bm25.h"),
    (f"{DISTIL}.negatives.1={{kind: bm25, filters: [{{kind: range_min, ranks: 10}}]}}", "set bm25.hits=210"),
    ("bm25=null", "negatives.1: a source or a teacher of kind `bm25`, or `llm` with a budget, needs BM25"),
    # splits
    ("train_split=[nq, nq]", "train_split: expected the name of a split, or a list of diff"),
    ("train_split=['n q', a]", "train_split: merged splits have names without blanks and colons"),
    ("final_evaluation.split=5", "final_evaluation.split: expected the name of a split, or a list of diff"),
    ("final_evaluation.split=dl/19", "split 'dl/19': files are named after splits"),
    # the final evaluation
    ("final_evaluation.measures=RR@10", "measures: expected a list of measures, or one for each split, for "),
    ("final_evaluation.measures={dev: [RR@10]}", "measures: split 'test' is evaluated, but has no measures"),
    ("final_evaluation.query_measures={dv: [RR]}", "query_measures: no split 'dv' (did you mean 'dev'?); sp"),
    ("final_evaluation.rerank={tests: bm25}", "rerank: no split 'tests' (did you mean 'test'?); splits of"),
    (["final_evaluation.rows=[]", "final_evaluation.rerank={test: bm25}"], "rerank.test: reranks the row b"),
    ("final_evaluation.rerank={test: null}", "rerank.test: null removes an inherited name, but 'test' is no"),
    ("final_evaluation.rerank={test: 5}", "rerank.test: expected bm25 or a file, got 5"),
    ("final_evaluation.rows=[bm25, x]", "rows.1: Input should be 'bm25', 'bm25+rm3', 'untrained', 'start', "),
    ("final_evaluation.rows=[hybrid]", "rows: `hybrid` fuses the ranking of the row `bm25`; add it, or remo"),
    ("expect={dev: {MRR@10: 0.3}}", "expect.dev.MRR@10: tables call MRR@10 RR@10; write RR@10"),
]


@pytest.mark.parametrize(("overrides", "fragment"), REFUSED, ids=[fragment for _, fragment in REFUSED])
def test_a_contradiction_is_named_once_with_its_key(base, overrides, fragment):
    overrides = [overrides] if isinstance(overrides, str) else overrides
    said = refused(base, *overrides)
    assert fragment in said
    assert said.count("\n") == 1 or "is not valid" not in said


TEACHERS = [  # overrides of demo/ar2
    ("ranker-1.after=warmup", "no stage 'warmup' (did you mean 'warm-up'?); stages: warm-up, "),
    ("ranker-1.after=iteration-1", "stages.iteration-1.terms.query.teacher: `teachers` has no"),
    ("ranker-2.init_from=teachers.ranker-2", "ranker-2.init_from: `teachers` has no 'ranker-2'"),
    ("ranker-1.negatives=[random]", "`random` is not mined from the result of a stage; use ann"),
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
        (b"", "got NoneType"),
        (b"seed: 1\nseed: 2\n", ":2: key 'seed' is written twice in one mapping; keep one"),
        (b"extends: [base, 5]", "extends: expected the name of a recipe or a list of them"),
        (b"extends: broken", "recipes extend one another in a circle: "),
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
    assert str(SHIPPED / "_methods" / "bm25.yaml") in refused(write("top", "extends: demo/ance\nbm25: null"))


def test_a_missing_base_is_answered_by_files_beside_the_one_that_wants_it(write):
    write("_bases", "")
    for base, near in (("_bse", "'_bases'"), ("_methods/randbatch", "'_methods/rand-batch'")):
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
        ("bogus", "unknown measure 'bogus'; examples: nDCG@10"),
        ("nDCG@", "not of the form"),
        ("P", "takes cutoff .required., rel, judged_only"),
        ("RR(grade=2)@10", "takes cutoff, rel, judged_only"),
        ("alpha_nDCG@10", "cannot be computed here.*pip install"),
        ("Accuracy@10", "has no value where all hits are relevant"),
    ],
)
def test_a_measure_that_cannot_be_computed_is_refused(name, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        parse_measures([name])
