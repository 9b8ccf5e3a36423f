"""Train dense retrievers with hard negatives that the model itself finds, for search with Pyserini.

The Python API is `import pyserini_ance as pa` (api.py); its parts are imported on first use. Reading path:
`recipes/_methods/ance.yaml` -> `trainer/trainer.py` -> `trainer/batch.py` -> `trainer/step.py` ->
`trainer/objective.py` -> `trainer/refresh.py` -> `trainer/executors.py` -> `refresher/refresher.py` ->
`negatives/ann.py`. README.md names the functions.
"""

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyserini_ance.api import *

__version__ = "0.1.0"
__all__ = [
    "Collection",
    "Encoder",
    "MinedNegatives",
    "Recipe",
    "Run",
    "TrainerCallback",
    "evaluate",
    "load_collection",
    "load_encoder",
    "load_recipe",
    "make_collection",
    "mine",
    "register",
    "resume",
    "search",
    "train",
]


# GNU OpenMP's threads then spin for microseconds only before they sleep, not for milliseconds: on 2 cores
# with another busy process that made a training step take 3 to 10 times as long. Not spinning at all
# (OMP_WAIT_POLICY=PASSIVE) costs 10 % of a step on an idle machine. Has no effect once torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Pyserini imports onnxruntime, which would write into ~/.cache/Microsoft and report its use to Microsoft.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# Under LC_ALL=C file names are UTF-8 for Python and ASCII for Java, which finds none with an umlaut.
if sys.flags.utf8_mode and os.environ.get("LC_ALL") in ("C", "POSIX"):
    os.environ["LC_ALL"] = "C.UTF-8"


def register() -> None:
    """Put our encoder classes into Pyserini's maps as `pyserini_ance`. Starts Java unless it already runs.

    Call it before anything imports Pyserini. Raises RuntimeError without a Java that Pyserini can use.
    """
    from pyserini_ance.pyserini_bridge.encoder_classes import register as register_encoders

    register_encoders()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module("pyserini_ance.api"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The type of this package: `pyserini_ance.train` stays the function of the API.

    The import system sets a submodule as an attribute of its package, and the command `python -m
    pyserini_ance.train` is such a submodule.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
