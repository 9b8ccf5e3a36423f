"""Fixtures that several rooms share: real data beside the repository, and small random models made on the spot."""

import itertools
import json
import os
import pickle
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# One thread, here and in child processes: matrices are tiny, and on a busy machine threads that wait for one another
# cost some 8 ms an operation.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Wide weights: with the usual 0.02 all vectors of a random model are nearly the same.
TINY_SHAPE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, initializer_range=0.5)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real collections that are kept beside the repository, not in it."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}")
    return folder


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory) -> Path:
    """A random BERT of 32 dimensions, 128 positions, with a lower-casing WordPiece tokenizer of letters and a few words."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("tiny_bert")
    characters = string.ascii_lowercase + string.digits + string.punctuation
    words = "the of and query title text document".split()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{c}" for c in characters), *words]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    BertTokenizer.from_pretrained(str(folder), do_lower_case=True, model_max_length=128).save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=128, **TINY_SHAPE)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_roberta(tmp_path_factory) -> Path:
    """A random plain RoBERTa (no ANCE head) of 32 dimensions, 514 positions, with a byte-level tokenizer of two merges."""
    import torch
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import RobertaConfig, RobertaModel, RobertaTokenizer

    folder = tmp_path_factory.mktemp("tiny_roberta")
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "th", "the", "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e\n")
    RobertaTokenizer.from_pretrained(str(folder), model_max_length=512).save_pretrained(folder)
    torch.manual_seed(0)
    RobertaModel(RobertaConfig(vocab_size=len(pieces), max_position_embeddings=514, type_vocab_size=1, **TINY_SHAPE)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def small_recipe(tiny_bert, tmp_path_factory):
    """Make recipes, of the stages given, over 30 documents of a colour and a thing each, with `tiny_bert`; no BM25.

    The 15 training queries ask for things 1-3 of a colour; the first has two positives. 5 dev and 5 test queries.
    """
    from pyserini_ance.recipe.models import Recipe

    folder = tmp_path_factory.mktemp("small_collection")
    colours, things = "red green blue gray pink".split(), "apple stone river cloud horse tiger".split()
    documents = [(f"{c}-{t}", f"the {t} is {c} {'very ' * (i % 7)}") for i, (c, t) in enumerate(itertools.product(colours, things))]
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"id": id, "contents": text}) + "\n" for id, text in documents))
    files = {}
    for split, asked in {"train": things[:3], "dev": things[3:4], "test": things[4:5]}.items():
        queries = [(f"{split}-{i}", c, t) for i, (c, t) in enumerate(itertools.product(colours, asked))]
        judged = [(id, f"{c}-{t}") for id, c, t in queries] + [("train-0", "red-tiger")] * (split == "train")
        (folder / f"{split}.tsv").write_text("".join(f"{id}\tquery of {c} {t}\n" for id, c, t in queries))
        (folder / f"{split}.qrels").write_text("".join(f"{query} 0 {document} 1\n" for query, document in judged))
        files[split] = {"topics": str(folder / f"{split}.tsv"), "qrels": str(folder / f"{split}.qrels")}

    def make(stages: dict, **more) -> Recipe:
        lengths = {"query": {"length_tokens": 24}, "document": {"length_tokens": 32, "template": "{text}"}}
        settings = {
            "name": "small",
            "data": {"kind": "pyserini_jsonl", "corpus": str(folder / "corpus.jsonl"), "splits": files},
            "encoder": {"kind": "transformer", "model": str(tiny_bert), "pooling": "mean", "tokenization": lengths},
            "encoding": {"precision": "fp32", "training_tokens_per_batch": 256},
            "bm25": None,
            "stages": stages,
            "test": {"hits": 20, "measures": ["RR@10", "R@20"]},
            "device": "cpu",
            "precision": "fp32",
            "cache": str(folder / "cache"),
        }
        return Recipe.model_validate({**settings, **more})

    return make


class Processes:
    """Runs a test's own function in the processes of a world, with torchrun's environment and real gloo on one machine.

    A world costs about half a second: its processes are forked from one that has imported the test file already. So
    what the function needs is imported at the top of that file, and the function stands there by a name of its own:

        def total(world, part):
            return sum(int(one) for one in world.gather(torch.tensor([part + world.rank])))

        def test_total(run_processes):
            assert run_processes(3, total, 10) == [33, 33, 33]

    The function runs within `world.guarding()`; `join=False` leaves the joining to the function, which then gets no
    world: a command that makes its own. Arguments and values are pickled. Monkeypatches of the test do not reach the
    processes; the function may patch for itself.
    """

    def __init__(self, server: subprocess.Popen):
        self._server = server

    def __call__(self, size: int, function: Callable, *arguments, join: bool = True, seconds: float = 60) -> list:
        """What `function(world, *arguments)` returns on each rank; fails with the tracebacks when one ends otherwise."""
        ends = self.ends(size, function, *arguments, join=join, seconds=seconds)
        bad = [f"rank {rank} ended with {end['code']}\n{end['error']}\n{end['output']}" for rank, end in enumerate(ends) if end["code"]]
        assert not bad, "\n".join(bad)
        return [end["value"] for end in ends]

    def ends(self, size: int, function: Callable, *arguments, join: bool = True, seconds: float = 60) -> list[dict]:
        """How each rank ended, for tests in which some fail: value, error (traceback), code, output, seconds from the start.

        `code` is minus the signal's number for a killed process. One that is left after `seconds`, or stopped when
        all others have ended, is killed.
        """
        where = {"file": function.__code__.co_filename, "module": function.__module__, "function": function.__qualname__}
        how = {"size": size, "arguments": pickle.dumps(arguments), "join": join, "seconds": seconds}
        pickle.dump({**where, **how}, self._server.stdin)
        self._server.stdin.flush()
        ends = pickle.load(self._server.stdout)
        assert isinstance(ends, list), ends
        return ends


@pytest.fixture(scope="session")
def run_processes():
    """`run_processes(size, function, *arguments)`: see `Processes`."""
    program = Path(__file__).parent / "distributed" / "processes.py"
    with subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        yield Processes(server)
        server.stdin.close()
