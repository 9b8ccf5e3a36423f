"""Benchmark `train`: optimizer steps.

Queries with one positive and one random negative each, and in-batch negatives. A round is a number of steps.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.speed.encoding import MODEL, pools_by_mean, write_inputs
from benchmarks.speed.rounds import Contender, Contest, Rounds
from pyserini_ance.data.formats.docstrings import package_docstrings
from pyserini_ance.encoders.hardware import Precision, processor

TRIPLES = "triples.json"
SCALE, LEARNING_RATE = 20, 3e-5
STEPS = 1_000_000  # more than any benchmark takes; training ends with the last round


class LastRound(Exception):
    """Leaves the training loop of a library after the last round."""


def train(options: Mapping[str, Any], folder: Path) -> Contest:
    """`options["steps"]` steps of `options["batch"]` queries, texts cut at `options["length_tokens"]`."""
    write_inputs(options, folder, "query", 1)
    (folder / TRIPLES).write_text(json.dumps(_triples(options["package"])), encoding="utf-8")
    settings = {key: options[key] for key in ("steps", "batch", "length_tokens")}
    own = {key: options[key] for key in ("steps", "batch", "package", "threads")}
    peer = ("sentence_transformers", "accelerate")
    contenders = [
        Contender("ours fp32", ours, {"precision": "fp32", **own}),
        Contender("sentence-transformers fp32", sentence_transformers, settings, peer, against=True),
    ]
    if pools_by_mean(options):
        contenders.append(Contender("plain loop fp32", plain, settings, against=True))
    if processor().has_fast_bf16:
        bf16 = {"precision": "bf16"}
        contenders += [
            Contender("ours bf16", ours, {**own, **bf16}),
            Contender("sentence-transformers bf16", sentence_transformers, {**settings, **bf16}, peer, True),
        ]
    title = (
        f"{options['steps']} steps of {options['batch']} queries, a positive and a random negative each, "
        f"in-batch negatives, at most {options['length_tokens']} tokens"
    )
    return Contest("train", title, contenders, None, lambda own, _: {"mean loss": float(own.mean())})


def ours(
    rounds: Rounds, folder: Path, package: str, steps: int, batch: int, threads: int, precision: Precision
) -> None:
    from pyserini_ance import api
    from pyserini_ance.trainer.callbacks import TrainerCallback

    losses_of_round: list[float] = []

    class Turns(TrainerCallback):
        def on_step_end(self, stage: str, step: int, losses: dict, metrics: dict) -> None:
            _end_of_step(rounds, losses_of_round, metrics["loss"], steps)

    random = {"kind": "random"}
    term = {"in_batch_negatives": True, "negatives": [random], "loss": {"kind": "nll", "scale": SCALE}}
    stage = {
        "init_from": "initial",
        "steps": STEPS,
        "batch_queries": batch,
        "terms": {"query": term},
        "optimizer": {"learning_rate": LEARNING_RATE},
        "evaluate": None,
    }
    recipe = {
        "data": {"kind": "docstrings", "packages": [package]},
        "encoder": {"model": str(folder / MODEL)},
        "bm25": None,
        "precision": precision,
        "threads": threads,
        "final_evaluation": {"rows": []},
        "stages": {"train": stage},
    }
    file = folder / f"ours-{precision}.yaml"
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    rounds.begin()
    with suppress(LastRound):
        api.train(file, folder / f"run-{precision}", callbacks=[Turns()])


def _end_of_step(rounds: Rounds, losses: list[float], loss: float, steps: int) -> None:
    """Note the loss of a step; the last step of a round ends it. Raises LastRound when there is no other."""
    losses.append(loss)
    if len(losses) < steps:
        return
    rounds.output = np.array(losses)
    losses.clear()
    rounds.end()
    if not rounds.begin():
        raise LastRound


def sentence_transformers(
    rounds: Rounds, folder: Path, steps: int, batch: int, length_tokens: int, precision: Precision = "fp32"
) -> None:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    losses_of_round: list[float] = []

    class Turns(TrainerCallback):
        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict | None = None, **others: Any
        ) -> None:
            _end_of_step(rounds, losses_of_round, (logs or {})["loss"], steps)

    triples = json.loads((folder / TRIPLES).read_text(encoding="utf-8"))
    model = SentenceTransformer(str(folder / MODEL), device="cpu")
    model.max_seq_length = length_tokens
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / f"trainer-{precision}"),
        max_steps=STEPS,
        per_device_train_batch_size=batch,
        learning_rate=LEARNING_RATE,
        bf16=precision == "bf16",
        use_cpu=True,
        dataloader_drop_last=True,
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(triples),
        loss=MultipleNegativesRankingLoss(model, scale=SCALE),
        callbacks=[Turns()],
    )
    rounds.begin()
    with suppress(LastRound):
        trainer.train()


def plain(rounds: Rounds, folder: Path, steps: int, batch: int, length_tokens: int) -> None:
    """A loop over padded batches with torch and transformers alone, as tutorials have it."""
    import torch
    from torch.nn import functional
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = (part.from_pretrained(folder / MODEL) for part in (AutoTokenizer, AutoModel))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    triples = json.loads((folder / TRIPLES).read_text(encoding="utf-8"))
    rng = np.random.default_rng(0)

    def vectors(texts: list[str]) -> torch.Tensor:
        inputs = tokenizer(
            texts, padding=True, truncation=True, max_length=length_tokens, return_tensors="pt"
        )
        mask = inputs["attention_mask"].unsqueeze(-1)
        hidden = model(**inputs).last_hidden_state
        return functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)

    for _ in rounds:
        losses = []
        for _ in range(steps):
            rows = [triples[row] for row in rng.choice(len(triples), batch, replace=False)]
            asked = vectors([row["anchor"] for row in rows])
            read = vectors([row[key] for key in ("positive", "negative") for row in rows])
            loss = functional.cross_entropy(SCALE * asked @ read.T, torch.arange(batch))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        rounds.output = np.array(losses)


def _triples(package: str) -> list[dict[str, str]]:
    strings, rng = list(package_docstrings(package)), np.random.default_rng(0)
    others = rng.integers(len(strings), size=len(strings)).tolist()
    return [
        {"anchor": string.sentence, "positive": string.rest, "negative": strings[other].rest}
        for string, other in zip(strings, others, strict=True)
    ]
