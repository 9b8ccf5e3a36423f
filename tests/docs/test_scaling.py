"""docs/guides/scaling.md: its overrides fit their recipe, and its files run with a scheduler's variables."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from helpers.pages import ROOT, blocks, environment, files, guide

from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import save_encoder
from pyserini_ance.recipe.load import load

PAGE = guide("scaling")
FILES = files(PAGE)
SKY = yaml.safe_load((ROOT / "docs/examples/encode.sky.yaml").read_text())
SHARDS = 3
VARIABLES: dict[str, str] = {}  # of the programs that `whole` has written


def test_a_recipe_without_bm25_takes_its_ranking_from_a_file():
    (shown,) = re.findall(r"pyserini-ance train ([^\n]* bm25=null .*?)\n```", PAGE, re.DOTALL)
    recipe = load(*shlex.split(shown.replace("\\\n", " ")))
    rankings = [str(source.file) for source in recipe.sources if source.kind == "ranking"]
    assert recipe.bm25 is None and rankings == ["bm25.train.negatives.trec"]
    alone = re.search(r"medquad/(rand, .*?) need `bm25=null` alone", PAGE)[1].replace(" and ", ", ")
    for name in re.findall(r"[\w-]+", alone):
        assert load(f"medquad/{name}", "bm25=null").bm25 is None


def test_the_shell_files_parse():
    scripts = [*blocks(PAGE, "bash"), SKY["run"]]
    assert len(scripts) > 10
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert done.returncode == 0, f"{script}\n{done.stderr}"


def test_the_engines_are_settings_of_a_recipe():
    (engine,) = [yaml.safe_load(block) for block in blocks(PAGE, "yaml") if block.startswith("encoding:")]
    given = f"encoding={json.dumps(engine['encoding'])}"
    assert load("demo/ance", given).encoding.engine.model == "BAAI/bge-base-en-v1.5"
    assert load("demo/ance", "encoding.engine=ray").encoding.engine == "ray"


def test_one_file_starts_on_a_laptop_in_a_ray_job_and_on_the_machines_of_a_cloud(tmp_path):
    for program in ("ray", "pyserini-ance"):
        (tmp_path / program).write_text(f'#!/bin/sh\necho {program} "$@" "[$RAY_ADDRESS]"\n')
        (tmp_path / program).chmod(0o755)
    (tmp_path / "train_ray.sh").write_text(FILES["train_ray.sh"])
    named = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RECIPE": "demo/ance", "RUN": "run"}

    def said(**variables: str) -> list[str]:
        script, given = ["bash", "train_ray.sh"], {**named, **variables}
        done = subprocess.run(script, cwd=tmp_path, env=given, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    trained = "pyserini-ance train demo/ance encoding.engine=ray --output run"
    assert said() == [f"{trained} []"]
    assert said(RAY_ADDRESS="10.1.0.1:6379") == [f"{trained} [10.1.0.1:6379]"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run/environment.json").touch()
    cloud, head = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}, "10.0.0.1:6379"
    first = ["ray start --head --port 6379", f"{trained} --resume", "ray stop"]
    assert said(SKYPILOT_NODE_RANK="0", **cloud) == [f"{line} [{head}]" for line in first]
    assert said(SKYPILOT_NODE_RANK="1", **cloud) == [f"ray start --address {head} --block [{head}]"]


@pytest.fixture(scope="module")
def whole(tiny_bert, forked_python, tmp_path_factory) -> Path:
    """A folder with `corpus.jsonl`, `model`, programs, and `index`, which was encoded without shards."""
    folder = tmp_path_factory.mktemp("scaling")
    config = EncoderConfig(model=str(tiny_bert), tokenization={"document": {"length_tokens": 24}})
    save_encoder(initial_encoder(config, seed=1), folder / "model")
    records = ({"id": f"d{i}", "contents": f"Text {i} " * (i % 7 + 1)} for i in range(100))
    (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    VARIABLES.update(environment(folder, forked_python))
    made = ["--corpus", "corpus.jsonl", "--encoder", "model", "--output", "index"]
    said_by(start("pyserini-ance", "encode", *made, whole=folder, cwd=folder))
    return folder


def start(*command: str, whole: Path, cwd: Path, **variables: object) -> subprocess.Popen:
    """Start a file of the page, with the variables that it names."""
    here = {"CORPUS": whole / "corpus.jsonl", "MODEL": whole / "model", "DEVICE": "cpu", "SHARDS": SHARDS}
    named = {name: str(value) for name, value in {**VARIABLES, **here, **variables}.items()}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=cwd, env=named, text=True, **pipes)


def said_by(process: subprocess.Popen) -> str:
    """What a process says until it ends well."""
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return said


def assert_equal(index: Path, whole: Path) -> None:
    for name in ("index", "docid"):
        assert (index / name).read_bytes() == (whole / "index" / name).read_bytes()


@pytest.mark.long
def test_a_job_array_and_the_merge_after_it(whole, tmp_path):
    for name in ("encode.sbatch", "merge.sbatch"):
        (tmp_path / name).write_text(FILES[name])

    def task(name: str, **variables: object) -> subprocess.Popen:
        return start("bash", name, whole=whole, cwd=tmp_path, FOLDER=tmp_path / "out", **variables)

    for running in [task("encode.sbatch", SLURM_ARRAY_TASK_ID=number) for number in (1, 3)]:
        said_by(running)
    assert "shard 2/3 is missing" in task("merge.sbatch").communicate()[0]
    for number in (1, 2):  # as when the array is submitted again
        said_by(task("encode.sbatch", SLURM_ARRAY_TASK_ID=number))
    assert "100 rows of 3 shards" in said_by(task("merge.sbatch"))
    assert_equal(tmp_path / "out/index", whole)


@pytest.mark.long
def test_the_machines_of_a_cloud(whole, tmp_path):
    script = SKY["run"]
    data = tmp_path / "bucket"
    data.mkdir()
    for name in ("corpus.jsonl", "model"):
        (data / name).symlink_to(whole / name)

    def machine(rank: int) -> subprocess.Popen:
        variables = {"DATA": data, "LOCAL": tmp_path / f"{rank}", "SKYPILOT_NUM_NODES": 2}
        return start("bash", "-c", script, whole=whole, cwd=tmp_path, SKYPILOT_NODE_RANK=rank, **variables)

    for running in [machine(0), machine(1)]:
        said_by(running)
    assert said_by(machine(1)) == "", "a machine that starts again passes over what is done"
    names = sorted(path.name for path in (data / "shards").iterdir())
    assert names == ["1", "1.done", "2", "2.done", "3", "3.done"]
    merge = ["pyserini-ance", "encode", "--merge", *map(str, sorted((data / "shards").glob("?")))]
    said_by(start(*merge, "--output", "merged", whole=whole, cwd=tmp_path))
    assert_equal(tmp_path / "merged", whole)
