"""A cross-encoder as teacher: it reads query and document together, which a dense retriever cannot."""

from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.encoders import cross_encoder_model
from pyserini_ance.encoders.hardware import Precision
from pyserini_ance.encoders.hub import model_file, resolve_model
from pyserini_ance.encoders.weights import check_weight_files
from pyserini_ance.negatives.teachers.base import Pairs, Teacher, TeacherContext, scored_once
from pyserini_ance.recipe.trained_teacher import TRAINED
from pyserini_ance.storage.files import sha256_file, sha256_json

KEY = "stages.<stage>.terms.<term>.teacher.model"
CONFIG = "config.json"


class CrossEncoderTeacher(Teacher):
    """Logits of a cross-encoder of sentence-transformers. A pair is scored once, in whatever run.

    The model reads the query's `text` and all fields of the document. It computes in `encoding.precision`.
    Source: Ren et al. 2021, arXiv:2110.07367 (RocketQA v2); Hofstätter et al. 2020, arXiv:2010.02666.
    """

    kind: Literal["cross_encoder"] = "cross_encoder"
    model: str
    """A cross-encoder that the run trains before this stage (`teachers.NAME`), a hub name, or a folder, such
    as RUN/teachers/NAME of another run."""
    length_tokens: PositiveInt | None = None
    """The maximum length of a pair; null: the model's own limit."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.model} if self.model.startswith(TRAINED) else ())

    @property
    def files(self) -> tuple[Path, ...]:
        return () if self.needs else (config_file(self.model),)

    names_or_paths = frozenset({"model"})

    def score(self, pairs: Pairs, context: TeacherContext) -> np.ndarray:
        snapshot = context.snapshot
        queries, documents = snapshot.split.queries.columns["text"], snapshot.collection.documents
        trained = self.model.removeprefix(TRAINED)
        if not self.needs:
            name = resolve_model(self.model, KEY)
        elif snapshot.teachers is not None:
            name = str(snapshot.teachers / trained)
        else:
            raise ValueError(
                f"teacher `cross_encoder` with model: {self.model} needs the run that trains it; pass its "
                f"folder instead: RUN/teachers/{trained}"
            )
        digest = snapshot.world.on_main(lambda: model_digest(name))
        context.origins[f"{self.kind} {trained}"] = digest
        precision = snapshot.precision
        identity = sha256_json([digest, self.length_tokens, precision])

        def score(query_rows: np.ndarray, document_rows: np.ndarray) -> np.ndarray:
            model = load_model(name, snapshot.device, self.length_tokens, precision, identity)
            rows = zip(query_rows.tolist(), document_rows.tolist(), strict=True)
            text = cross_encoder_model.record_text
            return model.logits([(queries[query], text(documents[row])) for query, row in rows])

        return scored_once(pairs, identity, context, score, "cross-encoder")


def config_file(model: str) -> Path:
    """The configuration of a cross-encoder, in its folder or in the hub's cache; the hub is asked for others.

    Raises FileNotFoundError if neither has it, and what `check_weight_files` raises.
    """
    check_weight_files(name := resolve_model(model, KEY))
    if (found := model_file(name, CONFIG, download=True)) is None:
        raise FileNotFoundError(
            f"{KEY} {model!r}: no folder with {CONFIG}, and no model of that name in the hub's cache or on "
            "the hub; check the name and the connection; a run with `teachers` trains cross-encoders: "
            "RUN/teachers/NAME"
        )
    return found


def model_digest(name: str) -> str:
    """A digest of the files in a model's folder; of a hub model, its name and its revision in the cache."""
    folder = Path(name)
    if folder.is_dir():
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return sha256_json({str(path.relative_to(folder)): sha256_file(path) for path in files})
    config = model_file(name, CONFIG)  # .../snapshots/REVISION/config.json
    return sha256_json([name, config and config.parent.name])


@lru_cache(maxsize=1)
def load_model(
    model: str, device: str, length_tokens: int | None, precision: Precision, identity: str
) -> cross_encoder_model.CrossEncoderModel:
    """Load the model once; later refreshes use it again, unless `identity` says that its files changed."""
    return cross_encoder_model.CrossEncoderModel(
        model, device, length_tokens=length_tokens, precision=precision
    )
