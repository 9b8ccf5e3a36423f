"""Benchmark `memory`: what encoding, mining and training state that they will take, and what they take.

Each round is a process of its own, whose peak the system measures.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pyserini_ance.bench.encoding import MODEL, TEXTS, write_inputs
from pyserini_ance.bench.rounds import Contender, Contest, Rounds
from pyserini_ance.bench.searching import DOCUMENTS, QUERIES, write_vectors
from pyserini_ance.bench.training import own_recipe

TRAINED_DOCUMENTS = 400  # the final evaluation encodes all of them
MIB = 1 << 20


def memory(options: Mapping[str, Any], folder: Path) -> Contest:
    """Encode `options["passages"]` documents, search as `mine` does, and train as `train` does, in fp32."""
    write_inputs(options, folder, "document", options["passages"])
    write_vectors(folder, options["documents"], options["searches"], options["dimension"])
    recipe = own_recipe(
        **{key: options[key] for key in ("encoder", "steps", "batch", "length_tokens", "threads")},
        precision="fp32",
        max_documents=TRAINED_DOCUMENTS,
    )
    (folder / "train.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    title = (
        f"peak memory of a process in MiB: {options['passages']:,} documents encoded; the "
        f"{options['top_k']} best of {options['documents']:,} vectors of {options['dimension']} numbers for "
        f"{options['searches']:,} queries; {options['steps']} steps of {options['batch']} queries"
    )
    settings = {"k": options["top_k"], "memory_gib": options["memory_gib"]}
    return Contest(
        "memory", title, [Contender(task, apart, {"task": task, **settings}) for task in TASKS], None, shares
    )


def shares(own: np.ndarray, _: np.ndarray | None) -> dict[str, float]:
    """The columns of the table, from the stated and the measured bytes."""
    stated, measured = own.tolist()
    return {"stated": stated / MIB, "measured": measured / MIB, "stated / measured": stated / measured}


def apart(rounds: Rounds, folder: Path, task: str, k: int, memory_gib: float | None) -> None:
    """Do the task in a new process in each round."""
    rounds.works_itself = False
    given = json.dumps({"folder": str(folder), "task": task, "k": k, "memory_gib": memory_gib})
    for number, _ in enumerate(rounds):
        command = [sys.executable, "-m", __name__, given, str(number)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rounds.output = np.array(json.loads(done.stdout.splitlines()[-1]), float)


def _encode(folder: Path, k: int, memory_gib: float | None, number: str) -> list[int]:
    from pyserini_ance.data.token_store import TokenStore
    from pyserini_ance.encoders.load_save import load_encoder
    from pyserini_ance.pipeline.cpu_memory import encoding_memory

    encoder = load_encoder(folder / MODEL)
    texts = [{"text": text} for text in json.loads((folder / TEXTS).read_text(encoding="utf-8"))]
    tokens = TokenStore.of_lists(encoder.tokenizer.ids("document", texts), encoder.tokenizer.specials)
    vectors = np.empty((len(tokens), encoder.dimension), np.float32)
    forecast = encoding_memory(encoder, tokens, "document", "fp32", None)
    for rows, block in encoder.encode_rows(tokens, np.arange(len(tokens)), "document", "fp32"):
        vectors[rows] = block
    return _against_peak(forecast)


def _mine(folder: Path, k: int, memory_gib: float | None, number: str) -> list[int]:
    from pyserini_ance.distributed.world import World
    from pyserini_ance.pipeline.cpu_memory import searching_memory
    from pyserini_ance.recipe.models import Encoding
    from pyserini_ance.vectors.faiss_library import import_faiss
    from pyserini_ance.vectors.search import resolve_backend, search_arrays, searcher

    settings = Encoding(memory_gib=memory_gib)
    if resolve_backend(settings.search, "cpu") == "faiss":
        import_faiss()
    documents, queries = np.load(folder / DOCUMENTS, mmap_mode="r"), np.load(folder / QUERIES)
    count, dimension = documents.shape
    forecast = searching_memory(settings, count, dimension, len(queries), k)
    search_arrays(searcher(documents, settings.search, "cpu", World(), memory_gib=memory_gib), queries, k)
    return _against_peak(forecast)


def _train(folder: Path, k: int, memory_gib: float | None, number: str) -> list[int]:
    """The peak is that of the last step: the forecast is for the stage, not for the evaluation after it."""
    from pyserini_ance import api
    from pyserini_ance.runs.provenance import resident_bytes
    from pyserini_ance.trainer.callbacks import TrainerCallback

    peaks = [0]

    class Peak(TrainerCallback):
        def on_step_end(self, stage: str, step: int, losses: dict, metrics: dict) -> None:
            peaks.append(resident_bytes("VmHWM") or 0)

    run = folder / f"run-{number}"
    api.train(folder / "train.yaml", run, callbacks=[Peak()])
    measures = json.loads((run / "measures.json").read_text(encoding="utf-8"))
    return [measures["memory_bytes"]["stated"], peaks[-1]]


def _against_peak(forecast: Any) -> list[int]:
    from pyserini_ance.runs.provenance import resident_bytes

    if forecast is None:
        raise RuntimeError("this system does not tell how much memory a process has")
    return [forecast.total, resident_bytes("VmHWM") or 0]


TASKS: dict[str, Callable[..., list[int]]] = {"encode": _encode, "mine": _mine, "train": _train}

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    folder = Path(asked.pop("folder"))
    print(json.dumps(TASKS[asked.pop("task")](folder, **asked, number=sys.argv[2])))
