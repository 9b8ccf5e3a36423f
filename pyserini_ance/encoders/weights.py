"""Weights by transformers: files that would be ignored, are damaged or do not fit are refused."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open

from pyserini_ance.encoders.hub import find_model, model_file
from pyserini_ance.storage.files import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ADAPTER = "adapter_config.json"  # of peft


def quiet_loading() -> None:
    """Silence transformers' reports on loading; loading checks for missing and unexpected weights."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def adapter_base(source: str) -> str | None:
    """The model to which peft's adapter in a folder or on the hub is added; None for any other model."""
    # A folder of weights on the hub has a config.json; nobody is asked about an adapter next to it.
    file = model_file(source, ADAPTER, download=model_file(source, "config.json") is None)
    base = file and read_json(file)["base_model_name_or_path"]
    if file and base is None:  # peft of a model in memory
        raise ValueError(f"{file}: base_model_name_or_path is null; name the base model there")
    return None if base is None else str(base)


def found_base(source: str) -> str | None:
    """The `adapter_base`, which is looked for: raises as `find_model`."""
    base = adapter_base(source)
    return base and find_model(base, f"{source}: {ADAPTER}: base_model_name_or_path")


def config_dict(source: str) -> dict[str, Any]:
    """The configuration of a model of transformers, or of the base of peft's adapter."""
    from transformers import PreTrainedConfig

    return PreTrainedConfig.get_config_dict(found_base(source) or source)[0]


def check_weight_files(source: str, takes_adapters: bool = False) -> None:
    """Check a model's folder or hub name before its weights are loaded.

    Raises ValueError for an adapter, alone or next to its base model, unless the reader takes it, and
    RuntimeError for a damaged file of weights, for example a truncated one.
    """
    if not takes_adapters and adapter_base(source):
        raise ValueError(
            f"{source} has an adapter ({ADAPTER}), which is not loaded here; merge it into its base model "
            "first (peft: merge_and_unload), or for the base model remove the adapter's files from a copy"
        )
    for path in sorted(Path(source).rglob("*.safetensors")):
        try:
            with safe_open(path, framework="pt"):  # compares the file's size with its header
                pass
        except SafetensorError as error:
            cure = "copy it again. `train --resume` exports a run's model again"
            raise RuntimeError(f"{path} is damaged ({error}); {cure}") from error


def load_weights(loader: Any, source: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """A model in fp32 by transformers' class `loader`, from `source` or from the `state_dict` in `options`;
    and transformers' report on missing and unexpected weights.

    Raises RuntimeError for weights of other sizes than the configuration's.
    """
    quiet_loading()
    path = None if "state_dict" in options else source
    # By default, transformers 5 uses the precision in which the weights were saved.
    options |= {"dtype": torch.float32, "output_loading_info": True, "ignore_mismatched_sizes": True}
    model, report = loader.from_pretrained(path, **options)
    check_sizes(report, source)
    if "key_mapping" in options:  # else it would be saved under the names of the release
        model._weight_conversions = None
    return model, report


def check_sizes(report: Mapping[str, Any], source: str) -> None:
    """Raise RuntimeError if, by transformers' report, weights do not have the sizes of the configuration."""
    if mismatched := sorted(report["mismatched_keys"]):
        name, found, expected = mismatched[0]
        raise RuntimeError(
            f"{source}: {len(mismatched)} weights do not have the sizes of config.json, first {name}: "
            f"{tuple(found)}, expected {tuple(expected)}; the files are of two models: fetch both again"
        )


def check_vocabulary(
    tokenizer: "PreTrainedTokenizerBase", models: Iterable[Any], name: str, read: Iterable[int] = ()
) -> None:
    """Raise ValueError if a tokenizer has ids for which one of the `models` of transformers has no embedding.

    Special tokens that are not put around texts need none (Gemma 3's of an image), but those that are `read`.
    """
    unread = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    unread -= {*tokenizer("")["input_ids"], tokenizer.pad_token_id, *read}
    ids = max(set(tokenizer.get_vocab().values()) - unread) + 1
    for model in models:
        embeddings = model.get_input_embeddings()
        if isinstance(embeddings, torch.nn.Embedding) and embeddings.num_embeddings < ids:
            raise ValueError(
                f"the tokenizer of {name} has ids up to {ids - 1}, but the model has embeddings for "
                f"{embeddings.num_embeddings} ids; use the tokenizer that it was trained with, or save the "
                f"model after model.resize_token_embeddings({ids})"
            )
