"""Names of models: of folders, of Python packages, and of the Hugging Face hub, which gets one request each.

The hub's own libraries retry for long.
"""

import importlib.util
from importlib.metadata import packages_distributions
from pathlib import Path

from pyserini_ance.recipe.components import did_you_mean, similar_name

SIDE_FILE = "pyserini_ance.json"  # in a saved folder: the settings that sentence-transformers' files lack
HUB_SECONDS = 10  # until the hub must have answered


def resolve_model(model: str, key: str = "encoder.model") -> str:
    """Convert a recipe's `model` to a folder or hub name that transformers can load.

    Raises FileNotFoundError, naming `key`, for a package or folder that does not exist.
    """
    if model.startswith("python:"):
        package, _, inner = model.removeprefix("python:").partition("/")
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError as error:
            if not package.startswith(f"{error.name}."):  # the package around it
                raise
            spec = None
        if spec is None or spec.origin is None:
            near, hint = did_you_mean(package, packages_distributions()), package.replace("_", "-")
            raise FileNotFoundError(
                f"{key} {model!r}: no Python package {package!r} is installed{near}; try `pip install {hint}`"
            )
        if not (folder := Path(spec.origin).parent / inner).is_dir():
            raise FileNotFoundError(f"{key} {model!r}: the package has no folder {folder}")
        return str(folder)
    if not is_local(model):
        return model
    path = Path(model).expanduser()
    if not path.exists():
        cure = f"the working directory is {Path.cwd()}; expected a model folder or a hub name"
        raise FileNotFoundError(f"{key} {model!r}: no such folder{similar_name(path)}; {cure}")
    return str(path)


def is_local(model: str) -> bool:
    """Whether `model` names a folder or file of this machine, which need not exist.

    Hub names have at most one slash. A name in a folder that exists, such as runs/demo-teacher where there is
    runs/, is a path.
    """
    if model.startswith("python:"):
        return False
    path = Path(model).expanduser()
    in_a_folder = "/" in model and path.parent.is_dir()
    return path.exists() or in_a_folder or model.startswith((".", "/", "~")) or model.count("/") > 1


def find_model(model: str, key: str = "encoder.model") -> str:
    """The folder or hub name of `model`; what this package saved is downloaded, and is a folder.

    Raises ConnectionError, naming `key`, if the hub's `model` is neither in the local cache nor can the hub
    be reached. An answer of any status will do, because transformers explains the others well.
    """
    if is_local(name := resolve_model(model, key)):
        return name
    from huggingface_hub import constants, try_to_load_from_cache

    # A model of sentence-transformers may have its configuration in a folder.
    files = ("config.json", "modules.json", "adapter_config.json")
    is_cached = any(isinstance(try_to_load_from_cache(name, file), str) for file in files)
    if not is_cached and (error := _unreachable(name, "config.json")):
        raise ConnectionError(
            f"{key} {model!r} is no folder here, it is not in the cache {constants.HF_HUB_CACHE}, "
            f"and {constants.ENDPOINT} cannot be reached ({error}). Connect this machine to a network, or "
            "download the model elsewhere and pass its folder"
        ) from error
    return saved_model(name, download=True)


def saved_model(name: str, download: bool = False) -> str:
    """The folder, in the cache, of a hub model that this package has saved; other names stay. download: as
    for `model_file`, and all of the model."""
    if is_local(name) or not model_file(name, SIDE_FILE, download):
        return name
    from huggingface_hub import snapshot_download

    return snapshot_download(name, local_files_only=not download)


def _unreachable(model: str, name: str) -> Exception | None:
    """The error of one request for a file of a model; None if the hub answers."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(f"{constants.ENDPOINT}/{model}/resolve/main/{name}", timeout=HUB_SECONDS)
    except Exception as error:  # of whatever HTTP library this version of huggingface_hub has
        return error
    return None


def model_file(model: str, name: str, download: bool = False) -> Path | None:
    """A file of a model: in its folder, or in the hub's cache; None if there is none.

    download: ask the hub, with one request, for a file of which the cache knows nothing.
    """
    if Path(model).exists():
        return file if (file := Path(model) / name).is_file() else None
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    try:
        cached = try_to_load_from_cache(model, name)
    except ValueError:  # not the form of a hub name
        return None
    if isinstance(cached, str):
        return Path(cached)
    if cached is not None or not download or constants.HF_HUB_OFFLINE or _unreachable(model, name):
        return None  # the cache knows that the model has no such file, or nobody may ask
    try:
        return Path(hf_hub_download(model, name))
    except HfHubHTTPError:  # there is none, which the cache knows from now on; or it is not ours to read
        return None
