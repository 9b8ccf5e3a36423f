"""Whether a model of the Hugging Face hub can be had: by one request, where its libraries retry for long."""

HUB_SECONDS = 10  # until the hub must have answered


def check_hub(model: str, key: str = "encoder.model") -> None:
    """Raise ConnectionError, naming `key`, if the hub's `model` is neither in the local cache nor can the hub
    be reached.

    One request; an answer of any status will do, because transformers explains the others well.
    """
    from huggingface_hub import constants, get_session, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(model, "config.json"), str):
        return
    try:
        get_session().head(f"{constants.ENDPOINT}/{model}/resolve/main/config.json", timeout=HUB_SECONDS)
    except Exception as error:  # of whatever HTTP library this version of huggingface_hub has
        raise ConnectionError(
            f"{key} {model!r} is no folder here, it is not in the cache {constants.HF_HUB_CACHE}, "
            f"and {constants.ENDPOINT} cannot be reached ({error}). Connect this machine to a network, or "
            "download the model elsewhere and pass its folder"
        ) from error
