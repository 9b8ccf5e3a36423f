"""Readers of checkpoint files that Hugging Face does not support.

They are DPR's checkpoints, Tevatron's heads, sentence-transformers' layers, and the arguments of
microsoft/ANCE.
"""

import json
import logging
from argparse import Namespace
from pathlib import Path
from pickle import UnpicklingError  # raised by torch.load; nothing is unpickled here
from typing import Any

import torch

from pyserini_ance.data.collection import Side

log = logging.getLogger(__name__)

DPR_FILE: dict[Side, str] = {"query": "question_model.", "document": "ctx_model."}
TEVATRON_FOLDER: dict[Side, str] = {"query": "query_model", "document": "passage_model"}
TEVATRON_POOLER: dict[Side, str] = {"query": "linear_q.", "document": "linear_p."}


def check_modules(source: str) -> None:
    """Raises RuntimeError for a folder of sentence-transformers with layers after the pooling."""
    modules = Path(source) / "modules.json"
    listed = json.loads(modules.read_text(encoding="utf-8")) if modules.exists() else []
    if layers := [
        module["path"] for module in listed if module["type"].rpartition(".")[2] in ("Dense", "LayerNorm")
    ]:
        raise RuntimeError(
            f"{source} has layers after its pooling, {' and '.join(layers)}, which are not supported. "
            "If they are ANCE's head, use the original checkpoint, such as castorini/ance-msmarco-passage."
        )


def read_dpr_file(path: Path, side: Side) -> dict[str, torch.Tensor]:
    """The weights of one tower in a DPR checkpoint file, under BERT's names.

    Raises RuntimeError if the file is not a DPR checkpoint.
    """
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True).get("model_dict", {})
    except UnpicklingError as error:
        raise RuntimeError(
            f"{path} cannot be read as a DPR checkpoint: it contains more than tensors and plain values, "
            "and such code is not executed"
        ) from error
    except (AttributeError, RuntimeError, EOFError) as error:
        raise RuntimeError(f"{path} cannot be read as a DPR checkpoint: {error}") from error
    prefix = DPR_FILE[side]
    tower = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
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
    except (
        Exception
    ) as error:  # another trainer's or a damaged file: torch raises anything, and the file is optional
        log.info("%s is ignored: %s", file, error)
        return {}
    return vars(arguments) if isinstance(arguments, Namespace) else {}


def read_pooler(folder: Path, side: Side, tied: bool) -> dict[str, torch.Tensor] | None:
    """`weight` and `bias` of Tevatron's linear head for a side, from pooler.pt, or None without the file."""
    root = folder.parent if folder.name in TEVATRON_FOLDER.values() else folder
    if not (file := root / "pooler.pt").exists():
        return None
    saved = torch.load(file, map_location="cpu", weights_only=True)
    heads = {
        s: {name.removeprefix(p): saved[name] for name in saved if name.startswith(p)}
        for s, p in TEVATRON_POOLER.items()
    }
    if any(head.keys() != {"weight", "bias"} for head in heads.values()):
        raise RuntimeError(
            f"{file} contains {', '.join(sorted(saved))}; expected weight and bias of linear_q and linear_p"
        )
    if tied and any(
        not torch.equal(heads["query"][name], heads["document"][name]) for name in ("weight", "bias")
    ):
        raise ValueError(f"{file} has a separate head for documents; set encoder.tied=false")
    return heads[side]
