"""Train the cross-encoders of a recipe between its stages: mine with the result of a stage, then train on
lists of positives and mined negatives.

All processes mine; sentence-transformers' CrossEncoderTrainer trains, in one subprocess, since it would
otherwise join torchrun's processes. The retriever can then be trained again with the cross-encoder as
teacher: the alternation of AR2 (Zhang et al. 2021, arXiv:2110.03611), whose ranker learns from what the
retriever finds; RocketQA v2 (Ren et al. 2021, arXiv:2110.07367) trains both at once.
"""

import gc
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.collection_cache import open_collection
from pyserini_ance.data.known_positives import is_known_positive
from pyserini_ance.data.prepared import AnchorSet, PreparedData
from pyserini_ance.distributed.failures import FAILED
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.config import tower_folder
from pyserini_ance.encoders.cross_encoder_model import record_text
from pyserini_ance.encoders.hardware import resolve_precision
from pyserini_ance.encoders.hub import find_model
from pyserini_ance.encoders.towers import longest_input
from pyserini_ance.encoders.weights import check_vocabulary, check_weight_files, load_weights
from pyserini_ance.negatives.mined import find_positives
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext, TableSource
from pyserini_ance.negatives.table import PADDING, NegativeTable, promoted_in
from pyserini_ance.negatives.teachers.cross_encoder import load_model, model_digest
from pyserini_ance.pipeline.refresher_process import MOST_LAST_WORDS, subprocess_environment
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.trained_teacher import TRAINED, TrainedTeacher
from pyserini_ance.refresher.mined_tables import mine_table
from pyserini_ance.runs.checkpoint import ENCODER, Checkpoint
from pyserini_ance.runs.generation import TableKey, open_generation, publish_generation, table_name
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.error_text import text_of
from pyserini_ance.storage.files import read_json, sha256_json, write_json
from pyserini_ance.storage.progress import progress_bar
from pyserini_ance.storage.publish import is_complete, remove_unless_leased, whole_folder

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

log = logging.getLogger(__name__)
COMMAND = [sys.executable, "-m", "pyserini_ance.pipeline.teacher_training"]
WARMUP_SHARE = 0.1  # as in sentence-transformers' examples
LOG_EVERY_STEPS = 10
CHECKPOINTS = 10  # of a training
NEEDS_NEW_RECIPE = 3  # an exit code
ABOUT = "pyserini_ance_teacher.json"
OTHER_WEIGHTS = "start from another cross-encoder or encoder: teachers.NAME.init_from=FOLDER-OR-HUB-NAME"


def train_teacher_of_run(
    recipe: Recipe, name: str, data: PreparedData, run: RunDir, result: Checkpoint, world: World
) -> None:
    """Train `teachers.NAME` on what `result` finds, the checkpoint that its stage has ended with.

    What a killed run has mined, or trained to the end, is used again. Called by all processes. Raises
    RuntimeError with the subprocess's message if training fails, SettingError if that
    tells that it would fail again.
    """
    if world.on_main(lambda: (run.teachers / name).exists()):
        return
    start = time.perf_counter()
    if not world.on_main(lambda: is_complete(run.generation(name, 0))):
        _mine(recipe, name, data, run, result, world)
    mined = time.perf_counter()
    world.on_main(lambda: _train_in_subprocess(recipe, name, run, data, world))
    seconds = {"mine": round(mined - start, 3), "train": round(time.perf_counter() - mined, 3)}
    RunLog(run, world.is_main).metric("teacher", teacher=name, seconds=seconds)


def _mine(
    recipe: Recipe, name: str, data: PreparedData, run: RunDir, result: Checkpoint, world: World
) -> None:
    """Publish the tables of the teacher's sources as the generation NAME-00000000."""
    teacher, folder = recipe.teachers[name], run.generation(name, 0)
    log.info("teacher %s: mining with the result of stage %s", name, teacher.after)
    # The vectors are those that the next stage's first refresh needs, if it starts from this result.
    snapshot = Snapshot.of(result, data, recipe, run, world)
    number = len(recipe.stages) + list(recipe.teachers).index(name)  # stages have the numbers before
    positives = find_positives(snapshot, recipe.stages[teacher.after].effective_refresh.positives_top_k)
    anchor_set = snapshot.anchor_set("query").with_positives(positives)
    tables: dict[TableKey, NegativeTable] = {}
    reports = {}
    for position, source in enumerate(teacher.negatives):
        context = MiningContext(folder.name, key=(recipe.seed, number, 0, 0, position))
        key = ("query", position)
        with snapshot.timed("filter"):
            tables[key], reports[table_name(key)] = mine_table(
                cast(TableSource, source), snapshot, anchor_set, context, promoted=positives
            )
    snapshot.free_device()  # the cross-encoder needs the memory
    about = {"stage": name, "step": 0, "weights": result.weights, **data.identity}
    world.on_main(lambda: publish_generation(folder, tables, reports, snapshot.seconds, about))


def _train_in_subprocess(recipe: Recipe, name: str, run: RunDir, data: PreparedData, world: World) -> None:
    """Train in a subprocess, which ends when its stdin does: with this process, however that ends."""
    log.info("teacher %s: training from %s", name, recipe.teachers[name].init_from)
    # The subprocess can take what this process frees: the cross-encoder before, cycles with an encoder.
    load_model.cache_clear()
    gc.collect()
    folder, cache = str(run.folder.absolute()), str(recipe.cache.absolute())
    device = torch.device(world.device)
    command = [*COMMAND, folder, name, cache, data.collection.digest, device.type]
    # The threads of all processes of this host, which wait for the subprocess.
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    environment = subprocess_environment(recipe.threads and recipe.threads * local)
    if world.size > 1 and not recipe.threads:
        environment.pop("OMP_NUM_THREADS", None)  # torchrun sets it to 1
    if device.type == "cuda":
        torch.cuda.empty_cache()
        visible, number = os.environ.get("CUDA_VISIBLE_DEVICES"), device.index or 0
        # Of several, transformers takes the first.
        environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[number] if visible else str(number)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches training alone, which then ends the subprocess
        env=environment,
    ) as process:
        assert process.stdout is not None
        try:
            reason = process.stdout.read().strip()[-MOST_LAST_WORDS:]
            code = process.wait()
        finally:
            process.kill()  # after an error or Ctrl-C in this process; no effect on one that has ended
    if code:
        ended = f"killed by signal {-code}" if code < 0 else f"exit code {code}, see its messages above"
        kind = SettingError if code == NEEDS_NEW_RECIPE else RuntimeError
        raise kind(f"teachers.{name} could not be trained: {reason or ended}")


class MinedLists:
    """The training queries of a run, with the candidates of the tables that were last in use.

    What the tables promote joins the positives of `split`. What one table promotes another may still list,
    and tables of `positives: last` list a query's other positives: no positive is a candidate.
    generations: the hash of the weights that mined each generation, by its name.
    """

    def __init__(
        self,
        collection: Collection,
        split: Split,
        tables: Sequence[NegativeTable],
        generations: dict[str, str],
    ):
        pairs = promoted_in(tables)
        known = is_known_positive(split.known_positives("query"), pairs[:, 0], pairs[:, 1:])[:, 0]
        self.collection, self.generations = collection, generations
        self.split = split.with_positives(pairs[~known])
        anchor_set = AnchorSet.of(collection, self.split, "query")
        self.tables = [table.excluding(table.anchors, anchor_set) for table in tables]

    @property
    def queries(self) -> np.ndarray:
        """(Q,) rows of the queries with a candidate, ascending."""
        return np.unique(np.concatenate([table.anchors[table.counts > 0] for table in self.tables]))

    def candidates(self, query: int) -> np.ndarray:
        """The different candidates of a query in all tables, ascending."""
        spans = [np.searchsorted(table.anchors, [query, query + 1]) for table in self.tables]
        found = [one.candidates[slice(*span)].ravel() for one, span in zip(self.tables, spans, strict=True)]
        return np.setdiff1d(np.concatenate(found), [PADDING])

    def draw(self, count: int, num_negatives: int, seed: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield `count` lists: the row of a query, and the rows of its documents, a positive first.

        Each pass over the queries has an order of its own. A list has one of the query's positives and up to
        `num_negatives` of its candidates, all drawn anew.
        """
        rng, queries = random_stream("teacher training lists", seed), self.queries
        for number in range(count):
            if number % len(queries) == 0:
                order = rng.permutation(queries)
            query = int(order[number % len(queries)])
            positive, candidates = rng.choice(self.split.qrels.relevant(query)), self.candidates(query)
            negatives = rng.choice(candidates, min(num_negatives, len(candidates)), replace=False)
            yield query, np.concatenate([[positive], negatives])

    def texts(self, query: int, documents: np.ndarray) -> tuple[str, list[str]]:
        """A query's text and its documents' texts, as the teacher `cross_encoder` and `rerank` read them."""
        texts = self.collection.documents
        asked = self.split.queries.columns["text"][query]
        return asked, [record_text(texts[row]) for row in documents.tolist()]


def train_teacher(
    lists: MinedLists, source: str, teacher: TrainedTeacher, recipe: Recipe, device: str, folder: Path
) -> None:
    """Train a cross-encoder of a recipe from the weights `source` and write it to `folder`, whole or not at
    all.

    A training that was killed continues from its last checkpoint, of which there are ten, and ends with the
    same weights. They and its data are next to `folder`, in `.NAME.training`, until training has ended.

    source: an encoder, which gets a new head, or a cross-encoder with one score, which is trained further.
    Raises FileExistsError if `folder` is not empty, SettingError if the loss is not finite, for weights that
    are of no cross-encoder, or if no query has a candidate.
    """
    if not len(lists.queries):
        raise SettingError("no query has a candidate left to train on; raise top_k, or loosen filters")
    work = folder.with_name(f".{folder.name}.training")
    steps = teacher.steps_over(len(lists.queries))
    sides = recipe.encoder.tokenization
    settings = {
        **teacher.model_dump(include={"steps", "batch_queries", "num_negatives", "learning_rate"}),
        "length_tokens": teacher.length_tokens or sides.query.length_tokens + sides.document.length_tokens,
        "seed": recipe.seed,
        "precision": recipe.precision,
    }
    with whole_folder(folder) as output:
        start = find_model(source, "init_from")
        origin = sha256_json([settings, steps, lists.generations, model_digest(start)])
        for left in set(work.glob("*")) - {work / origin}:  # by a killed process, or for other settings
            shutil.rmtree(left)
        model = _new_model(start, settings["length_tokens"], recipe.seed, device, work / "start")
        _train(model, lists, teacher, recipe, steps, device, work, origin)
        model.save_pretrained(str(output), create_model_card=False)
        # Nothing here changes between equal trainings: the teacher's cache is keyed by the folder's content.
        recorded = {**settings, "steps": steps, "length_tokens": model.max_seq_length}
        about = {"retriever": recipe.name, "start": teacher.init_from}
        mined = {"queries": len(lists.queries), "generations": lists.generations}
        versions = {name: version(name) for name in ("sentence-transformers", "transformers", "torch")}
        write_json(output / ABOUT, {**about, **mined, "settings": recorded, "versions": versions})
        remove_unless_leased(work)  # at once: of a part of it training would not continue


def check_start(source: str) -> None:
    """Raise ValueError if the configuration of a folder or hub name says that it cannot score pairs; also
    what `check_weight_files` raises."""
    from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, AutoConfig

    check_weight_files(source)
    config = AutoConfig.from_pretrained(source)
    if type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise SettingError(f"{source} is a {config.model_type}, which cannot score pairs; {OTHER_WEIGHTS}")
    (architecture, *_) = config.architectures or [""]
    if architecture.endswith("ForSequenceClassification") and config.num_labels != 1:
        raise SettingError(f"{source} gives {config.num_labels} scores per pair, not one; {OTHER_WEIGHTS}")


def _new_model(source: str, length_tokens: int, seed: int, device: str, scratch: Path) -> "CrossEncoder":
    """The weights at `source` with one score; a missing head is drawn by the seed."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderModelCardData
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    check_start(source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, loading = load_weights(AutoModelForSequenceClassification, source, num_labels=1)
    body = f"{model.base_model_prefix}."
    missing = [name for name in loading["missing_keys"] if name.startswith(body) and "pooler" not in name]
    if missing:
        raise SettingError(
            f"{source} lacks {len(missing)} weights of a {type(model).__name__}, such as {missing[0]}; "
            f"{OTHER_WEIGHTS}"
        )
    tokenizer = AutoTokenizer.from_pretrained(source)
    check_vocabulary(tokenizer, [model], source)
    # An encoder's tokenizer may cut at the length of a query.
    tokenizer.model_max_length = min(length_tokens, longest_input(model))
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    card = CrossEncoderModelCardData(local_files_only=True, generate_widget_examples=False)
    return CrossEncoder(
        str(scratch), device=device, model_card_data=card, model_kwargs={"dtype": torch.float32}
    )


def _train(
    model: "CrossEncoder",
    lists: MinedLists,
    teacher: TrainedTeacher,
    recipe: Recipe,
    steps: int,
    device: str,
    work: Path,
    origin: str,
) -> None:
    """Train `model`; its checkpoints are in `work / origin`."""
    from datasets import Dataset, disable_progress_bars
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
    from transformers import PrinterCallback

    disable_progress_bars()
    num_negatives = teacher.num_negatives

    def examples() -> Iterator[dict[str, Any]]:
        """The rows of the training data, in order."""
        for query, rows in lists.draw(steps * teacher.batch_queries, num_negatives, recipe.seed):
            text, documents = lists.texts(query, rows)
            labels = [1.0] + [0.0] * (len(documents) - 1)
            pairs = zip(documents, labels, strict=True)
            yield from ({"query": text, "document": one, "label": label} for one, label in pairs)

    # Hashing the generator itself would read the whole collection.
    dataset = Dataset.from_generator(examples, cache_dir=str(work / "data"), fingerprint=origin[:32])
    positives = sum(dataset["label"])
    precision = resolve_precision(recipe.precision, device)
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(work / origin),
        max_steps=steps,
        per_device_train_batch_size=teacher.batch_queries * (1 + num_negatives),
        learning_rate=teacher.learning_rate,
        warmup_steps=math.ceil(WARMUP_SHARE * steps),
        seed=recipe.seed % 2**32,  # as numpy takes
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
    with progress_bar(total=steps, desc="train teacher", unit="step") as bar:
        trainer = CrossEncoderTrainer(
            model=model,
            args=arguments,
            train_dataset=dataset,
            loss=BinaryCrossEntropyLoss(model, pos_weight=torch.tensor(len(dataset) / positives - 1)),
            callbacks=[_callback(bar)],
        )
        trainer.remove_callback(PrinterCallback)
        loss = trainer.train(resume_from_checkpoint=_last_checkpoint(work / origin)).training_loss
    if not math.isfinite(loss):
        remove_unless_leased(work)  # a training that goes on from these checkpoints would end the same way
        raise SettingError(
            f"the teacher's mean loss is {loss}; lower its learning rate (now {teacher.learning_rate})"
        )


def _last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that is complete; the trainer writes its state last."""
    for path in sorted(folder.glob("checkpoint-*"), key=lambda path: step_of(path.name), reverse=True):
        with suppress(OSError, RuntimeError):  # missing or cut off: it was being written
            read_json(path / "trainer_state.json")
            log.info("a training that was killed continues at step %d", step_of(path.name))
            return str(path)
    return None


def _callback(bar: Any) -> Any:
    from transformers import TrainerCallback

    class Progress(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            bar.update()

        def on_log(self, *_: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
            if logs and "loss" in logs:
                bar.set_postfix(loss=f"{float(logs['loss']):.4f}")

    return Progress()


def main() -> int:
    """The subprocess, which ends when its stdin does. Its output is why it failed.

    Its arguments are the run directory, the name of the teacher, the cache, the digest of the collection, and
    the device.
    """
    folder, name, cache, digest, device = sys.argv[1:]
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        run = RunDir(Path(folder))
        collection = open_collection(Path(cache), digest)
        if collection is None:
            raise FileNotFoundError(f"{cache} does not hold the run's data any more; train with --resume")
        recipe = run.read_recipe()
        generation = open_generation(run.generation(name, 0), {})
        tables = [generation.tables[key] for key in sorted(generation.tables)]
        weights = {generation.folder.name: generation.weights}
        lists = MinedLists(collection, collection.split(recipe.train_name), tables, weights)
        teacher = recipe.teachers[name]
        source = teacher.init_from
        if source == "initial":  # the untrained encoder's query tower
            source = str(tower_folder(run.checkpoint("initial", 0) / ENCODER, "query"))
        elif source.startswith(TRAINED):
            source = str(run.teachers / source.removeprefix(TRAINED))
        train_teacher(lists, source, teacher, recipe, device, run.teachers / name)
    except (ValueError, OSError, RuntimeError) as error:
        print(text_of(error))
        return NEEDS_NEW_RECIPE if isinstance(error, SettingError) else FAILED
    return 0


def _end_with_stdin() -> None:
    # Not by sys.stdin, whose lock Python takes when it exits.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
