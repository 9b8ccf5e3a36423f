"""Another dense retriever as teacher: a larger one, or the same one before layers were taken from it."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from pyserini_ance.data.collection import Side, Texts
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.config import SIDE_FILE, EncoderConfig
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.encoders.tokenization import TextTokenizer, token_folder, token_store
from pyserini_ance.encoders.towers import TwoTower
from pyserini_ance.negatives.snapshot import PAIRS_PER_BLOCK, TEACHER_VECTORS
from pyserini_ance.negatives.teachers.base import Pairs, Teacher, TeacherContext
from pyserini_ance.recipe.components import SettingError, expected
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.vectors.encoding import ShardedVectors

RUN_MODEL = "model"  # the encoder in a run directory
LABELS: dict[Side, str] = {"query": "queries of the teacher", "document": "documents of the teacher"}


class EncoderTeacher(Teacher):
    """Dot products of another encoder's vectors, with its own tokenizer and lengths; or the vectors.

    All documents are encoded once per run, the training queries once per refresh; for the loss
    `embed_distill` once per run. Documents are not split into passages: the teacher reads the beginning of a
    long one.
    """

    kind: Literal["encoder"] = "encoder"
    encoder: Annotated[
        Path | EncoderConfig | None, expected("a folder, or the keys of `encoder:`", EncoderConfig)
    ] = None
    """The folder of an encoder that this package saved, or a run directory, whose model is taken; or the
    settings of any other encoder, as in the recipe's `encoder:`. null, with `trainable: query_tower`: the
    document tower, which reads queries too, as `tokenization.query` says."""

    @property
    def files(self) -> tuple[Path, ...]:
        return (self._saved(self.encoder) / SIDE_FILE,) if isinstance(self.encoder, Path) else ()

    def check_data(self, anchor_set: AnchorSet) -> None:
        try:
            if self.encoder is not None:
                self._load("cpu")
        except ValueError as error:
            raise ValueError(f"teacher: {error}") from error

    def score(self, pairs: Pairs, context: TeacherContext) -> np.ndarray:
        snapshot = context.snapshot
        encoder = self._load(snapshot.device, snapshot.model)
        documents = self.vectors("document", context, encoder)
        rows, positions = np.unique(pairs.queries, return_inverse=True)
        tokens = _tokens(encoder, "query", snapshot.split.queries, context)
        queries = snapshot.encode_some(encoder, tokens, rows, "query", LABELS["query"])
        scores = np.empty(len(pairs), np.float32)
        for start in range(0, len(pairs), PAIRS_PER_BLOCK):
            block = slice(start, start + PAIRS_PER_BLOCK)
            own, others = queries[positions[block]], documents[pairs.documents[block]]
            scores[block] = np.einsum("pd,pd->p", own, others)
        return scores

    def _load(self, device: str, student: Path | None = None) -> Encoder:
        if self.encoder is None:
            assert student is not None, "the stage has been checked"
            whole = load_encoder(student)
            tower, own = whole.towers.documents, whole.tokenizer.tokenizers["document"]
            settings = whole.config.tokenization.limited(tower.longest_input)
            config = whole.config.model_copy(update={"tied": True, "tokenization": settings})
            return Encoder(config, TwoTower(tower), TextTokenizer(own, settings), device)
        if isinstance(self.encoder, Path):
            return load_encoder(self._saved(self.encoder), device)
        return initial_encoder(self.encoder, 0, device)

    def vectors(self, side: Side, context: TeacherContext, encoder: Encoder | None = None) -> ShardedVectors:
        """(N, D) float32 of all documents, or of the training queries, memory-mapped; an interrupted encoding
        continues."""
        snapshot = context.snapshot
        encoder = encoder or self._load(snapshot.device, snapshot.model)
        texts = snapshot.collection.documents if side == "document" else snapshot.split.queries
        weights = snapshot.world.on_main(lambda: encoder.digest())
        name = getattr(self.encoder, "model", self.encoder or "documents")
        context.origins[f"{self.kind} {name}"] = weights
        key = {"weights": weights, "texts": texts.digest, "precision": snapshot.precision}
        of_side = "" if side == "document" else f"-{side}"
        folder = snapshot.scratch / f"{TEACHER_VECTORS}-{weights[:16]}-{snapshot.precision}{of_side}"
        tokens = _tokens(encoder, side, texts, context)
        return snapshot.encode_all(encoder, tokens, folder, key, LABELS[side], side=side)

    @staticmethod
    def _saved(folder: Path) -> Path:
        """The folder that holds the encoder. Raises FileNotFoundError if there is none."""
        for candidate in (folder.expanduser(), folder.expanduser() / RUN_MODEL):
            if (candidate / SIDE_FILE).is_file():
                return candidate
        raise FileNotFoundError(
            f"teacher.encoder {folder} holds no encoder saved by pyserini_ance ({SIDE_FILE} is missing) and "
            "is no finished run; describe any other encoder by `teacher.encoder.model` and its other keys"
        )


def target_vectors(stage: Stage, dimension: int, context: TeacherContext) -> dict[str, ShardedVectors]:
    """The teacher's vectors (N, D) of all texts that a term with `embed_distill` may draw, by term.

    Raises SettingError for vectors that have not `dimension` numbers.
    """
    targets = {}
    for name, term in stage.terms.items():
        if (side := term.distilled_side) is None:
            continue
        assert isinstance(term.teacher, EncoderTeacher), "the term has been checked"
        targets[name] = term.teacher.vectors(side, context)
        if (size := targets[name].shape[1]) != dimension:
            raise SettingError(
                f"stages.<stage>.terms.{name}.teacher gives vectors of {size} numbers, the encoder of "
                f"{dimension}; set encoder.projection: {size}, or for the teacher's first numbers "
                f"teacher.encoder.truncate_dim: {dimension}"
            )
    return targets


def _tokens(encoder: Encoder, side: Side, texts: Texts, context: TeacherContext) -> TokenStore:
    folder = token_folder(context.cache, encoder.tokenizer.key(side), texts)
    build = partial(token_store, encoder.tokenizer, side, texts, folder, LABELS[side])
    context.snapshot.world.on_main(lambda: build() and None)
    return build()
