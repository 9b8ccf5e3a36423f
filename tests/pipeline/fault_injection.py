"""Kill the trainer and the refresher of a run at random moments, some inside an encoding of
documents, again and again; the results must not change.

    python tests/pipeline/fault_injection.py --kills 50 --refresh async --precision bf16 [--seed 1]

A run is resumed until it has finished; then another one starts, until all kills are done. Each is compared
with an uninterrupted run: every file bit by bit except those that hold times, every decision, every step's
metrics once, and no file more or less.

Texts have many lengths, and an encoding many windows. With `--cut-over-missing-rows` batches depend on what a
kill has left to encode: on a processor on which a vector's last digits depend on its batch, this must fail.
"""

import json
import random
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.processes import CommandServer
from helpers.run_outcome import outcome
from helpers.small_set import make_small_collection, make_tiny_bert, small_settings
from helpers.stages import ANN, LOSS, RANDOM, make_stage, recipe_file

from pyserini_ance.recipe.models import Recipe
from pyserini_ance.vectors.vector_store import KEY, written_windows

REFRESH = {"async": {"every_steps": 10, "mode": "async", "adopt": 5}, "sync": {"every_steps": 10}}
ENCODE = {"part": 0.3, "min_recall": 0.9}
REFRESH["corrected"] = {**REFRESH["async"], "encode": ENCODE}
IN_BATCH = {"query": {"in_batch_negatives": True, "negatives": [ANN], "loss": LOSS}}
VICTIMS = (["trainer"], ["trainer"], ["refresher"], ["refresher"], ["trainer", "refresher"])
WINDOWS = "short_windows"  # of run_failures.py, as OLD_WINDOWS
INSIDE = "times inside an encoding"
OLD_WINDOWS = "windows_of_missing_rows"


@dataclass
class Faults:
    """The processes of one run after the other, and what was killed where."""

    server: CommandServer
    recipe: Path
    folder: Path
    rng: random.Random
    longest_pause_seconds: float = 2.5
    windows: str = WINDOWS
    killed: Counter = field(default_factory=Counter)
    finished: list[Path] = field(default_factory=list)
    living: dict[str, int] = field(default_factory=dict)
    struck: set[Path] = field(default_factory=set)  # encodings: it waits for another one each time

    @property
    def kills(self) -> int:
        return sum(count for what, count in self.killed.items() if what != INSIDE)

    @property
    def has_refresher(self) -> bool:
        return "async" in self.recipe.read_text()

    @property
    def run(self) -> Path:
        return self.folder / f"run{len(self.finished)}"

    def strike(self, kills: int) -> None:
        """Kill `kills` times, go on each time, and let the last run finish."""
        done = 0
        self._start_what_is_missing()
        while done < kills:
            time.sleep(self.rng.uniform(0, self.longest_pause_seconds))
            waits = self.rng.random() < 0.5
            while waits and not self.server.has_ended(self.living["trainer"]):
                if self._encodings() - self.struck:
                    break
                time.sleep(0.005)
            if self._has_finished():
                self._start_what_is_missing()
                continue
            victims = self.rng.choice(VICTIMS)
            if encodings := self._encodings() - self.struck:
                victims = list(self.living)  # whoever of them encodes
                self.killed[INSIDE] += 1
                self.struck |= encodings
            for victim in victims:
                if victim in self.living:
                    self.killed[f"{victim}: {self._doing(victim)}"] += 1
                    self.server.kill(self.living.pop(victim))
                    done += 1
            self._start_what_is_missing()
        while not self._has_finished():
            time.sleep(0.1)

    def _encodings(self) -> set[Path]:
        """The folders of vectors of which a window is written and another one is not."""
        found = set()
        for key in self.run.glob(f"scratch/*/*/{KEY}"):
            with suppress(OSError, ValueError):  # it is being removed
                stops = [stop for _, stop in written_windows(key.parent)]
                if stops and max(stops) < json.loads(key.read_text())["rows"]:
                    found.add(key.parent)
        return found

    def _start_what_is_missing(self) -> None:
        if "refresher" not in self.living and self.has_refresher:
            given = [str(self.recipe), "--output", str(self.run)]
            self.living["refresher"] = self.server.start("refresh", given, fault=self.windows)
        if "trainer" not in self.living:
            begun = (self.run / "environment.json").exists()
            resume = ["--resume"] if begun else ["--overwrite"] if (self.run / "state.json").exists() else []
            given = [str(self.recipe), "--output", str(self.run), *resume]
            self.living["trainer"] = self.server.start("train", given, fault=self.windows)

    def _has_finished(self) -> bool:
        """Whether the run's trainer has come to its end; an end other than success is an error."""
        if not self.server.has_ended(self.living["trainer"]):
            return False
        ended = self.server.wait(self.living.pop("trainer"))
        if ended["code"] != 0:
            how = f"ended with {ended['code']} after {self.kills} kills:\n{ended['stderr']}"
            raise RuntimeError(f"{self.run}: training {how}")
        if self.has_refresher:
            self.server.wait(self.living.pop("refresher"))  # it hears of the end
        self.finished.append(self.run)
        return True

    def _doing(self, victim: str) -> str:
        """What its post says, without numbers."""
        path = self.run / {"trainer": "state.json", "refresher": "refresher.json"}[victim]
        try:
            where = json.loads(path.read_text())["where"]
        except (OSError, ValueError, KeyError):
            return "starting"
        return "".join(c for c in where if not c.isdigit() and c != "-").strip(", ")


def write_recipe(folder: Path, refresh: str = "async", precision: str = "bf16") -> Path:
    """The small collection, with texts of 20 to 128 tokens, and model, and a recipe over them."""
    ance = {"steps": 60, "save_every_steps": 15, "evaluate": {"every_steps": 20}}
    inline = {"terms": IN_BATCH, "chunk_queries": 2, "refresh": REFRESH["sync"]}
    stages = {
        "warm": make_stage(RANDOM, steps=20, save_every_steps=8),
        "ance": make_stage(ANN, **ance, refresh=REFRESH[refresh], lora={"r": 2, "dropout": 0.1}),
        "inline": make_stage(steps=20, save_every_steps=8, **inline, evaluate={"every_steps": 15}),
    }
    bert = make_tiny_bert(folder / "bert")
    settings = small_settings(make_small_collection(folder, others=500, longest=25), bert, stages)
    settings["encoder"]["tokenization"]["document"]["length_tokens"] = 128
    settings["encoding"]["precision"] = settings["final_evaluation"]["precision"] = precision
    made = Recipe.model_validate({**settings, "refresher": "external", "name": "faults"})
    return recipe_file(made, folder)


def strike(
    server: CommandServer,
    folder: Path,
    recipe: Path,
    kills: int,
    seed: int,
    longest_pause_seconds: float = 2.5,
    windows: str = WINDOWS,
) -> Faults:
    """Raises AssertionError when a run that was struck differs from one that was not."""
    undisturbed = Faults(server, recipe, folder / "undisturbed", random.Random(0), windows=windows)
    undisturbed.strike(kills=0)
    struck = Faults(server, recipe, folder / "struck", random.Random(seed), longest_pause_seconds, windows)
    struck.strike(kills)
    expected = outcome(undisturbed.finished[0])
    for run in struck.finished:
        found = outcome(run)
        for key, value in expected.items():
            if found[key] != value and isinstance(value, dict):
                differing = [name for name in value | found[key] if value.get(name) != found[key].get(name)]
                raise AssertionError(f"{run}: these {key} differ: {', '.join(differing)}")
            assert found[key] == value, f"{run}: {key} differ: {found[key]} instead of {value}"
    return struck


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=2.5, help="the longest, in seconds; drawn evenly")
    parser.add_argument("--refresh", choices=REFRESH, default="async")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16", help="of all encodings")
    parser.add_argument("--cut-over-missing-rows", action="store_true", help="must fail: see above")
    args = parser.parse_args()
    windows = OLD_WINDOWS if args.cut_over_missing_rows else WINDOWS
    with tempfile.TemporaryDirectory() as name, CommandServer() as server:
        start = time.perf_counter()
        recipe = write_recipe(Path(name), args.refresh, args.precision)
        struck = strike(server, Path(name), recipe, args.kills, args.seed, args.pause, windows)
        counted = f"{struck.kills} kills, {len(struck.finished)} runs"
        print(f"{args.refresh}, {args.precision}: {counted}, {time.perf_counter() - start:.0f} seconds")
        for what, count in sorted(struck.killed.items()):
            print(f"{count:4}  {what}")
        what = "weights, index, rankings, tables, decisions, metrics and files"
        print(f"every run ended with the same {what}, in all folders, as one left in peace")


if __name__ == "__main__":
    main()
