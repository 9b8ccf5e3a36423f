"""`pyserini-ance publish`: upload a finished run's model, with its card, to the Hugging Face hub."""

import shlex
from pathlib import Path
from typing import Annotated

from typer import Argument

from pyserini_ance.commands import console, parsing

EXAMPLE = "pyserini-ance publish runs/demo-ance my-name/demo-ance"


@parsing.command(EXAMPLE)
def main(
    run: Annotated[Path, Argument(metavar="RUN", help="the directory of a finished run")],
    name: Annotated[str, Argument(metavar="NAME", help="the name on the hub, such as my-name/demo-ance")],
    private: Annotated[bool, parsing.flag("private", "make a new model private")] = False,
) -> None:
    """Upload a finished run's model, with its card, to the Hugging Face hub, where it replaces another."""
    console.begin()
    from huggingface_hub import HfApi, constants, get_session, get_token
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # but public

    from pyserini_ance.encoders.hub import HUB_SECONDS
    from pyserini_ance.reports.model_card import write_model_card
    from pyserini_ance.runs.any_encoder import encoder_source
    from pyserini_ance.runs.rundir import RunDir

    RunDir.find(run).check()
    validate_repo_id(name)
    if "/" not in name:
        parsing.refuse(f"{name!r} has no owner; pass OWNER/{name}")
    folder = Path(encoder_source(run))
    write_model_card(RunDir.find(run), name)
    try:
        if get_token() is None:
            raise RuntimeError("you are not logged in; call `hf auth login`, or set HF_TOKEN")
        get_session().head(constants.ENDPOINT, timeout=HUB_SECONDS)  # the library itself would retry for long
        api = HfApi()
        url = api.create_repo(name, private=private, exist_ok=True)
        before = ["*.json", "*.safetensors", "*.txt"]  # of the other model, which libraries would read
        said = "Upload by pyserini_ance"
        api.upload_folder(repo_id=name, folder_path=folder, commit_message=said, delete_patterns=before)
    except Exception as error:  # of whatever HTTP library this version of huggingface_hub has
        again = shlex.join(["pyserini-ance", "publish", str(run), name, *["--private"] * private])
        raise ConnectionError(
            f"{name} was not published: {error}\n{folder} is ready, with its card. When the cause is "
            f"gone, repeat: {again}"
        ) from error
    print(url)
