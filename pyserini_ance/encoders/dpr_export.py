"""Export of two towers in DPR's format, which Pyserini's stock class `dpr` loads.

The format is that of Hugging Face's DPRQuestionEncoder and DPRContextEncoder. A run exports a pair in it
that sentence-transformers cannot express; training and checkpoints use BERT's format. The two differ only by
names in config.json and in the header of the weights, so the conversion is exact, and both formats have the
same hash. BERT's pooler is kept, as in DPR's own releases; vectors do not use it.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, BinaryIO

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
BYTES_PER_BLOCK = 1 << 22
METADATA = "__metadata__"  # the key in the header that is not the name of a weight


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
    with open(weights, "rb") as file:
        query, document = DPR_PREFIX.values()
        names = {
            name.removeprefix(query).removeprefix(document): position
            for name, position in _read_header(file).items()
        }
        digest = hashlib.sha256(_as_header(names))
        while block := file.read(BYTES_PER_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _can_convert(folder: Path) -> bool:
    family = family_of(folder)
    if (
        not isinstance(family, Transformer)
        or family.tied
        or family.pooling != "cls"
        or family.normalize
        or family.projection
    ):
        return False
    if any(family.tokenization.side(side).template not in of_side for side, of_side in TEMPLATES.items()):
        return False
    towers = [folder / name for name in TOWERS.values()]
    return all(
        read_json(tower / CONFIG)["model_type"] == "bert" and (tower / WEIGHTS).exists() for tower in towers
    )


def _rename(tower: Path, side: Side) -> None:
    [architecture] = [name for name, of in DPR_FOLDER.items() if of == side]
    renamed = tower / f"{WEIGHTS}.tmp"
    with open(tower / WEIGHTS, "rb") as file, open(renamed, "wb") as out:
        header = _read_header(file)
        names = {
            name if name == METADATA else DPR_PREFIX[side] + name: position
            for name, position in header.items()
        }
        out.write(_as_header(names))
        shutil.copyfileobj(file, out, BYTES_PER_BLOCK)
    renamed.replace(tower / WEIGHTS)
    write_json(
        tower / CONFIG, {**read_json(tower / CONFIG), "model_type": "dpr", "architectures": [architecture]}
    )


def _read_header(file: BinaryIO) -> dict[str, Any]:
    return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def _as_header(names: dict[str, Any]) -> bytes:
    """The header as safetensors writes it: length, compact JSON, blanks up to a multiple of 8 bytes.

    Source: huggingface/safetensors, README.md, "Format".
    """
    text = json.dumps(names, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
