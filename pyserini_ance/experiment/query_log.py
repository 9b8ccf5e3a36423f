"""Work that is done query by query: a folder that says what is asked, and keeps a line of each query as soon as it is done.

What was interrupted goes on after the last whole line; what others read of the result is written when all is there.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.storage.files import append_json_line, read_json_lines, read_json_object, sha256_file, sha256_json, write_json


@dataclass(frozen=True)
class QueryLog:
    folder: Path

    def begin(self, about: dict[str, Any], model: str) -> None:
        """`about`, of JSON values, and the weights of `model` decide the results. Raises FileExistsError when the folder holds others."""
        about = {**about, "weights": weights_digest(model)}
        path = self.folder / "about.json"
        known = read_json_object(path)
        if known is None and self.folder.exists() and any(self.folder.iterdir()):
            raise FileExistsError(f"{self.folder} holds other files; name another --output")
        for key in about if known else ():
            if known.get(key) != about[key]:
                raise FileExistsError(f"{self.folder} was made with {key} {known.get(key)}, not {about[key]}; name another --output, or remove it")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, about)

    def append(self, record: dict[str, Any]) -> None:
        append_json_line(self._lines, record)

    @property
    def records(self) -> dict[str, dict]:
        """By query, in the order in which they were done."""
        return {record["query"]: record for record in read_json_lines(self._lines)}

    @property
    def _lines(self) -> Path:
        return self.folder / "queries.jsonl"


def weights_digest(model: str) -> str | None:
    """Of all weights in a model's folder, which may be trained on under the same name; None for a name on a hub."""
    files = sorted(path for path in Path(model).glob("*") if path.suffix in (".safetensors", ".bin"))
    return sha256_json({path.name: sha256_file(path) for path in files}) if files else None
