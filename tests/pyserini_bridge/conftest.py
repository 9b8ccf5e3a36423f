"""Small random checkpoints, and a process of its own for code: Pyserini, Java and faiss stay out of ours."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.small_set import TINY_SHAPE, make_tiny_roberta

CHILD_SECONDS = 600  # a machine of any load; a quiet one needs 30


@pytest.fixture(scope="session")
def child(forked_python):
    """Run Python source in a process with arguments; returns the completed process, checked."""

    def run(source: str, *arguments, check: bool = True, **settings) -> subprocess.CompletedProcess:
        command = [*forked_python, "-c", source, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_SECONDS, **settings)
        assert not check or done.returncode == 0, done.stderr[-3000:]
        return done

    return run


# Sources come as JSON lines, what they print goes back; Java's own words go elsewhere.
ONE_PROCESS = """
import contextlib, io, json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    source, *sys.argv[1:] = json.loads(line)
    said, error = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(said):
            exec(source, {"__name__": "__main__"})
    except Exception:
        error = traceback.format_exc()
    print(json.dumps([said.getvalue(), error]), file=answers, flush=True)
"""


@pytest.fixture(scope="session")
def in_java(forked_python):
    """Run Python source in one process for all, which imports Pyserini once; returns its output."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*forked_python, "-c", ONE_PROCESS], text=True, **pipes)

    def run(source: str, *arguments) -> str:
        process.stdin.write(json.dumps([source, *map(str, arguments)]) + "\n")
        process.stdin.flush()
        said, error = json.loads(process.stdout.readline())
        assert error is None, error
        return said

    yield run
    process.stdin.close()
    process.wait(CHILD_SECONDS)
    process.stdout.close()


@pytest.fixture(scope="session")
def roberta(tmp_path_factory) -> Path:
    return make_tiny_roberta(tmp_path_factory.mktemp("roberta"), positions=258)


@pytest.fixture(scope="session")
def bert_tokenizer(tmp_path_factory) -> Path:
    """A folder with a BERT tokenizer that lower-cases, cut at 64 tokens; no weights."""
    from transformers import BertTokenizer

    folder = tmp_path_factory.mktemp("bert")
    letters = [chr(i) for i in range(33, 127)] + list("äöüßαβγδεοςσ東京")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    tokenizer = BertTokenizer.from_pretrained(str(folder), do_lower_case=True, model_max_length=64)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def bert(bert_tokenizer, tmp_path_factory) -> Path:
    """A plain BERT of 32 dimensions with that tokenizer."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    folder = shutil.copytree(bert_tokenizer, tmp_path_factory.mktemp("plain_bert"), dirs_exist_ok=True)
    torch.manual_seed(0)
    vocabulary = len(AutoTokenizer.from_pretrained(folder))
    config = BertConfig(vocab_size=vocabulary, max_position_embeddings=256, **TINY_SHAPE)
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def checkpoint(roberta, tmp_path_factory):
    """Save an encoder, made from `roberta` unless the settings name another model; returns its folder."""
    from pyserini_ance.encoders.ance import write_ance
    from pyserini_ance.encoders.config import EncoderConfig
    from pyserini_ance.encoders.initial import initial_encoder
    from pyserini_ance.encoders.load_save import save_encoder

    def make(**settings) -> Path:
        folder = tmp_path_factory.mktemp("model")
        config = EncoderConfig.model_validate({"model": str(roberta), **settings})
        save_encoder(initial_encoder(config, seed=1), folder)
        if config.tied:
            write_ance(folder, "query")
        return folder

    return make
