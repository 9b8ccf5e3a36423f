"""Documents encoded elsewhere: by a Ray cluster, here of two workers, and by a server of embeddings."""

import os
import signal
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.embedding_server import Embeddings, embedding_server
from helpers.run_outcome import outcome, without_times
from helpers.stages import ANN, make_stage, recipe_file

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.tokenization import split_into_passages
from pyserini_ance.storage.files import read_json, read_json_lines, write_json
from pyserini_ance.vectors import encoding, ray_tasks
from pyserini_ance.vectors.encoding import Windows, encode_shards

STAGE = make_stage(ANN, steps=6, refresh={"every_steps": 3})
RECORDS = [{"text": "word " * length} for length in np.random.default_rng(0).integers(0, 60, 100).tolist()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> str:
    """The address of a cluster of this process."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'pyserini_ance[ray]'")
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    settings = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": 100 << 20}
    ray.init("local", num_cpus=2, **settings)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture
def encoder(tiny_bert):
    settings = {"pooling": "mean", "tokenization": {"document": {"length_tokens": 64}}}
    return initial_encoder(EncoderConfig(model=str(tiny_bert), **settings), 1)


def encoded(folder, encoder, precision="fp32", engine=None) -> np.ndarray:
    tokenizer = encoder.tokenizer
    tokens = TokenStore.of_lists(tokenizer.ids("document", RECORDS), tokenizer.specials["document"])
    settings = "document", precision, 256, "documents", World()
    return np.array(encode_shards(folder, {}, encoder, tokens, *settings, engine=engine)[:])


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_vectors_are_those_of_this_process(cluster, encoder, tmp_path, monkeypatch, precision):
    monkeypatch.setattr(encoding, "ROWS_PER_WINDOW", 16)
    found = encoded(tmp_path / "ray", encoder, precision, ray_tasks.encode)
    assert len(read_json_lines(tmp_path / "ray/0-of-1/windows.jsonl")) == 7
    np.testing.assert_array_equal(found, encoded(tmp_path / "inline", encoder, precision))


@pytest.mark.parametrize("more", [{"special_tokens": "per_document"}, {"pad_passages": True}])
def test_a_task_has_the_passages_of_its_window(tiny_bert, monkeypatch, caplog, more):
    """By tasks of this process, in the place of a cluster whose machines are too small."""
    ray = SimpleNamespace(exceptions=SimpleNamespace(RayError=OSError), put=bytes, cluster_resources=dict)
    ray.nodes = lambda: [{"Alive": True, "Resources": {"CPU": 0.5}}]
    ray.remote = lambda **_: lambda function: SimpleNamespace(remote=partial(partial, function))
    ray.wait = lambda tasks: (tasks[:1], tasks[1:])
    ray.get = lambda one: one() if callable(one) else one
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray_tasks, "_connected", lambda: ray)
    document = {"length_tokens": 8, "passages": 4, **more}
    settings = {"pooling": "mean", "tokenization": {"document": document}}
    encoder = initial_encoder(EncoderConfig(model=str(tiny_bert), **settings), 1)
    ids, specials = encoder.tokenizer.ids("document", RECORDS), encoder.tokenizer.specials["document"]
    tokens, _ = split_into_passages(TokenStore.of_lists(ids, specials), encoder.config.tokenization)
    windows = Windows(encoder, tokens, "document", "fp32", 256, [(0, 40), (40, len(tokens))])
    expected = dict(windows.encode(lambda _: None))
    for start, vectors in ray_tasks.encode(windows, lambda _: None):
        np.testing.assert_array_equal(vectors, expected.pop(start))
    assert not expected and "waiting for a machine with 1 CPUs" in caplog.text


@pytest.mark.long
def test_what_fails_in_a_worker_is_said(cluster, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "ROWS_PER_WINDOW", 16)
    with torch.no_grad():
        encoder.towers.documents.transformer.embeddings.position_embeddings.weight[50:] = torch.nan
    long = next(row for row, record in enumerate(RECORDS) if len(record["text"].split()) > 50)
    with pytest.raises(ValueError, match=r"the vector of text \d+ is nan in dimension 0") as error:
        encoded(tmp_path / "a", encoder, engine=ray_tasks.encode)
    assert long // 16 * 16 <= int(str(error.value).split()[4])
    monkeypatch.setattr(ray_tasks, "encode_window", lambda *_: 1 // 0)
    with pytest.raises(RuntimeError, match="ray: .* by zero; the command with --resume continues"):
        encoded(tmp_path / "b", encoder, engine=ray_tasks.encode)


@pytest.mark.long
def test_a_run_is_that_without_ray(cluster, server, small_recipe, tmp_path):
    """A worker is killed at work, and then the trainer, which resumes; each has some windows written."""
    recipe, marker = recipe_file(small_recipe({"ance": STAGE}), tmp_path), tmp_path / "died"

    def train(name: str, *flags: str, step: int = 0, code: int = 0) -> None:
        place = {"fault": "on_a_ray_cluster", "stage": f"{cluster} {marker}", "step": step}
        server.run("train", [str(recipe), "--output", str(tmp_path / name), *flags], code, **place)

    train("inline")
    assert not marker.exists()
    train("ray", "encoding.engine=ray", step=6, code=-9)
    assert marker.exists()
    train("ray", "encoding.engine=ray", "--resume")
    assert outcome(tmp_path / "ray") == outcome(tmp_path / "inline")


def test_ray_leaves_the_handler_of_sigterm_which_ends_a_run(monkeypatch):
    context = SimpleNamespace(gcs_address="10.0.0.1:6379")
    ray = {"is_initialized": lambda: False, "init": lambda **_: signal.signal(signal.SIGTERM, signal.SIG_IGN)}
    ray |= {"get_runtime_context": lambda: context, "cluster_resources": dict}
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(**ray))
    before = signal.getsignal(signal.SIGTERM)
    ray_tasks._connected()
    assert signal.getsignal(signal.SIGTERM) is before


def test_without_ray_or_a_cluster_the_cure_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RuntimeError, match=r"ray needs Ray; install it: pip install 'pyserini_ance\[ray\]'"):
        ray_tasks._connected()
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    message = r"cluster at RAY_ADDRESS=127\.0\.0\.1:1 \(.*refused\); start one with"
    with pytest.raises(RuntimeError, match=message):
        ray_tasks._connected()


@pytest.fixture
def served(small_recipe):
    """A server with the untrained encoder of small recipes; it reads adapters as vLLM does."""
    config = small_recipe({"ance": STAGE}).encoder

    def load(folder: Path) -> Encoder:
        about = read_json(folder / "adapter_config.json")
        write_json(folder / "adapter_config.json", {**about, "base_model_name_or_path": config.model})
        return initial_encoder(config.model_copy(update={"model": str(folder)}), 0)

    with embedding_server(initial_encoder(config, 42), load=load) as server:
        yield server


def by_server(server: Embeddings, **settings) -> dict:
    return {"encoding": {"precision": "fp32", "engine": {"url": server.url, "model": "ours"}}, **settings}


@pytest.mark.long
def test_a_server_gets_the_adapters_before_each_refresh(served, server, small_recipe, tmp_path):
    stage, rows = {**STAGE, "lora": {"r": 2}}, []
    for name, settings in {"inline": {}, "http": by_server(served)}.items():
        path = recipe_file(small_recipe({"ance": stage}, **settings), tmp_path)
        server.run("train", [str(path), "--output", str(tmp_path / name)])
        rows.append([without_times(row) for row in read_json(tmp_path / name / "measures.json")["rows"]])
    assert rows[0] == rows[1]
    assert [name[:5] for name in served.encoders] == ["ours", "ours-", "ours-"]  # of steps 0, 3 and 6
    assert not list((tmp_path / "http/scratch").rglob("adapter_config.json"))


@pytest.mark.long
def test_weights_that_the_server_lacks_end_a_run_which_resumes_inline(served, server, small_recipe, tmp_path):
    recipe = recipe_file(small_recipe({"ance": STAGE}, **by_server(served)), tmp_path)
    command = [str(recipe), "--output", str(tmp_path / "run")]
    assert "30 vectors of ours have a cosine of" in server.run("train", command, code=1)["stderr"]
    assert "step 3" in read_json(tmp_path / "run/state.json")["where"]
    server.run("train", [*command, "encoding.engine=inline", "--resume"])
