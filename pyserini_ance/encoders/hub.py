"""Models of the Hugging Face hub: whether one can be had, and its files, by one request each.

The hub's own libraries retry for long.
"""

from pathlib import Path

from pyserini_ance.encoders.family import is_local, resolve_model

HUB_SECONDS = 10  # until the hub must have answered


def find_model(model: str, key: str = "encoder.model") -> str:
    """The folder or hub name of `model`, as `resolve_model` gives it, after `check_hub` of a hub name."""
    name = resolve_model(model, key)
    if not is_local(name):
        check_hub(name, key)
    return name


def check_hub(model: str, key: str = "encoder.model") -> None:
    """Raise ConnectionError, naming `key`, if the hub's `model` is neither in the local cache nor can the hub
    be reached.

    One request; an answer of any status will do, because transformers explains the others well.
    """
    from huggingface_hub import constants, get_session, try_to_load_from_cache

    # A model of sentence-transformers may have its configuration in a folder.
    if any(isinstance(try_to_load_from_cache(model, name), str) for name in ("config.json", "modules.json")):
        return
    try:
        get_session().head(f"{constants.ENDPOINT}/{model}/resolve/main/config.json", timeout=HUB_SECONDS)
    except Exception as error:  # of whatever HTTP library this version of huggingface_hub has
        raise ConnectionError(
            f"{key} {model!r} is no folder here, it is not in the cache {constants.HF_HUB_CACHE}, "
            f"and {constants.ENDPOINT} cannot be reached ({error}). Connect this machine to a network, or "
            "download the model elsewhere and pass its folder"
        ) from error


def model_file(model: str, name: str, download: bool = False) -> Path | None:
    """A file of a model: in its folder, or in the hub's cache; None if there is none.

    download: ask the hub, with one request, for a file of which the cache knows nothing.
    """
    if Path(model).exists():
        return file if (file := Path(model) / name).is_file() else None
    from huggingface_hub import constants, get_session, hf_hub_download, try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(model, name)
    except ValueError:  # not the form of a hub name
        return None
    if isinstance(cached, str):
        return Path(cached)
    if cached is not None or not download or constants.HF_HUB_OFFLINE:
        return None  # the cache knows that the model has no such file, or nobody may ask
    url = f"{constants.ENDPOINT}/{model}/resolve/main/{name}"
    try:
        answer = get_session().head(url, timeout=HUB_SECONDS)
    except Exception:  # of whatever HTTP library this version of huggingface_hub has
        return None
    return Path(hf_hub_download(model, name)) if answer.status_code < 400 else None
