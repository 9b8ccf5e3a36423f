"""An adaptation from end to end, with a random encoder: what it leaves, how it goes on, what it says."""

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pytest
from helpers.families import make_family
from helpers.language_model import KEY, language_model
from helpers.processes import CommandServer
from helpers.server import serving
from helpers.waiting import until
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

from pyserini_ance.adapt.adapt import adapt, deliver
from pyserini_ance.adapt.data import Request, prepare
from pyserini_ance.adapt.queries import keep_known, read_queries
from pyserini_ance.adapt.verdict import BASE_FUSED, FUSED, ONLY_BM25
from pyserini_ance.commands import adapt as command
from pyserini_ance.data.trec import read_qrels, read_run
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.evaluation.tables import read_results
from pyserini_ance.llm import Server
from pyserini_ance.pyserini_bridge.export import python_program
from pyserini_ance.recipe.load import load
from pyserini_ance.runs.any_encoder import encoder_source
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.locks import LockHeld, locked
from pyserini_ance.vectors.vector_store import VectorStore

pytestmark = pytest.mark.long
SHORT = ["stage_defaults.steps=2", "stage_defaults.lr_schedule={warmup_steps: 1}", "threads=1"]
SHORT += ["encoding.precision=fp32", "precision=fp32"]
COLOURS = ["red", "green", "blue", "gray", "pink", "black", "white", "brown", "golden", "violet"]
THINGS = ["apple", "stone", "river", "cloud", "horse", "tiger"]
THINGS += ["house", "tree", "bird", "wall", "boat", "road"]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_inputs(folder):
    """Documents, whose folder is returned, a CSV of queries, and judgments of all and of some by text."""
    (folder / "docs").mkdir()
    rows = []
    for number, colour in enumerate(COLOURS, 1):
        for thing in THINGS:
            text = f"# The {colour} {thing}\n\nIt is {'very ' * number}{colour}, and a {thing} of its own."
            name = f"{colour}-{thing}.md"
            (folder / "docs" / name).write_text(text + "<script>alert(1)</script>")
            rows.append(f"which {thing} is {colour},{name},1")
    (folder / "q.csv").write_text("\n".join(["query", *(row.split(",")[0] for row in rows)]))
    for name, judged in (("j.csv", rows), ("few.csv", rows[:12])):
        (folder / name).write_text("\n".join(["query,document,grade", *judged]))
    return folder / "docs"


@pytest.fixture
def docs(tmp_path):
    return write_inputs(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_bert):
    """Adaptations that have ended, from judged queries, from queries and from documents alone."""
    made = {}
    given = {"judged": ("q.csv", "j.csv"), "queries": ("q.csv", None), "extracted": (None, None)}
    for name, files in given.items():
        folder = tmp_path_factory.mktemp(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
            made[name] = request(folder, write_inputs(folder), tiny_bert, *files)
            adapt(made[name], SHORT)
    return made


def request(tmp_path, docs, tiny_bert, queries=None, judgments=None):
    given = (name and tmp_path / name for name in (queries, judgments))
    return Request(str(docs), tmp_path / "out", str(tiny_bert), *given)


@pytest.mark.parametrize(
    ("files", "supervision", "splits", "says"),
    [
        (("q.csv", "j.csv"), "judged", {"train", "dev", "test"}, "judged queries: train"),
        (("q.csv", "few.csv"), "unjudged", {"unjudged", "dev", "test"}, "find the same document first for"),
        (("q.csv", None), "unjudged", {"unjudged", "compared"}, "find the same document first for"),
        ((None, None), "extracted", {"extracted", "compared"}, "made of the documents: "),
    ],
)
def test_an_adaptation_says_if_it_pays(tmp_path, docs, tiny_bert, finished, files, supervision, splits, says):
    name = "queries" if files == ("q.csv", None) else supervision
    wanted = finished.get(name) or request(tmp_path, docs, tiny_bert, *files)
    text = adapt(wanted, SHORT)
    output = wanted.output
    kept = "kept whole" if files[1] else "passages"
    assert f"120 documents, 120 {kept}" in text and says in text and f"what teaches: {supervision}" in text
    assert {path.stem for path in (output / "data" / "qrels").iterdir()} == splits
    recipe = (output / "recipe.yaml").read_text()
    assert len(recipe.splitlines()) < 25 and recipe.startswith("# Written by `pyserini-ance adapt`")
    assert load(output / "recipe.yaml").train_name == {"judged": "train"}.get(supervision, supervision)
    record = json.loads((output / "verdict.json").read_text())
    assert [row[""] for row in record["rows"]] == ["base", "BM25", "base + BM25", "adapted", "adapted + BM25"]
    is_judged = "test" in splits
    assert ("nDCG@10" in record["rows"][0]) == is_judged and record["sentence"] in text
    assert is_judged or "no test query is judged" in record["sentence"]
    card = (output / "run" / "model" / "README.md").read_text()
    assert ("## Measures" in card, "model-index" in card) == (is_judged, is_judged)
    assert (output / "run" / "report.html").is_file()
    assert (output / "run" / "parquet" / "part-00000.parquet").is_file()
    page = (output / "report.html").read_text()
    shown = json.loads(re.findall(r"const queries = (.*), documents = ", page)[0])
    judged = (output / "data" / "qrels" / f"{'test' if is_judged else 'compared'}.tsv").read_text()
    assert len(shown) == len(judged.splitlines()) - 1
    assert all(len(hits) == 5 for one in shown for hits in one["lists"].values())
    assert "<script>alert" not in page
    to_judge = output / "to_judge.csv"
    assert to_judge.exists() == (splits == {"unjudged", "compared"})
    if to_judge.exists():  # graded, it is a file of judgments
        pd.read_csv(to_judge).assign(grade=1).to_csv(to_judge, index=False)
        graded = read_queries(tmp_path / "q.csv", to_judge, docs, tmp_path)
        assert {graded.texts[id] for id in graded.judgments} == {one["query"] for one in shown}
        keep_known(graded, {path.name: "" for path in docs.iterdir()})
    # The same command again trains nothing, says the same, and leaves grades as they are.
    before = (output / "run" / "measures.json").stat().st_mtime_ns
    assert adapt(wanted, SHORT) == text
    assert (output / "run" / "measures.json").stat().st_mtime_ns == before
    assert not to_judge.exists() or pd.read_csv(to_judge).grade.eq(1).all()


def test_the_commands_to_paste_load_search_fuse_and_serve(tmp_path, finished, forked_python):
    def paste(command):
        subprocess.run(command.replace(python_program(), shlex.join(forked_python)), shell=True, check=True)

    run = RunDir(finished["judged"].output / "run")
    assert len(deliver(run, ONLY_BM25)) == 1
    *others, serve = deliver(run, FUSED)
    for other in others:
        paste(other)
    query, wanted = next(iter(read_run(run.final_run("test")).items()))
    text = json.loads((run.folder / "topics.test.json").read_text())[query]["title"]
    with serving(serve.replace("&& ", "&& exec "), tmp_path / "log") as answer:
        found = answer(f"v1/adapted/search?query={quote(text)}&hits=1")["candidates"]
    assert found[0]["score"] == pytest.approx(wanted[found[0]["docid"]], abs=1e-4)
    assert found[0]["score"] == pytest.approx(max(wanted.values()), abs=1e-4)
    assert "of its own" in json.dumps(found[0]["doc"])
    _, encode, search, fuse, _ = deliver(run, BASE_FUSED)
    paste(encode)
    paste(search)
    words, wanted = shlex.split(search), read_run(run.ranking("untrained", "test"))
    found = read_run(Path(words[words.index("--output") + 1]))
    for of_query, of in wanted.items():
        assert sorted(found[of_query].values()) == pytest.approx(sorted(of.values()), rel=1e-3)
    assert str(run.ranking("untrained", "test")) in shlex.split(fuse)


def test_an_adaptation_that_is_killed_at_any_phase_ends_the_same(tmp_path, docs, tiny_bert, finished):
    whole = finished["judged"]
    given = [str(docs), "--queries", str(tmp_path / "q.csv"), "--judgments", str(tmp_path / "j.csv"), *SHORT]
    given += ["--model", str(tiny_bert), "--output"]
    phases = [".data.unfinished", "recipe.yaml", "run/state.json", "run/checkpoints/distilled-00000002"]
    phases += ["run/index", "run/measures.json"]
    with CommandServer() as server:
        for phase in phases:
            pid = server.start("adapt", [*given, str(tmp_path / "killed")])
            seen = tmp_path / "killed" / phase
            until(lambda seen=seen, pid=pid: seen.exists() or server.has_ended(pid), seconds=120)
            server.kill(pid)
        ended = server.run("adapt", [*given, str(tmp_path / "killed")])
    assert f"{tmp_path / 'killed'}: continues with the data that is there" in ended["stderr"]
    said = ended["stdout"].replace(str(tmp_path / "killed"), str(whole.output))
    assert said.strip() == adapt(whole, SHORT).strip()
    for name in ("run/model/model.safetensors", "run/run.test.trec", "verdict.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (whole.output / name).read_bytes()
    assert RunDir(tmp_path / "killed" / "run").read_state()["status"] == "finished"
    assert not list((tmp_path / "killed").glob(".data*"))


def test_questions_of_a_language_model_teach_and_cost_once(tmp_path, docs, tiny_bert, monkeypatch, caplog):
    def reply(text, count):
        colour, thing = re.search(r"very (\w+), and a (\w+) of its own", text).groups()
        return f"Which {thing} is {colour}?"

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with language_model(reply) as model:
        caplog.set_level("INFO")
        server = Server(model.url, "small", max_requests=100)
        wanted = replace(request(tmp_path, docs, tiny_bert), server=server)
        announced = adapt(wanted, SHORT, plans=True)
        assert "gets 120 passages for small, in at most 100 requests" in announced and not model.asked
        text = adapt(wanted, SHORT)
        assert set(model.asked.values()) == {1} and len(model.asked) == 100
    assert re.search(r"\d+ questions for 100 of 120 passages", text) and "what teaches: generated" in text
    assert adapt(wanted, SHORT) == text  # the server is gone
    copy = "pass another --output, and copy .*questions into it"
    with pytest.raises(ValueError, match=f"with other budget; {copy}"):
        adapt(replace(wanted, server=server._replace(max_requests=120)), SHORT)
    (wanted.output / "prompt.txt").write_text("Ask about {text}")
    with pytest.raises(ValueError, match=f"with other prompt; {copy}"):
        adapt(wanted, SHORT)
    assert sum("gets 120" in one for one in caplog.messages) == 1
    recipe = (wanted.output / "recipe.yaml").read_text()
    assert "no test query is judged" in text and "_methods/distilled" in recipe
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()] and KEY not in caplog.text


def test_a_folder_belongs_to_its_documents_and_to_one_process(finished):
    wanted = finished["extracted"]
    with pytest.raises(ValueError, match="out was made with other queries; pass another --output"):
        adapt(replace(wanted, queries=wanted.output.parent / "q.csv"), SHORT)
    for other in ("stage_defaults.batch_queries=8", "seed=2", "bm25.hits=300"):
        with pytest.raises(ValueError, match="was trained with another recipe.yaml or other overrides"):
            adapt(wanted, [*SHORT, other])
    for of, other in (("extracted", "bm25.k1=2"), ("judged", "encoder.normalize=false")):
        with pytest.raises(ValueError, match=r"other settings \(KEY=VALUE\) of the encoder or BM25; pass"):
            adapt(finished[of], [*SHORT, other])
    with pytest.raises(ValueError, match="the verdict needs splits compared, rows bm25, untrained, hybrid, "):
        adapt(wanted, [*SHORT, "final_evaluation.split=test"])
    assert read_results(wanted.output)["run"] == str(wanted.output / "run")
    shutil.rmtree(wanted.output / "run" / "model")
    adapt(replace(wanted, model=os.path.relpath(wanted.model)), SHORT)  # makes it again
    assert load_encoder(wanted.output / "run" / "model")
    with locked(wanted.output / ".adapt.lock"), pytest.raises(LockHeld, match="is in use by"):
        adapt(wanted, SHORT)


def test_what_another_recipe_alone_cures_is_not_continued(tmp_path, docs, tiny_bert, caplog):
    wanted = request(tmp_path, docs, tiny_bert, "q.csv", "j.csv")
    with pytest.raises(RuntimeError, match="loss"):
        adapt(wanted, [*SHORT, "stage_defaults.steps=3", "stage_defaults.optimizer.learning_rate=1e38"])
    assert "give the same adapt command again" not in caplog.text
    with pytest.raises(ValueError, match="was trained with another recipe.yaml or other overrides; remove"):
        adapt(wanted, SHORT)


def test_what_a_plan_encodes_the_run_reads(tmp_path, docs, tiny_bert, finished, monkeypatch, capsys):
    written, write = [], VectorStore.write

    def counted(store, first, vectors):
        written.append((store.folder.parent.name, first, len(vectors)))
        write(store, first, vectors)

    monkeypatch.setattr(VectorStore, "write", counted)
    wanted = request(tmp_path, docs, tiny_bert, "q.csv")
    given = [str(docs), "--model", wanted.model, "--output", str(wanted.output), *SHORT]
    command.main([*given, "--queries", str(wanted.queries), "--plan"])
    _, *planned = capsys.readouterr().out.splitlines()
    assert "expected total" in "".join(planned) and len(written) == 1 and written[0][1:] == (0, 120)
    assert [path.name for path in (wanted.output / "run").iterdir()] == ["scratch"]
    assert adapt(wanted, SHORT, plans=True).splitlines()[:8] == planned[:8]
    adapt(wanted, SHORT)
    start = written[0][0]
    assert [one for one in written if one[0] == start] == written[:1] and len(written) > 1
    assert not list((wanted.output / "run").glob("scratch/*"))
    unplanned = finished["queries"].output
    for name in ("run/model/model.safetensors", "run/run.compared.trec", "data/queries.jsonl"):
        assert (wanted.output / name).read_bytes() == (unplanned / name).read_bytes()


def test_an_encoder_may_be_an_adaptation_and_ids_are_unique(tmp_path, docs, tiny_bert, finished, monkeypatch):
    start = finished["extracted"].output
    assert encoder_source(start) == str(start / "run" / "model")
    monkeypatch.chdir(start.parent)
    first = Request(str(docs), tmp_path / "again", start.name)
    assert "what teaches: extracted" in adapt(first, SHORT)
    assert load(first.output / "recipe.yaml").encoder.model == str(start / "run" / "model")
    (docs / "a.jsonl").write_text('{"id": "1", "text": "one"}\n{"id": "1", "text": "two"}\n')
    with pytest.raises(ValueError, match="two documents, '' and '', have the id '1'"):
        adapt(Request(str(docs), tmp_path / "new", str(tiny_bert)), SHORT)
    with pytest.raises(ValueError, match="was made with other files of documents; pass"):
        adapt(first, SHORT)
    with pytest.raises(FileExistsError, match="docs is no adaptation: it lacks .*adapt.json; pass"):
        adapt(replace(first, output=docs), SHORT)


def test_overrides_of_the_encoder_count_before_data_is_made(tmp_path, docs, tiny_bert):
    wanted = request(tmp_path, docs, make_family(tmp_path / "decoder", "Qwen3"), "q.csv", "j.csv")
    more = [f"data.splits.more={tmp_path / 'more.tsv'}", "final_evaluation.split=[dev, test, more]"]
    for given, is_unit in (([], False), (["encoder.normalize=true", *more], True)):
        shutil.rmtree(wanted.output, ignore_errors=True)
        wanted.output.mkdir()
        prepare(wanted, [*SHORT, "encoder.pooling=lasttoken", *given])
        written = (wanted.output / "recipe.yaml").read_text()
        assert ("scale: 1" in written, "normalize" in written) == (not is_unit, False)
    layers = [Transformer(str(tiny_bert)), Pooling(32), Dense(32, 16), Normalize()]  # no setting names tanh
    SentenceTransformer(modules=layers, device="cpu").save(str(tmp_path / "tanh"))
    of_tanh = replace(wanted, model=str(tmp_path / "tanh"), output=tmp_path / "of_tanh")
    prepare(of_tanh, SHORT)
    assert "scale: 1" not in (of_tanh.output / "recipe.yaml").read_text()
    unjudged = Request(str(docs), tmp_path / "unjudged", str(tiny_bert), tmp_path / "q.csv")
    with pytest.raises(ValueError, match="split names 'dev', .* stages.unjudged.evaluate=null"):
        adapt(unjudged, [*SHORT, "stage_defaults.evaluate.every_steps=1"])
    assert not (unjudged.output / "data").exists()


def test_settings_of_a_data_section_are_kept(tmp_path, tiny_bert):
    lines = [{"_id": str(n), "text": f"page number {n}"} for n in range(120)]
    for name in ("corpus", "queries"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "qrels.tsv").write_text("".join(f"{n}\t{n - 1}\t{1 + (n < 110)}\n" for n in range(1, 120)))
    data = {"kind": "beir", "folder": str(tmp_path), "splits": {"train": "qrels.tsv"}}
    kept = {"ignore_identical_ids": True, "relevance_threshold": 2, "instruction": "Find it"}
    (tmp_path / "data.yaml").write_text(json.dumps({"data": data | kept}))
    wanted = Request(str(tmp_path / "data.yaml"), tmp_path / "out", str(tiny_bert))
    text = adapt(wanted, [*SHORT, "encoder.tokenization.query.template='{instruction} {text}'"], plans=True)
    assert "judged queries: train 56, dev 21, test 32; " in text  # of 109 with grade 2
    section = load(wanted.output / "recipe.yaml").data
    assert section.ignore_identical_ids and section.instruction == "Find it"
    plain = Request(str(tmp_path), tmp_path / "plain", str(tiny_bert))  # without judgments
    adapt(plain, [*SHORT, "data.ignore_identical_ids=true"], plans=True)
    made = read_qrels(plain.output / "data" / "qrels" / "unjudged.tsv")
    assert made and not [query for query, of in made.items() if query in of]


def test_what_cannot_be_read_leaves_no_folder(tmp_path, tiny_bert, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.png").write_bytes(b"x")
    given = [str(tmp_path / "docs"), "--model", str(tiny_bert), "--output", str(tmp_path / "out")]
    for more, message in (
        ([], r"no document with a text\n1 file skipped\n  a.png: no document"),
        (
            ["stages.ance.steps=2", f"data.instruction={'x' * 300}"],
            "no stage 'ance'; stages: distilled, unjudged",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            command.main([*given, *more])
        assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="no document with a text"):
        command.main(given)
    assert (tmp_path / "out").exists()  # it was there before
    with pytest.raises(SystemExit):
        command.main([*given, str(tmp_path / "docs" / "a.png")])
    assert "did you mean --queries" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "passages", "reads"),
    [([900] * 3 + [100] * 97, False, 100), ([900] * 3 + [300] * 97, True, 400), ([300] * 100, True, None)],
)
def test_judged_documents_are_read_whole_or_it_is_said(tmp_path, tiny_bert, words, passages, reads):
    (tmp_path / "docs").mkdir()
    for number, count in enumerate(words):
        (tmp_path / "docs" / f"{number}.txt").write_text(" ".join(f"w{number}x{i}" for i in range(count)))
    rows = "".join(f"query {number},{number}\n" for number in range(18))
    (tmp_path / "q.csv").write_text("query\n" + "".join(f"query {i % 20}\n" for i in range(25)))
    (tmp_path / "j.csv").write_text(f"query,file\n{rows}")
    wanted = request(tmp_path, tmp_path / "docs", tiny_bert, "q.csv", "j.csv")
    wanted.output.mkdir()
    text = prepare(wanted, [*SHORT, "encoder.tokenization.document.length_tokens=128"])
    assert "100 documents, 100 kept whole\n" in text
    says = f"3 documents: the encoder reads about {reads} words of each"
    assert ("the encoder reads about" in text, says in text) == (bool(reads), bool(reads))
    assert ("passages: 4" in (wanted.output / "recipe.yaml").read_text()) == passages
    assert "12 test queries: too few for a verdict (30); judge about 27 more" in text
    assert "without judgments: 2; 5 queries with the text of another" in text
    assert "what teaches: extracted queries; those without judgments do not (fewer than 50)" in text
