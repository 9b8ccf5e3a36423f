"""An experiment whose stage is trained by sentence-transformers: rows that compare with ours."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerModelCardData,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.training_args import BatchSamplers
from sentence_transformers.util import mine_hard_negatives
from transformers import TrainerCallback

from pyserini_ance import load_recipe
from pyserini_ance.data.collection import Side, Texts
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hardware import resolve_precision
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.encoders.tokenization import stripped
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.pipeline.experiment import Experiment
from pyserini_ance.pipeline.results import Run
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.dev_evaluation import evaluate_on_dev
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, publish_checkpoint

log = logging.getLogger("pyserini_ance.benchmarks")
STAGE = "sentence-transformers"
# The arguments of its documentation's example for noisy data; every other argument keeps its default.
MINING: dict[str, Any] = {"relative_margin": 0.05, "range_min": 10, "range_max": 100, "num_negatives": 1}
# mine_hard_negatives holds the scores of this many queries against the whole corpus in memory.
MINING_QUERIES_AT_ONCE = 2048


def train_rows(
    recipe: str, overrides: Sequence[str], method: str, folder: Path, overwrite: bool = False
) -> Run:
    """Train and measure a recipe's data with `method`, a key of the table in README.md, in the run directory
    `folder`.

    Raises what `pyserini_ance.train` raises, and ValueError for a recipe that sentence-transformers would not
    train alike.
    """
    loaded = load_recipe(recipe, *overrides)
    with World.join(loaded.device).session() as world:
        if world.size > 1:
            raise ValueError(f"torchrun started {world.size} processes; start the command without torchrun")
        results = PeerExperiment(loaded, method, folder, world).run(overwrite)
    assert results is not None
    return results


class PeerExperiment(Experiment):
    """An experiment whose one stage is trained by SentenceTransformerTrainer.

    Data, BM25, final evaluation and run directory are those of every run.
    """

    def __init__(self, recipe: Recipe, method: str, folder: Path, world: World):
        super().__init__(peer_recipe(recipe, method), folder, world)
        self.method = method

    def train_stage(
        self, name: str, data: PreparedData, initial: Checkpoint, resume: bool = False
    ) -> Checkpoint:
        """Train the stage from `initial`, publish its result, and log the seconds of mining and training."""
        stage = self.recipe.stages[name]
        encoder = load_encoder(initial.encoder, self.world.device)
        model = as_sentence_transformer(encoder, initial.encoder)
        start = time.perf_counter()
        rng = np.random.default_rng(self.recipe.seed)
        first = stage.positives == "first"
        dataset = query_pairs(data, encoder, lambda of: of[:1] if first else [rng.choice(of)])
        if self.method != "in-batch":
            # In the precision in which our own runs mine.
            precision: Any = resolve_precision(self.recipe.encoding.precision, self.world.device)
            with torch.autocast(encoder.device.type, torch.bfloat16, enabled=precision == "bf16"):
                judged = query_pairs(data, encoder, lambda of: of)  # none may be mined as a negative
                documents = data.collection.documents
                corpus = _texts(documents, encoder, "document") if self.method == "mined" else None
                dataset = with_mined_negatives(dataset, judged, corpus, model)
            self.log.metric("refresh", stage=name, step=0, seconds=time.perf_counter() - start)
        checkpoints = DevCheckpoints(self, data, encoder, model)
        start = time.perf_counter()
        train(model, dataset, self.recipe, self.run_dir.scratch / STAGE, checkpoints)
        seconds = time.perf_counter() - start - checkpoints.seconds
        self.log.metric("step", stage=name, step=0, seconds=seconds)
        self.log.metric("refresh", stage=name, step=stage.steps, seconds=checkpoints.seconds)
        return checkpoints.result()


class DevCheckpoints(TrainerCallback):
    """Measures the model on dev at the steps, and by the code, of our own stages, and chooses as they do.

    The start is measured too. Training goes on with the same weights and random numbers as without.
    """

    def __init__(
        self, experiment: PeerExperiment, data: PreparedData, encoder: Encoder, model: SentenceTransformer
    ):
        self.experiment, self.data, self.encoder, self.model = experiment, data, encoder, model
        self.stage = experiment.recipe.stages[STAGE]
        self.progress = TrainingProgress(STAGE, 0)
        self.seconds = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.measure(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.measure(state.global_step)

    def measure(self, step: int) -> None:
        """Publish the checkpoint before step `step` and measure it, if our own stages would."""
        evaluate = self.stage.evaluate
        self.progress = replace(self.progress, step=step)
        if not self.stage.evaluation_is_due(step) and step != self.stage.steps:
            return
        start = time.perf_counter()
        ours: Any = self.encoder.towers.queries
        theirs: Any = self.model[0]
        ours.transformer.load_state_dict(theirs.model.state_dict())
        of = self.experiment
        with torch.random.fork_rng():
            checkpoint = publish_checkpoint(of.run_dir, self.encoder, None, self.progress)
            if evaluate is not None:
                snapshot = Snapshot.of(checkpoint, self.data, of.recipe, of.run_dir, of.world)
                value = fmean(evaluate_on_dev(snapshot, evaluate, of.recipe.seed).values())
                self.progress = self.progress.after_evaluation(step, value)
                of.log.metric("dev", stage=STAGE, step=step, measure=evaluate.measure, value=value)
                log.info("stage %s, step %d: dev %s %.4f", STAGE, step, evaluate.measure, value)
        self.seconds += time.perf_counter() - start

    def result(self) -> Checkpoint:
        """The best checkpoint by dev with `keep_best`, else the last."""
        keeps_best = self.stage.evaluate is not None and self.stage.evaluate.keep_best
        step = self.progress.best_step if keeps_best else self.progress.step
        assert step is not None, "the last checkpoint is always evaluated"
        result = Checkpoint.open(self.experiment.run_dir.checkpoint(STAGE, step))
        end = {"result": result.folder.name, "weights": result.weights}
        self.experiment.log.decide("stage_end", stage=STAGE, step=self.progress.step, **end)
        return result


def peer_recipe(recipe: Recipe, method: str) -> Recipe:
    """The recipe under the name of the peer's method, with its one stage renamed.

    Raises ValueError for what sentence-transformers would train otherwise than the recipe says.
    """
    encoder = recipe.encoder
    if len(recipe.stages) > 1:
        raise ValueError(
            f"{recipe.name} has the stages {', '.join(recipe.stages)}; pass a recipe with one stage, such as "
            "demo/rand-batch, and set its steps: stages.rand-batch.steps=180"
        )
    [(name, stage)] = recipe.stages.items()
    expected = {
        "encoder.tied": (encoder.tied, True),
        "encoder.normalize": (encoder.normalize, True),
        "encoder.dropout": (encoder.dropout, None),
        "encoder.projection": (encoder.projection, None),
        "encoder.tokenization.document.passages": (encoder.tokenization.document.passages, 1),
        f"stages.{name}.optimizer.kind": (stage.optimizer.kind, "adamw"),
        f"stages.{name}.lr_schedule.kind": (stage.lr_schedule.kind, "linear"),
        f"stages.{name}.terms": (len(stage.terms), 1),
    }
    for key, (given, needed) in expected.items():
        if given != needed:
            raise ValueError(
                f"{key} is {given!r}; sentence-transformers trains only {needed!r} alike; set it"
            )
    return recipe.model_copy(
        update={
            "name": f"{recipe.name.rpartition('/')[0] or recipe.name}/{STAGE}-{method}",
            "description": f"{STAGE} ({method}), with the data, steps and rates of {recipe.name}",
            "stages": {STAGE: stage},
            "expect": {},
        }
    )


def as_sentence_transformer(encoder: Encoder, folder: Path) -> SentenceTransformer:
    """The encoder that `save_encoder` wrote to `folder`; inputs are texts after the templates."""
    # On CPUs, eager attention is faster than torch's fused attention, as in our own encoder.
    attention = {"attn_implementation": "eager"} if encoder.device.type == "cpu" else {}
    card = SentenceTransformerModelCardData(local_files_only=True, generate_widget_examples=False)
    settings: dict[str, Any] = {"model_kwargs": attention, "model_card_data": card}
    without = {"query": "", "document": ""}
    return SentenceTransformer(str(folder), device=str(encoder.device), prompts=without, **settings)


def _texts(texts: Texts, encoder: Encoder, side: Side) -> list[str]:
    """All texts of a side, after the template."""
    return [encoder.tokenizer.settings.text(side, stripped(texts[row])) for row in range(len(texts))]


def query_pairs(
    data: PreparedData, encoder: Encoder, choose: Callable[[np.ndarray], Iterable[int]]
) -> Dataset:
    """Each training query with the positives that `choose` takes of all of its own, as texts."""
    queries = _texts(data.split.queries, encoder, "query")
    documents = _texts(data.collection.documents, encoder, "document")
    known = data.split.known_positives("query")
    return Dataset.from_list(
        [
            {"anchor": queries[query], "positive": documents[positive]}
            for query in known.anchors.tolist()
            for positive in choose(known.of(query))
        ]
    )


def with_mined_negatives(
    dataset: Dataset, judged: Dataset, corpus: list[str] | None, model: SentenceTransformer
) -> Dataset:
    """Add column `negative`, mined once with `model` in `corpus`; None: among the positives, its default.

    Queries without a candidate in the range are left out, as mine_hard_negatives leaves them out. Raises
    ValueError if that leaves none.
    """
    mined = mine_hard_negatives(
        judged,
        model,
        corpus=corpus,
        output_format="n-tuple",
        batch_size=64,
        faiss_batch_size=MINING_QUERIES_AT_ONCE,
        **MINING,
    )
    negatives = dict(zip(mined["anchor"], mined["negative_1"], strict=True))
    kept = [{**row, "negative": negatives[row["anchor"]]} for row in dataset if row["anchor"] in negatives]
    if not kept:
        raise ValueError(f"no training query has a candidate within {MINING}; train with --method in-batch")
    log.info("mined: %d of %d training queries have a negative", len(kept), len(dataset))
    return Dataset.from_list(kept)


def train(
    model: SentenceTransformer, dataset: Dataset, recipe: Recipe, scratch: Path, callback: TrainerCallback
) -> None:
    """Train `model` with the stage's steps, batch, rate, warm-up and linear decay, and the recipe's seed."""
    stage = recipe.stages[STAGE]
    [term], optimizer = stage.terms.values(), stage.optimizer
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(scratch),
        max_steps=stage.steps,
        per_device_train_batch_size=stage.batch_queries,
        learning_rate=optimizer.learning_rate,
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.max_grad_norm,
        lr_scheduler_type="linear",
        warmup_steps=stage.lr_schedule.warmup_steps,
        seed=recipe.seed,
        bf16=resolve_precision(recipe.precision, model.device.type) == "bf16",
        use_cpu=model.device.type == "cpu",
        batch_sampler=BatchSamplers.NO_DUPLICATES,  # its documentation's choice for in-batch negatives
        dataloader_drop_last=True,  # every step has the whole batch, as in our runs
        router_mapping={"anchor": "query", "positive": "document", "negative": "document"},
        save_strategy="no",
        logging_steps=max(1, stage.steps // 10),
        report_to="none",
    )
    loss = MultipleNegativesRankingLoss(model, scale=getattr(term.loss, "scale", 1.0))
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=dataset, loss=loss, callbacks=[callback]
    ).train()
