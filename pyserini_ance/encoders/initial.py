"""The encoder that a recipe starts from: a model of sentence-transformers, a release, a language model, or an
encoder that this package has saved.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders import modules, released
from pyserini_ance.encoders.adapters import adapters_of, merge_adapters, require_package
from pyserini_ance.encoders.ance import read_ance
from pyserini_ance.encoders.config import START_SETTINGS, EncoderConfig, is_saved, keys_of, tower_folder
from pyserini_ance.encoders.dpr import read_dpr
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hub import find_model, is_local, model_file, resolve_model
from pyserini_ance.encoders.load_save import check_settings, encoder_of, load_tokenizer, saved_layers
from pyserini_ance.encoders.sentence_transformers_files import (
    check_similarity,
    modules_of,
    text_settings,
    tower_source,
)
from pyserini_ance.encoders.tokenization import TextTokenizer, end_with_eos, surround
from pyserini_ance.encoders.towers import attend_both_ways, reduce_layers
from pyserini_ance.encoders.weights import adapter_base, check_weight_files, config_dict, found_base

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model")


def initial_encoder(
    config: EncoderConfig, seed: int, device: str = "cpu", side: Side | None = None
) -> Encoder:
    """The encoder that a recipe starts from. Layers that its weights lack by design are drawn from `seed`.

    With `side`, the one tower of a tied encoder may be DPR's of that side.
    """
    of_towers = [sorted(SIDES, key=lambda one: one != side)] if config.tied else [[one] for one in SIDES]
    sources = [_source(config, sides[0]) for sides in of_towers]
    tokenizers = [_tokenizer(config, one, sides[0]) for one, sides in zip(sources, of_towers, strict=True)]
    layers: modules.Layers = {}
    for source, sides, tokenizer in zip(sources, of_towers, tokenizers, strict=True):
        # One seed for both towers: with equal weights, the drawn layers are equal, too.
        layers |= _layers(config, source, sides, tokenizer, torch.Generator().manual_seed(seed))
    return encoder_of(config, layers, tokenizers, device)


def initial_tokenizer(config: EncoderConfig) -> TextTokenizer:
    """The tokenizer of `initial_encoder`, without a look at the weights."""
    tokenizers = [_tokenizer(config, _source(config, s), s) for s in (SIDES[:1] if config.tied else SIDES)]
    return TextTokenizer(tokenizers[0], config.tokenization, tokenizers[-1])


def _tokenizer(config: EncoderConfig, source: str, side: Side) -> "PreTrainedTokenizerBase":
    """A tower's tokenizer. A decoder that becomes an encoder reads an end-of-sequence token, the last one."""
    tokenizer = load_tokenizer(_tokenizer_source(config, source, side))
    listed = modules_of(source, side)
    if config.pooling == "lasttoken" and not is_saved(source) and not listed:
        end_with_eos(tokenizer)
    if config.start(side).layers == () or (listed and listed[0].name == "StaticEmbedding"):
        surround(tokenizer, [], [])
    if tokenizer.pad_token is None:  # sentence-transformers needs one; masks hide it
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    return tokenizer


def _source(config: EncoderConfig, side: Side) -> str:
    """The folder or hub name from which a side's tower is built.

    Raises ValueError for a saved encoder with settings other than those of `config`, and for two towers if
    `config` is tied; also what `check_weight_files` and `found_base` raise.
    """
    model = find_model(config.model_of(side))
    _check_left_out(config, side, model)
    if is_saved(model):
        if adapters_of(model):
            raise ValueError(
                f"{model} holds adapters alone; set encoder.model to RUN/model, in which they are merged, or "
                "start from it with a stage's init_from"
            )
        read = [one for one in SIDES if config.model_of(one) == config.model_of(side)]
        check_settings(config, Path(model), START_SETTINGS, read)
        tower = str(tower_folder(model, side))
    else:
        is_pair = (pair := Path(model) / released.TEVATRON_FOLDER[side]).is_dir()
        tower = str(pair) if is_pair else model
        first, other = (modules_of(model, each)[:1] for each in SIDES)
        if config.tied and (is_pair or first != other):
            raise ValueError(f"{model} has two towers; set encoder.tied=false")
    check_weight_files(tower, takes_adapters=True)
    if found_base(tower):
        require_package("peft", f"encoder.model {tower}")
    return tower


def _tokenizer_source(config: EncoderConfig, source: str, side: Side) -> str:
    """The folder or hub name of a tower's tokenizer: `base`, the weights' folder, or (Tevatron) its parent.

    Raises FileNotFoundError for a folder without tokenizer files, for which transformers creates an empty
    tokenizer.
    """
    if config.base is not None:
        return resolve_model(config.base)
    source = tower_source(source, side)
    path = Path(source)
    if not path.exists():
        names = ("tokenizer_config.json", "tokenizer.json")
        has_own = any(model_file(source, name, download=True) for name in names)
        return source if has_own else adapter_base(source) or source
    for folder in (path, path.parent) if path.name in released.TEVATRON_FOLDER.values() else (path,):
        if any(path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)):
            return str(folder)
    if base := adapter_base(source):
        return base
    cure = "pass a folder or hub model that has it: encoder.base=NAME (for BERT releases: bert-base-uncased)"
    raise FileNotFoundError(f"{source} has no tokenizer; {cure}")


def _layers(
    config: EncoderConfig,
    source: str,
    sides: Sequence[Side],
    tokenizer: "PreTrainedTokenizerBase",
    generator: torch.Generator,
) -> modules.Layers:
    """The modules of a tower for each of its sides.

    Vectors do not use BERT's pooler, but the hash of the weights includes it: one that is lacking is drawn.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        settings = config.modules(sides[0])
        if is_saved(source):
            layers = saved_layers(Path(source), sides)
        elif modules_of(source, sides[0]):
            released.check_code(source, config_dict(tower_source(source, sides[0])))
            layers = modules.load_modules(source, sides)
        else:
            own, vectors = _foreign_modules(config, source, sides[0], tokenizer)
            layers, settings = {side: list(own) for side in sides}, {**vectors, **settings}
        if adapter_base(tower_source(source, sides[0])):
            for own in layers.values():
                merge_adapters(nn.ModuleList(own))
        layers = modules.complete(layers, settings, generator, source)
    first: Any = layers[sides[0]][0]
    chosen, of_side = config.start(sides[0]).layers, getattr(config, sides[0])
    key = "encoder.layers" if of_side.layers is None else f"encoder.{sides[0]}.layers"
    if chosen is not None and not hasattr(first, "model"):
        raise ValueError(f"{key} is {list(chosen)}, but {source} has no layers; remove it")
    if chosen == ():
        layers = modules.static_layers(layers, tokenizer, f"{key} is [], but {source}")
    elif chosen is not None:
        first.model = reduce_layers(first.model, chosen, source, key)
    if config.bidirectional:
        attend_both_ways(getattr(layers[sides[0]][0], "model", None), source)
    if not is_saved(source):
        check_similarity(source, all("Normalize" in modules.names_of(own) for own in layers.values()))
    return layers


def _foreign_modules(
    config: EncoderConfig, source: str, side: Side, tokenizer: "PreTrainedTokenizerBase"
) -> tuple[list[nn.Module], Mapping[str, Any]]:
    """The modules of a release, or of a language model: a Transformer, a Pooling, perhaps a head; and the
    settings with which a release computes vectors."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    is_file = Path(source).is_file()
    if is_file and config.tied:
        raise ValueError(f"{source} contains two towers; set encoder.tied=false")
    written = {} if is_file else config_dict(source)
    form = released.DPR if is_file else released.form_of(source, written)
    head: list[nn.Module] = []
    if form is released.DPR:
        base = config.base and resolve_model(config.base)
        first = modules.transformer_around(read_dpr(source, side, base), tokenizer)
    elif form is not None and form.has_ance_head:
        is_certain = (written.get("architectures") or [""])[0] in form.architectures
        needs_head = is_certain and form is not released.SEED
        model, head = read_ance(source, form, config.start(side).projection, needs_head)
        first = modules.transformer_around(model, tokenizer)
    else:
        if config.pooling is None and released.is_decoder(written):
            raise ValueError(
                f"{source} is a decoder; set encoder.pooling, or --encoder-settings pooling, to lasttoken"
            )
        released.check_code(source, written)
        first = modules.transformer(source, tokenizer)
        if linear := released.read_pooler(Path(source), side, config.tied):
            head = [modules.dense_of(**linear)]
    is_whole = form is not None and (bool(head) or not form.has_ance_head)
    if form is not None:
        released.warn_about_settings(form, source, config, None if is_whole else form.vocabulary)
    pooling = Pooling(first.get_embedding_dimension(), config.pooling or "cls")
    return [first, pooling, *head], form.vectors if form is not None and is_whole else {}


def _check_left_out(config: EncoderConfig, side: Side, source: str) -> None:
    """Raise ValueError if the settings were read before the files of the hub that say what they leave out."""
    name, given = config.model_of(side), config.model_dump(exclude_unset=True)
    if is_local(resolve_model(name)):
        return
    if not is_saved(source):
        text_settings(source, given=keys_of(given), download=True)
    if EncoderConfig.model_validate(given) != config:
        raise ValueError(
            f"the hub's {name} was not in the cache when settings were read; it is now: start again"
        )
