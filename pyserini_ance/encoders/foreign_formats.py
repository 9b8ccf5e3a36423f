"""Readers of checkpoint files that Hugging Face does not support.

They are DPR's checkpoints, Tevatron's heads, and the arguments of microsoft/ANCE.
"""

import logging
import pickle
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch

from pyserini_ance.data.collection import Side

log = logging.getLogger(__name__)

DPR_FILE: dict[Side, str] = {"query": "question_model.", "document": "ctx_model."}
TEVATRON_FOLDER: dict[Side, str] = {"query": "query_model", "document": "passage_model"}
TEVATRON_POOLER: dict[Side, str] = {"query": "linear_q.", "document": "linear_p."}


class _Unread:
    """In place of any object of a pickle that is not a tensor: takes its contents, and keeps nothing."""

    def __init__(self, *_: Any, **__: Any):
        pass

    def __call__(self, *_: Any, **__: Any) -> "_Unread":
        return self

    __setstate__ = __setitem__ = append = extend = add = __call__


class _TensorsOnly(pickle.Unpickler):
    """Finds what rebuilds tensors, and nothing else: no other name of the file is imported or called."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in TENSOR_NAMES or (module == "torch" and name.endswith("Storage")):
            return super().find_class(module, name)
        return _Unread


TENSOR_NAMES = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch", "Size"),
}
# What torch.load takes as `pickle_module`.
TENSORS_ONLY = SimpleNamespace(
    __name__="tensors_only",
    Unpickler=_TensorsOnly,
    load=lambda file, **settings: _TensorsOnly(file, **settings).load(),
)


def read_dpr_file(path: Path, side: Side) -> dict[str, torch.Tensor]:
    """The weights of one tower in a DPR checkpoint file, under BERT's names.

    Only the tensors of its `model_dict` are read. Optimizer, scheduler and arguments may hold any objects;
    they stay empty, and no code of the file is executed. Raises RuntimeError if the file is not a DPR
    checkpoint.
    """
    try:
        if is_zipfile(path) and any(name.endswith("constants.pkl") for name in ZipFile(path).namelist()):
            raise ValueError("it is a TorchScript program")  # which torch.load would start
        content = torch.load(path, map_location="cpu", pickle_module=TENSORS_ONLY, weights_only=False)
        named = dict(content["model_dict"].items())
    except OSError:
        raise
    except Exception as error:  # of a damaged or another file: pickle and torch raise anything
        reason = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"{path} cannot be read as a DPR checkpoint: {reason}") from error
    prefix = DPR_FILE[side]
    names = [name for name in named if isinstance(name, str) and name.startswith(prefix)]
    tower = {name.removeprefix(prefix): named[name] for name in names}
    if others := [name for name, value in tower.items() if not isinstance(value, torch.Tensor)]:
        raise RuntimeError(f"{path} cannot be read as a DPR checkpoint: {prefix}{others[0]} is not a tensor")
    if not tower:
        raise RuntimeError(
            f"{path} is not a DPR checkpoint: its model_dict has no {prefix}*; "
            "expected question_model.* and ctx_model.*"
        )
    return tower


def read_arguments(source: str) -> dict[str, Any]:
    """The training arguments of a checkpoint of microsoft/ANCE or derived code; empty without them."""
    if not (file := Path(source) / "training_args.bin").is_file():
        return {}
    try:
        with torch.serialization.safe_globals([Namespace]):
            arguments = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of another trainer's or a damaged file, which is optional
        log.info("%s is ignored: %s", file, error)
        return {}
    return vars(arguments) if isinstance(arguments, Namespace) else {}


def read_pooler(folder: Path, side: Side, tied: bool) -> dict[str, torch.Tensor] | None:
    """`weight` and `bias` of Tevatron's linear head for a side, from pooler.pt, or None without the file."""
    root = folder.parent if folder.name in TEVATRON_FOLDER.values() else folder
    if not (file := root / "pooler.pt").exists():
        return None
    saved = torch.load(file, map_location="cpu", weights_only=True)
    names = ("weight", "bias")
    if saved.keys() != {f"{linear}{name}" for linear in TEVATRON_POOLER.values() for name in names}:
        raise RuntimeError(
            f"{file} contains {', '.join(sorted(saved))}; expected weight and bias of linear_q and linear_p"
        )
    query, document = ([saved[f"{linear}{name}"] for name in names] for linear in TEVATRON_POOLER.values())
    if tied and not all(map(torch.equal, query, document)):
        raise ValueError(f"{file} has a separate head for documents; set encoder.tied=false")
    return dict(zip(names, query if side == "query" else document, strict=True))
