"""One bit flipped in one file of runs/ or results/, and every number that then comes out."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections import Counter
from pathlib import Path

from common import RunError, UserError
from config.build import build_measured_task, check_buildable
from config.calls import EvaluateCall, FileCall
from config.compose import compose_plain
from config.schema import CellConfig, validate_cell
from evaluate import config_of
from evaluation.judge import evaluate
from plots.curves import read_curve, read_errors
from records.reading import read, require_attachments
from sweeps.job import run_and_enter
from sweeps.weights import measured_sequences, model_of
from training.machine import Machine

TINY = (
    "task=arithmetic task.size=2 model.dim=8 model.num_layers=1 model.num_heads=2 recipe.steps=4 "
    "recipe.validate_every=2 data.train=300 data.validation=20 data.test=20 logger=none "
    "progress=false recipe.learning_rate=0.05"
).split()
CELLS = ([], ["measure.split=validation"], ["seed=1"])
RESULTS = Path("results/manual")
NO_RESULT = {
    "train_seconds", "eval_seconds", "seconds_to_90", "finished_at", "digest", "config_digest",
    "curve_digest", "errors_digest", "commit", "trained_commit", "tree_dirty", "reason",
}  # fmt: skip


def config(*words: str) -> CellConfig:
    return validate_cell(compose_plain("train", [*TINY, *words]))


class Flips:
    """Runs of two finished cells and an interrupted one in the working directory."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.configs = [config(*words) for words in CELLS]
        for one in self.configs:
            run_and_enter(one)
        self.expected = self.numbers(self.after)
        assert len(self.expected) == 4
        shutil.rmtree("runs/" + self.expected["cells"][2])
        stopped = dataclasses.replace(self.configs[2], machine=Machine(time_limit_seconds=1e-9))
        try:
            run_and_enter(stopped)
        except RunError:
            assert Path("runs", self.expected["cells"][2], "checkpoint.pt").exists()
        shutil.copytree("runs", "kept/runs")
        shutil.copytree("results", "kept/results")
        self.outcomes: Counter[str] = Counter()

    def files(self) -> list[Path]:
        every = [p for part in ("runs", "results") for p in Path(part).rglob("*") if p.is_file()]
        return sorted(p for p in every if "lock" not in p.name and p.stat().st_size)

    def flip(self, path: Path) -> None:
        """Flip a bit of ``path``, look at every number, put everything back."""
        content = bytearray(path.read_bytes())
        place, bit = self.chance.randrange(len(content)), self.chance.randrange(8)
        content[place] ^= 1 << bit
        path.write_bytes(content)
        told = f"{path}, byte {place}, bit {bit}"
        try:
            for look in (self.table, self.evaluated, self.after):
                found = self.numbers(look)
                for name, value in found.items():
                    assert value == self.expected[name], f"{told}: {name}"
                self.outcomes["the same number" if found else "refused in a line"] += 1
        finally:
            for part in ("runs", "results"):
                shutil.rmtree(part)
                shutil.copytree(f"kept/{part}", part)

    def numbers(self, look) -> dict:
        """Return what ``look`` gives, nothing where it ends with a line."""
        try:
            return look()
        except (UserError, RunError) as error:
            assert "\n" not in str(error)
            return {}

    def table(self) -> dict:
        """The rows of finished cells, and the two finished cells' curves and errors."""
        rows = read(RESULTS / "results.csv")
        require_attachments(RESULTS, rows)
        # Of an empty column not even the name says anything.
        rows = rows[rows["seed"] == 0].dropna(axis="columns", how="all")
        kept = sorted(name for name in rows if name not in NO_RESULT)
        text = rows.sort_values("cell")[kept].to_csv(index=False)
        curves = [read_curve(RESULTS, cell) for cell in sorted(rows["cell"])]
        shown = [c.drop(columns="seconds").to_csv() for c in curves if c is not None]
        errors = [read_errors(RESULTS, cell) for cell in sorted(rows["cell"])]
        return {"table": (text, shown, [e for e in errors if e is not None])}

    def evaluated(self) -> dict:
        """What evaluate.py says of the first cell."""
        call = EvaluateCall("", {}, FileCall(None), None, None, None, False, Machine())
        given = config_of(Path("runs") / self.expected["cells"][0], call)
        task, _ = check_buildable(given)
        measured = build_measured_task(given, task)
        sequences = measured_sequences(given, task, measured)
        result = evaluate(model_of(given, task), measured, sequences)
        return {"evaluated": (result.answer_accuracy, result.chain_exact_match)}

    def after(self) -> dict:
        """Run all three cells by their commands again; then every number."""
        found = [run_and_enter(one) for one in self.configs]
        assert all(record is not None for record in found)
        names = [record["cell"] for record in found if record]
        self.expected = getattr(self, "expected", {"cells": names})
        measured = [
            {k: v for k, v in record.items() if k not in {*NO_RESULT, "sealed", "digests"}}
            for record in found
            if record
        ]
        return {"cells": names, "records": measured, **self.table(), **self.evaluated()}
