"""A resumable log of work done query by query: what is asked in `about.json`, one line per finished query.

Interrupted work continues after the last complete line. Files that other tools read are written at the end.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.storage.files import (
    append_json_line,
    read_json_lines,
    read_json_object,
    sha256_file,
    sha256_json,
    write_json,
)


@dataclass(frozen=True)
class QueryLog:
    """The log in `folder`: `about.json` and `queries.jsonl`."""

    folder: Path

    def begin(self, settings: dict[str, Any], model: str) -> None:
        """Start the log, or continue it.

        `settings` (JSON values) and the weights of `model` decide the results. Raises FileExistsError if the
        folder holds other files, or results of other settings.
        """
        settings = {**settings, "weights": weights_digest(model)}
        path = self.folder / "about.json"
        recorded = read_json_object(path)
        if recorded is None:
            if self.folder.exists() and any(self.folder.iterdir()):
                raise FileExistsError(f"{self.folder} holds other files; pass another --output")
        else:
            for key, value in settings.items():
                if recorded.get(key) != value:
                    raise FileExistsError(
                        f"{self.folder} was made with {key} {recorded.get(key)}, not {value}; pass "
                        "another --output, "
                        "or remove the folder"
                    )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, settings)

    def append(self, record: dict[str, Any]) -> None:
        """Add the record of one query, which has the key `query`."""
        append_json_line(self._lines, record)

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """The records by query, in the order in which the queries were finished."""
        return {record["query"]: record for record in read_json_lines(self._lines)}

    @property
    def _lines(self) -> Path:
        return self.folder / "queries.jsonl"


def weights_digest(model: str) -> str | None:
    """A digest of all weights in a model's folder, which may change under the same name; None for a name on a
    hub."""
    files = sorted(path for path in Path(model).glob("*") if path.suffix in (".safetensors", ".bin"))
    return sha256_json({path.name: sha256_file(path) for path in files}) if files else None
