"""Settings that a recipe leaves out, from the files of the encoder that it starts from."""

from pathlib import Path
from typing import Any

from pyserini_ance.storage.files import read_json_object

SIDE_FILE = "pyserini_ance.json"  # in a saved folder: the settings that Hugging Face's files lack
# Settings that name weights: those of a saved encoder are next to its side file.
START_KEYS = ("model", "document_model", "base")
# Settings that may differ between a checkpoint and the recipe that starts from it.
MAY_DIFFER = (*START_KEYS, "tied", "head", "dropout")
# Settings that say what is made of a saved encoder that a recipe starts from. A checkpoint that training
# continues from was made with them.
START_SETTINGS = ("layers",)
OF_PASSAGES = ("special_tokens", "pad_passages")  # only with several passages


def saved_settings(folder: Path, values: dict[str, Any], kind: str) -> dict[str, Any]:
    """The settings of the encoder of `kind` that this package saved in `folder`, to complete `values`; {} if
    there is none. What is made of an encoder in training is not among them."""
    file = folder / SIDE_FILE
    saved = (read_json_object(file) if file.is_file() else None) or {}
    if saved.get("kind") != kind:
        return {}
    own = {*MAY_DIFFER, *START_SETTINGS} - {"tied"}
    saved = {key: value for key, value in saved.items() if key not in own}
    tokenization = values.get("tokenization")
    given = tokenization.get("document") if isinstance(tokenization, dict) else None
    if isinstance(given, dict) and "passages" in given:
        documents = saved["tokenization"]["document"]
        kept = {key: value for key, value in documents.items() if key not in OF_PASSAGES}
        saved["tokenization"] = {**saved["tokenization"], "document": kept}
    return saved


def completed(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """`values`, and at any depth the `defaults` of keys that they lack."""
    made = dict(values)
    for key, default in defaults.items():
        value = made.setdefault(key, default)
        if isinstance(value, dict) and isinstance(default, dict):
            made[key] = completed(value, default)
    return made
