"""DPR's form of a pair of towers: what Pyserini's stock class `dpr` loads, by Hugging Face's DPRQuestionEncoder and DPRContextEncoder.

A run's pair is exported in it; training and its checkpoints know BERT's form alone. Only names differ, in config.json and in the header of
the weights. So the way back is exact, and a pair in either form has one hash. BERT's pooler stays, as in DPR's own releases; no vector
passes through it.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, BinaryIO

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.checkpoint import TOWERS, family_of
from pyserini_ance.encoders.released import DPR_FOLDER, DPR_PREFIX
from pyserini_ance.storage.files import read_json, read_json_object, sha256_file, write_json

CONFIG, WEIGHTS = "config.json", "model.safetensors"
TEMPLATES: dict[Side, tuple[str, ...]] = {"query": ("{text}",), "document": ("{text}", "{title} [SEP] {text}")}
BYTES_AT_ONCE = 1 << 22
METADATA = "__metadata__"  # beside the names of weights in their header


def to_dpr(folder: Path) -> None:
    """Rename a pair that `save_encoder` wrote, in a folder that is not published yet.

    DPR is a pair of BERTs, by their first token and nothing behind it, for texts that DPR's encoders can write; what is anything else
    stays as it is, for stock class `auto` reads BERT's form alone.
    """
    if _has_dpr_form(folder):
        for side, name in TOWERS.items():
            _rename(folder / name, side)


def is_dpr(tower: Path) -> bool:
    return (read_json_object(tower / CONFIG) or {}).get("model_type") == "dpr"


def weights_sha256(weights: Path) -> str:
    """The hash of a file of weights, under BERT's names where it has DPR's."""
    if not is_dpr(weights.parent):
        return sha256_file(weights)
    with open(weights, "rb") as file:
        query, document = DPR_PREFIX.values()
        names = {name.removeprefix(query).removeprefix(document): where for name, where in _read_header(file).items()}
        digest = hashlib.sha256(_as_header(names))
        while part := file.read(BYTES_AT_ONCE):
            digest.update(part)
    return digest.hexdigest()


def _has_dpr_form(folder: Path) -> bool:
    family = family_of(folder)
    if family.kind != "transformer" or family.tied or family.pooling != "cls" or family.l2 or family.projection:
        return False
    if any(family.tokenization.side(side).template not in of_side for side, of_side in TEMPLATES.items()):
        return False
    towers = [folder / name for name in TOWERS.values()]
    return all(read_json(tower / CONFIG)["model_type"] == "bert" and (tower / WEIGHTS).exists() for tower in towers)


def _rename(tower: Path, side: Side) -> None:
    [architecture] = [name for name, of in DPR_FOLDER.items() if of == side]
    renamed = tower / f"{WEIGHTS}.tmp"
    with open(tower / WEIGHTS, "rb") as file, open(renamed, "wb") as out:
        header = _read_header(file)
        out.write(_as_header({name if name == METADATA else DPR_PREFIX[side] + name: where for name, where in header.items()}))
        shutil.copyfileobj(file, out, BYTES_AT_ONCE)
    renamed.replace(tower / WEIGHTS)
    write_json(tower / CONFIG, {**read_json(tower / CONFIG), "model_type": "dpr", "architectures": [architecture]})


def _read_header(file: BinaryIO) -> dict[str, Any]:
    return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def _as_header(names: dict[str, Any]) -> bytes:
    """As safetensors writes it: its length, compact JSON, blanks to a multiple of 8 (huggingface/safetensors, README.md, "Format")."""
    text = json.dumps(names, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
