"""Train a cross-encoder on the positives and the mined negatives of a run.

sentence-transformers' CrossEncoderTrainer trains. The retriever can then be trained again with the
cross-encoder as teacher: the alternation of AR2 (Zhang et al. 2021, arXiv:2110.03611), whose ranker learns
from what the retriever finds; RocketQA v2 (Ren et al. 2021, arXiv:2110.07367) trains both at once.
"""

import logging
import math
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from pydantic import PositiveInt

from pyserini_ance.encoders.cross_encoder_model import require_sentence_transformers
from pyserini_ance.encoders.family import longest_input, quiet_transformers
from pyserini_ance.encoders.hardware import resolve_precision
from pyserini_ance.encoders.hub import find_model
from pyserini_ance.encoders.load_save import tower_folder
from pyserini_ance.negatives.teachers.cross_encoder import model_digest
from pyserini_ance.pipeline.mined_lists import MinedLists
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.teacher_training import TeacherTraining
from pyserini_ance.runs.checkpoint import ENCODER
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.files import read_json, sha256_json, write_json
from pyserini_ance.storage.publish import whole_folder

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments
    from torch import nn

log = logging.getLogger(__name__)
WARMUP_SHARE = 0.1  # as in sentence-transformers' examples
LOG_EVERY_STEPS = 10
CHECKPOINTS = 10  # of a training
ABOUT = "pyserini_ance_teacher.json"
OTHER_WEIGHTS = (
    "start from another cross-encoder or encoder: --model FOLDER-OR-HUB-NAME, in a recipe "
    "teachers.NAME.init_from={model: FOLDER-OR-HUB-NAME}"
)


class TeacherSettings(TeacherTraining):
    """How a cross-encoder is trained here: its recipe, with the length, the seed and the precision."""

    length_tokens: PositiveInt
    seed: int = 42
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"


def start_weights(run: RunDir) -> str:
    """The folder of the untrained encoder's query tower. Raises FileNotFoundError if it is missing."""
    encoder = run.checkpoint("initial", 0) / ENCODER
    if not encoder.is_dir():
        raise FileNotFoundError(
            f"{encoder} is missing, the encoder that the run started from; {OTHER_WEIGHTS}"
        )
    return str(tower_folder(encoder, "query"))


def default_length(recipe: Recipe) -> int:
    """A pair's tokens as the retriever reads them: its query's and its document's."""
    tokenization = recipe.encoder.tokenization
    return tokenization.query.length_tokens + tokenization.document.length_tokens


def train_teacher(
    lists: MinedLists,
    source: str,
    settings: TeacherSettings,
    device: str,
    folder: Path,
    about: dict[str, Any],
) -> None:
    """Train a cross-encoder from the weights `source` and write it to `folder`, whole or not at all.

    A training that was killed continues from its last checkpoint, of which there are ten, and ends with the
    same weights. They and its data are next to `folder`, in `.NAME.training`, until training has ended.

    source: an encoder, which gets a new head, or a cross-encoder with one score, which is trained further.
    about: what the lists are of; recorded next to the settings. Raises FileExistsError if `folder` is not
    empty, RuntimeError without sentence-transformers or if the loss is not finite, ValueError for weights
    that are of no cross-encoder, or if no query has a candidate.
    """
    require_sentence_transformers()
    if not len(lists.queries):
        raise ValueError("no training query has a candidate left to train on; raise top_k, or loosen filters")
    work = folder.with_name(f".{folder.name}.training")
    with whole_folder(folder) as output:
        quiet_transformers()
        start = find_model(source, "--model")
        steps = settings.steps_over(len(lists.queries))
        origin = sha256_json([settings.model_dump(), steps, lists.generations, model_digest(start)])
        for left in set(work.glob("*")) - {work / origin}:  # by a killed process, or for other settings
            shutil.rmtree(left)
        model = _new_model(start, settings, device, work / "start")
        _train(model, lists, settings, steps, device, work / "data", work / origin)
        model.save_pretrained(str(output), create_model_card=False)
        # Nothing here changes between equal trainings: the teacher's cache is keyed by the folder's content.
        recorded = {**settings.model_dump(), "steps": steps, "length_tokens": model.max_seq_length}
        mined = {"queries": len(lists.queries), "generations": lists.generations}
        versions = {name: version(name) for name in ("sentence-transformers", "transformers", "torch")}
        write_json(output / ABOUT, {**about, **mined, "settings": recorded, "versions": versions})
        shutil.rmtree(work)


def check_start(source: str) -> None:
    """Raise ValueError if the configuration of a folder or hub name says that it cannot score pairs."""
    from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, AutoConfig

    config = AutoConfig.from_pretrained(source)
    if type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise ValueError(f"{source} is a {config.model_type}, which cannot score pairs; {OTHER_WEIGHTS}")
    (architecture, *_) = config.architectures or [""]
    if architecture.endswith("ForSequenceClassification") and config.num_labels != 1:
        raise ValueError(f"{source} gives {config.num_labels} scores per pair, expected one; {OTHER_WEIGHTS}")


def _new_model(source: str, settings: TeacherSettings, device: str, scratch: Path) -> "CrossEncoder":
    """The weights at `source` with one score; a missing head is drawn by the seed."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderModelCardData
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    check_start(source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        # By default, transformers 5 uses the precision in which the weights were saved.
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            source, num_labels=1, dtype=torch.float32, output_loading_info=True
        )
    body = f"{model.base_model_prefix}."
    missing = [name for name in loading["missing_keys"] if name.startswith(body) and "pooler" not in name]
    if missing:
        raise ValueError(
            f"{source} lacks {len(missing)} weights of a {type(model).__name__}, such as {missing[0]}; "
            f"{OTHER_WEIGHTS}"
        )
    tokenizer = AutoTokenizer.from_pretrained(source)
    # An encoder's tokenizer may cut at the length of a query.
    tokenizer.model_max_length = min(settings.length_tokens, longest_input(model))
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    card = CrossEncoderModelCardData(local_files_only=True, generate_widget_examples=False)
    return CrossEncoder(
        str(scratch), device=device, model_card_data=card, model_kwargs={"dtype": torch.float32}
    )


def _train(
    model: "CrossEncoder",
    lists: MinedLists,
    settings: TeacherSettings,
    steps: int,
    device: str,
    data: Path,
    checkpoints: Path,
) -> None:
    from datasets import Dataset, disable_progress_bars
    from sentence_transformers.cross_encoder import CrossEncoderTrainer
    from transformers import PrinterCallback

    disable_progress_bars()
    is_listwise = settings.loss == "lambda"
    drawn = lists.draw(steps * settings.batch_queries, settings.num_negatives, settings.seed)
    examples = _lists(lists, drawn) if is_listwise else _pairs(lists, drawn)
    dataset = Dataset.from_generator(
        lambda: examples,
        cache_dir=str(data),
        # Hashing the generator itself would read the whole collection.
        fingerprint=sha256_json([settings.model_dump(), steps, lists.generations])[:32],
    )
    trainer = CrossEncoderTrainer(
        model=model,
        args=_arguments(settings, steps, device, checkpoints),
        train_dataset=dataset,
        loss=_loss(model, settings),
        callbacks=[_bar(steps)],
    )
    trainer.remove_callback(PrinterCallback)
    loss = trainer.train(resume_from_checkpoint=_last_checkpoint(checkpoints)).training_loss
    if not math.isfinite(loss):
        shutil.rmtree(checkpoints.parent)  # a training that goes on from these would end the same way
        raise RuntimeError(
            f"the teacher's mean loss is {loss}; lower its learning rate (now {settings.learning_rate})"
        )


def _arguments(
    settings: TeacherSettings, steps: int, device: str, checkpoints: Path
) -> "CrossEncoderTrainingArguments":
    """The arguments of sentence-transformers' trainer."""
    from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments

    precision = resolve_precision(settings.precision, device)
    examples = 1 if settings.loss == "lambda" else 1 + settings.num_negatives  # of a query
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(checkpoints),
        max_steps=steps,
        per_device_train_batch_size=settings.batch_queries * examples,
        learning_rate=settings.learning_rate,
        warmup_steps=math.ceil(WARMUP_SHARE * steps),
        seed=settings.seed,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=device == "cpu",
        save_strategy="steps",
        save_steps=math.ceil(steps / CHECKPOINTS),
        save_total_limit=1,
        logging_steps=LOG_EVERY_STEPS,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # several would multiply the batch
    return arguments


def _last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that is complete; the trainer writes its state last."""
    for path in sorted(folder.glob("checkpoint-*"), key=lambda path: step_of(path.name), reverse=True):
        with suppress(OSError, RuntimeError):  # missing or cut off: it was being written
            read_json(path / "trainer_state.json")
            log.info("a training that was killed continues at step %d", step_of(path.name))
            return str(path)
    return None


def _loss(model: "CrossEncoder", settings: TeacherSettings) -> "nn.Module":
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, LambdaLoss

    if settings.loss == "lambda":
        return LambdaLoss(model)
    return BinaryCrossEntropyLoss(model, pos_weight=torch.tensor(float(settings.num_negatives)))


def _pairs(lists: MinedLists, drawn: Iterator[tuple[int, np.ndarray]]) -> Iterator[dict[str, Any]]:
    for query, documents in drawn:
        query_text, texts = lists.texts(query, documents)
        for place, text in enumerate(texts):
            yield {"query": query_text, "document": text, "label": float(place == 0)}


def _lists(lists: MinedLists, drawn: Iterator[tuple[int, np.ndarray]]) -> Iterator[dict[str, Any]]:
    for query, documents in drawn:
        query_text, texts = lists.texts(query, documents)
        yield {
            "query": query_text,
            "documents": texts,
            "labels": [float(place == 0) for place in range(len(texts))],
        }


def _bar(steps: int) -> Any:
    """A callback that shows the progress as training a retriever does."""
    from transformers import TrainerCallback

    from pyserini_ance.storage.progress import progress_bar

    class Bar(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.bar = progress_bar(total=steps, desc="train teacher", unit="step")

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.bar.update()

        def on_log(self, *_: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
            if logs and "loss" in logs:
                self.bar.set_postfix(loss=f"{float(logs['loss']):.4f}")

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.bar.close()

    return Bar()
