"""DPR's form of an encoder: two BERTs in a .cp file, or in folders of Hugging Face's DPRQuestionEncoder and
DPRContextEncoder, which Pyserini's stock class `dpr` reads.

Training and checkpoints use BERT's format. The two differ only by names in config.json and in the file of
weights, so the conversion is exact, and both formats have the same hash. BERT's pooler is kept, as in DPR's
own releases; vectors do not use it.
"""

import hashlib
import pickle
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch
from safetensors import safe_open
from safetensors.torch import save, save_file

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.config import TOWERS, config_of, read_side_file
from pyserini_ance.encoders.released import DPR, check_report
from pyserini_ance.encoders.sentence_transformers_files import MODULES
from pyserini_ance.encoders.weights import load_weights
from pyserini_ance.storage import files

# The architectures and prefixes of Hugging Face's DPRQuestionEncoder and DPRContextEncoder.
DPR_FOLDER: dict[str, Side] = {"DPRQuestionEncoder": "query", "DPRContextEncoder": "document"}
DPR_PREFIX: dict[Side, str] = {"query": "question_encoder.bert_model.", "document": "ctx_encoder.bert_model."}
DPR_FILE: dict[Side, str] = {"query": "question_model.", "document": "ctx_model."}
Weights = dict[str, torch.Tensor]
CONFIG, WEIGHTS = "config.json", "model.safetensors"
TEMPLATES = {"query": ("{text}",), "document": ("{text}", "{title} [SEP] {text}")}


def read_dpr(source: str, side: Side, base: str | None = None) -> Any:
    """The BERT of a side, in fp32, from a .cp file or from a folder or hub name of Hugging Face's classes.

    base: the model with the configuration of a .cp file. Raises RuntimeError for a file that is no DPR
    checkpoint, or lacks weights, ValueError for a folder with the tower of the other side.
    """
    from transformers import BertConfig, BertModel, PreTrainedConfig

    if Path(source).is_file():
        assert base is not None, "a DPR file without `base` has no tokenizer, which is loaded first"
        config = BertConfig.from_pretrained(base)
        weights: dict[str, Any] = {"state_dict": read_dpr_file(Path(source), side)}
    else:
        written = PreTrainedConfig.get_config_dict(source)[0]
        saved_side = DPR_FOLDER.get((written.get("architectures") or [""])[0], side)
        if saved_side != side:
            cure = "set encoder.model to the question encoder, encoder.document.model to the other"
            raise ValueError(f"{source} is a DPR encoder of the {saved_side} side; {cure}")
        config = BertConfig.from_dict({**written, "model_type": "bert", "architectures": None})
        weights = {"key_mapping": dict(DPR.names)}
    model, report = load_weights(BertModel, source, config=config, **weights)
    check_report(report, source, DPR)
    return model


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
        raise RuntimeError(f"{path} is not a DPR checkpoint: its model_dict has no {prefix}*")
    return tower


def to_dpr(folder: Path) -> None:
    """Convert two towers that `save_encoder` wrote, in a folder that is not published yet.

    DPR's towers are BERTs with CLS pooling and nothing after it, for texts that DPR's encoders can build.
    Any other encoder is not changed, because the stock class `auto` reads only BERT's format.
    """
    if _can_convert(folder):
        (folder / MODULES).unlink()
        for side, name in TOWERS.items():
            tower = folder / name
            (tower / MODULES).unlink()
            [architecture] = [name for name, of in DPR_FOLDER.items() if of == side]
            tensors, about = _read(tower / WEIGHTS)
            named = {DPR_PREFIX[side] + name: tensor for name, tensor in tensors.items()}
            save_file(named, tower / WEIGHTS, about)
            config = {**files.read_json(tower / CONFIG), "model_type": "dpr", "architectures": [architecture]}
            files.write_json(tower / CONFIG, config)


def is_dpr(tower: Path) -> bool:
    return (files.read_json_object(tower / CONFIG) or {}).get("model_type") == "dpr"


def weights_sha256(weights: Path) -> str:
    """The hash of a file of weights; weights in DPR's format are hashed under BERT's names."""
    if not is_dpr(weights.parent):
        return files.sha256_file(weights)
    tensors, about = _read(weights)
    prefixes = re.compile("|".join(map(re.escape, DPR_PREFIX.values())))
    return hashlib.sha256(save({prefixes.sub("", name): t for name, t in tensors.items()}, about)).hexdigest()


def _read(weights: Path) -> tuple[Weights, dict[str, str]]:
    with safe_open(weights, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def _can_convert(folder: Path) -> bool:
    config, modules = config_of(folder), read_side_file(folder)["modules"]
    is_plain = {*modules.values()} == {"Transformer Pooling"} and config.pooling == "cls"
    if config.tied or not is_plain or config.truncate_dim:
        return False
    if any(config.tokenization.side(side).template not in TEMPLATES[side] for side in SIDES):
        return False
    towers = [folder / name for name in TOWERS.values()]
    return all(files.read_json(tower / CONFIG)["model_type"] == "bert" for tower in towers)
