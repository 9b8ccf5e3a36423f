"""Files of other projects' checkpoints that Hugging Face does not read: DPR's, Tevatron's heads, sentence-transformers' layers, ANCE's arguments."""

import json
import logging
from argparse import Namespace
from pathlib import Path
from pickle import UnpicklingError  # what torch.load raises; nothing is unpickled here
from typing import Any

import torch

from pyserini_ance.data.collection import Side

log = logging.getLogger(__name__)

DPR_FILE: dict[Side, str] = {"query": "question_model.", "document": "ctx_model."}
TEVATRON_FOLDER: dict[Side, str] = {"query": "query_model", "document": "passage_model"}
TEVATRON_POOLER: dict[Side, str] = {"query": "linear_q.", "document": "linear_p."}


def refuse_modules(source: str) -> None:
    """Raises RuntimeError for a folder of sentence-transformers with layers behind the pooling, which lie in folders of their own."""
    modules = Path(source) / "modules.json"
    listed = json.loads(modules.read_text(encoding="utf-8")) if modules.exists() else []
    if layers := [module["path"] for module in listed if module["type"].rpartition(".")[2] in ("Dense", "LayerNorm")]:
        raise RuntimeError(
            f"{source} has layers behind its pooling, {' and '.join(layers)}, which are not read. Where they are ANCE's head, "
            f"take the checkpoint in its first form, such as castorini/ance-msmarco-passage."
        )


def read_dpr_file(path: Path, side: Side) -> dict[str, torch.Tensor]:
    """One tower of a DPR checkpoint file, under the names of a BERT. Raises RuntimeError when it is none."""
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True).get("model_dict", {})
    except UnpicklingError as error:
        raise RuntimeError(f"{path} cannot be read as a DPR checkpoint: it holds more than tensors and plain values, which is not run") from error
    except (AttributeError, RuntimeError, EOFError) as error:
        raise RuntimeError(f"{path} cannot be read as a DPR checkpoint: {error}") from error
    prefix = DPR_FILE[side]
    tower = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    if not tower:
        raise RuntimeError(f"{path} is no DPR checkpoint: its model_dict has no {prefix}*; expected question_model.* and ctx_model.*")
    return tower


def read_arguments(source: str) -> dict[str, Any]:
    """The command line that a checkpoint of microsoft/ANCE, or of what was made from its code, was trained with; empty without one."""
    if not (file := Path(source) / "training_args.bin").is_file():
        return {}
    try:
        with torch.serialization.safe_globals([Namespace]):
            arguments = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # another trainer's, or damaged: torch raises anything, and nothing else needs the file
        log.info("%s is not read: %s", file, error)
        return {}
    return vars(arguments) if isinstance(arguments, Namespace) else {}


def read_pooler(folder: Path, side: Side, tied: bool) -> dict[str, torch.Tensor] | None:
    """`weight` and `bias` of Tevatron's linear head for a side, from pooler.pt beside the towers; None without one."""
    root = folder.parent if folder.name in TEVATRON_FOLDER.values() else folder
    if not (file := root / "pooler.pt").exists():
        return None
    saved = torch.load(file, map_location="cpu", weights_only=True)
    heads = {s: {name.removeprefix(p): saved[name] for name in saved if name.startswith(p)} for s, p in TEVATRON_POOLER.items()}
    if any(head.keys() != {"weight", "bias"} for head in heads.values()):
        raise RuntimeError(f"{file} holds {', '.join(sorted(saved))}; expected weight and bias of linear_q and linear_p")
    if tied and any(not torch.equal(heads["query"][name], heads["document"][name]) for name in ("weight", "bias")):
        raise ValueError(f"{file} has a head of its own for documents; set encoder.tied=false")
    return heads[side]
