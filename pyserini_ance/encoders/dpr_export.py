"""Export of two towers in DPR's format, which Pyserini's stock class `dpr` loads.

The format is that of Hugging Face's DPRQuestionEncoder and DPRContextEncoder. A run exports a pair in it
that sentence-transformers cannot express; training and checkpoints use BERT's format. The two differ only by
names in config.json and in the file of weights, so the conversion is exact, and both formats have the
same hash. BERT's pooler is kept, as in DPR's own releases; vectors do not use it.
"""

import hashlib
import re
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save, save_file

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.families.transformer import Transformer
from pyserini_ance.encoders.load_save import TOWERS, family_of
from pyserini_ance.encoders.released import DPR_FOLDER, DPR_PREFIX
from pyserini_ance.storage.files import read_json, read_json_object, sha256_file, write_json

CONFIG, WEIGHTS = "config.json", "model.safetensors"
TEMPLATES: dict[Side, tuple[str, ...]] = {
    "query": ("{text}",),
    "document": ("{text}", "{title} [SEP] {text}"),
}


def to_dpr(folder: Path) -> None:
    """Convert two towers that `save_encoder` wrote, in a folder that is not published yet.

    DPR's towers are BERTs with CLS pooling and nothing after it, for texts that DPR's encoders can build.
    Any other encoder is not changed, because the stock class `auto` reads only BERT's format.
    """
    if _can_convert(folder):
        for side, name in TOWERS.items():
            _rename(folder / name, side)


def is_dpr(tower: Path) -> bool:
    """Whether a tower's folder has DPR's format."""
    return (read_json_object(tower / CONFIG) or {}).get("model_type") == "dpr"


def weights_sha256(weights: Path) -> str:
    """The hash of a file of weights; weights in DPR's format are hashed under BERT's names."""
    if not is_dpr(weights.parent):
        return sha256_file(weights)
    tensors, about = _read(weights)
    prefixes = re.compile("|".join(map(re.escape, DPR_PREFIX.values())))
    return hashlib.sha256(save({prefixes.sub("", name): t for name, t in tensors.items()}, about)).hexdigest()


def _read(weights: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(weights, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def _can_convert(folder: Path) -> bool:
    family = family_of(folder)
    if not isinstance(family, Transformer) or family.tied or family.pooling != "cls":
        return False
    if family.normalize or family.projection:
        return False
    if any(family.tokenization.side(side).template not in of_side for side, of_side in TEMPLATES.items()):
        return False
    towers = [folder / name for name in TOWERS.values()]
    are_berts = all(read_json(tower / CONFIG)["model_type"] == "bert" for tower in towers)
    return are_berts and all((tower / WEIGHTS).exists() for tower in towers)


def _rename(tower: Path, side: Side) -> None:
    [architecture] = [name for name, of in DPR_FOLDER.items() if of == side]
    tensors, about = _read(tower / WEIGHTS)
    save_file({DPR_PREFIX[side] + name: tensor for name, tensor in tensors.items()}, tower / WEIGHTS, about)
    config = read_json(tower / CONFIG)
    write_json(tower / CONFIG, {**config, "model_type": "dpr", "architectures": [architecture]})
