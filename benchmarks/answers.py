"""What an answer takes at the frontier: the models of least D, timed against each other.

    python -m benchmarks answers experiment=overnight      # results/overnight/answers.json

For every task and size, each mixer's model of least D that reaches 90 % by the experiment's table
generates plainly: `prefill` of the prompt, then `step` by `step` the greedy choice, in float32, by
one thread.  It writes as many tokens as the right chain has, so that weights do not decide how long
it takes; they are the checkpoint's where ``runs_dir`` has it, else untrained, and the record says
which, and how many sequences came out right.  A batch goes on until its longest chain is over.

answer_seconds          seconds an answer at batch 1, mean of ``answers`` sequences
tokens_per_second       generated tokens a second at batch ``batch``
training_step_seconds   seconds of one update by the cell's recipe, data ready, no validation

CPU seconds: wall time of an idle machine.  The models of a size take turns, ``repeats`` times, in a
process of their own; the record keeps every turn.  A size whose models stand in the record is not
timed again, unless they, the settings or the processor are others now; ``force=true`` times all.
The record changes once all sizes are there, so that its rows are timed alike; until then the new
ones lie in ``.unfinished/`` beside it, from where the same command, without force, goes on.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from config.build import build_measured_task, build_task, initial_model
from config.compose import configurations_of
from config.files import read_config, require_name, require_trusted_classes
from config.schema import CellConfig
from records.folders import WeightsFolder
from records.provenance import machine
from sweeps.weights import model_of
from torch import Tensor
from tqdm import tqdm

from benchmarks.shared.cells import training_mixture, training_step
from benchmarks.shared.processes import in_new_process
from benchmarks.shared.report import CPU, about, print_table, read_options
from benchmarks.shared.timing import in_turns
from common import RunError, UserError, write_json, write_text
from models.transformer import Transformer
from plots.answers import FILE, LISTS, read_answers
from plots.cells import Grid, gather
from plots.frontier import deciding_runs, requirements_of
from plots.redraw import measured
from tasks.task import SequenceSet

FIRST = 10**6  # sequences from here on in the test stream: no cell is tested or trained on them
SETTINGS = ("batch", "answers", "repeats")
MIXTURE = 2000  # sequences to train on
Row = dict[str, Any]


@dataclass
class Options:
    """What the command line may set."""

    experiment: str = ""
    results_dir: str = "results"
    runs_dir: str = "runs"
    config_dir: str | None = None  # experiments outside the repository
    batch: int = 64
    answers: int = 8
    repeats: int = 5
    force: bool = False


@dataclass(frozen=True)
class Entrant:
    """A model at its least D; any of ``cells`` stands for it, the first rather than the others."""

    model: str
    dim: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """The models of one task and size."""

    task: str
    size: int
    entrants: tuple[Entrant, ...]


def main(words: Sequence[str] | None = None) -> None:
    """Time what is missing, print the table, keep the record."""
    options = read_options(Options, words)
    if not options.experiment:
        raise UserError("experiment=NAME is missing: which experiment's frontier?")
    for name in SETTINGS:
        if getattr(options, name) < 1:
            raise UserError(f"{name}={getattr(options, name)}: must be at least 1")
    folder = Path(options.results_dir) / options.experiment
    with configurations_of(options.config_dir):
        _, table, plan = measured(options.experiment, options.results_dir)
        wanted = list(jobs(gather(table, plan), Path(options.runs_dir)))
    unfinished = folder / ".unfinished"
    if options.force:
        shutil.rmtree(unfinished, ignore_errors=True)
        write_text(unfinished / "all", "")  # a run that goes on takes no row of the record
    old = [] if (unfinished / "all").exists() else read_answers(folder)
    known = [*old, *read_answers(unfinished)]
    rows = {job: row for job in wanted for row in known if is_of(row, job, options)}
    missing = [job for job in wanted if job not in rows]
    for job in tqdm(missing, unit="size", disable=None):
        rows[job] = in_new_process(measure, job, options)
        write_json(unfinished / FILE, {"rows": [rows[job] for job in wanted if job in rows]})
    if missing or unfinished.exists():
        write_json(folder / FILE, {"rows": [rows[job] for job in wanted]})
        shutil.rmtree(unfinished, ignore_errors=True)
    print_rows([rows[job] for job in wanted])
    print(f"record: {folder / FILE}; python -m plots experiment={options.experiment} shows it")


def jobs(grid: Grid, runs: Path) -> Iterator[Job]:
    """Yield the sizes at which a model that generates reaches 90 %."""
    for column in grid.columns:
        by_size: dict[int, list[Entrant]] = {}
        for row in grid.model_rows:
            for item in requirements_of(grid, column, row):
                if item.dim is None:
                    continue
                found = deciding_runs(grid, column, row, item)
                if (found["format"] != "tagged").all() and len(found):
                    cells = list(map(str, found["cell"]))
                    names = dict(zip(cells, found.get("weights", found["cell"]), strict=True))
                    cells.sort(key=lambda cell: not (runs / names[cell] / "checkpoint.pt").exists())
                    by_size.setdefault(item.size, []).append(Entrant(row, item.dim, tuple(cells)))
        for size, entrants in sorted(by_size.items()):
            yield Job(column, size, tuple(entrants))


def is_of(row: Row, job: Job, options: Options) -> bool:
    """Tell whether ``row`` has timed what ``job`` asks for, so and on this processor."""
    timed = {model["cell"] for model in row["models"]}
    return (
        all(row.get(name) == getattr(options, name) for name in SETTINGS)
        and row.get("device") == machine(CPU)["device"]
        and len(timed) == len(job.entrants)
        and all(timed & set(entrant.cells) for entrant in job.entrants)
    )


def measure(job: Job, options: Options) -> Row:
    """Time the models of one size in turns; return the record's row."""
    torch.set_num_threads(1)
    with configurations_of(options.config_dir):
        models = {entrant.model: load(entrant, options) for entrant in job.entrants}
    count = max(options.batch, options.answers)
    drawn = [model.task.draw(0, 0, FIRST, count) for model in models.values()]
    if any((other.tokens != drawn[0].tokens).any() for other in drawn):
        raise RunError(f"{job.task}, n = {job.size}: the models do not answer the same questions")
    batch = Chains(drawn[0].select(slice(options.batch)))
    alone = [Chains(drawn[0].select(slice(i, i + 1))) for i in range(options.answers)]
    right = {name: batch.count_right(model.net) for name, model in models.items()}

    def turns(action: Callable[[Loaded], object]) -> dict[str, list[float]]:
        actions = {name: functools.partial(action, model) for name, model in models.items()}
        return in_turns(actions, options.repeats)

    singly = turns(lambda model: [chain.write(model.net) for chain in alone])
    together = turns(lambda model: batch.write(model.net))
    for model in models.values():
        model.prepare_training()
    updates = turns(lambda model: model.update())
    return {
        "task": job.task,
        "size": job.size,
        "max_len": drawn[0].tokens.shape[1] - 1,
        **{name: getattr(options, name) for name in SETTINGS},
        "generated_tokens": batch.total,
        **about(),
        "models": [
            {
                "model": entrant.model,
                "cell": models[entrant.model].cell,
                "dim": entrant.dim,
                "weights": models[entrant.model].weights,
                "right_chains": right[entrant.model],
                "answer_seconds": [one / options.answers for one in singly[entrant.model]],
                "tokens_per_second": [batch.total / one for one in together[entrant.model]],
                "training_step_seconds": updates[entrant.model],
            }
            for entrant in job.entrants
        ],
    }


class Loaded:
    """A model as it is timed: ``net``, the ``task`` that it answers, and its training."""

    def __init__(self, config: CellConfig, cell: str) -> None:
        trained = build_task(config.task)
        self.config, self.cell = config, cell
        self.task = build_measured_task(config, trained)
        self.weights = "untrained"
        if config.model.construct is not None or WeightsFolder.of(config).record() is not None:
            self.net, self.weights = model_of(config, trained), "trained"
        else:
            self.net = initial_model(config, trained, CPU)
        self.net.eval()

    def prepare_training(self) -> None:
        """Make a trainer of a fresh model."""
        task = build_task(self.config.task)
        fresh = initial_model(self.config, task, CPU)
        self.update = training_step(fresh, self.config.recipe, training_mixture(task, MIXTURE))


def load(entrant: Entrant, options: Options) -> Loaded:
    """Return the first of the entrant's cells; its configuration lies beside the table."""
    cell = entrant.cells[0]
    path = Path(options.results_dir) / options.experiment / "configs" / f"{cell}.yaml"
    config, content = read_config(path)
    places = map(Path, (options.results_dir, options.runs_dir, config.data_dir))
    require_trusted_classes(content, path, False, [path.parent, *places])
    require_name(config, content, path)
    return Loaded(dataclasses.replace(config, runs_dir=options.runs_dir), cell)


class Chains:
    """Sequences of which the prompts are given: (B,) generated tokens each, ``total`` in all."""

    def __init__(self, sequences: SequenceSet) -> None:
        self.prompt_lengths = torch.as_tensor(sequences.prompt_lengths).long()  # (B,)
        self.counts = torch.as_tensor(sequences.lengths).long() - self.prompt_lengths  # (B,)
        self.total = int(self.counts.sum())
        self.tokens = torch.from_numpy(sequences.tokens.astype("int64"))  # (B, L + 1)

    @torch.inference_mode()
    def write(self, model: Transformer) -> Tensor:
        """Return (B, longest count) greedy tokens; rows that have ended run along."""
        lengths = self.prompt_lengths
        logits, state = model.prefill(self.tokens[:, : int(lengths.max())], lengths)  # (B, V)
        written = [logits.argmax(-1)]
        for number in range(int(self.counts.max()) - 1):
            positions = (lengths + number).clamp(max=model.max_len - 1)
            written.append(model.step(written[-1], positions, state).argmax(-1))
        return torch.stack(written, 1)

    def count_right(self, model: Transformer) -> int:
        """Count the chains that the model writes token for token as they should be."""
        written = zip(self.write(model), self.tokens, self.prompt_lengths, self.counts, strict=True)
        return sum(bool((row[:n] == gold[at : at + n]).all()) for row, gold, at, n in written)


def print_rows(rows: Sequence[Row]) -> None:
    """Print medians, a line a model."""
    table = [
        [
            f"{row['task']}, n = {row['size']}, {model['model']}",
            model["dim"],
            *(statistics.median(model[name]) for name in LISTS),
            f"{model['weights']}, {model['right_chains']} of {row['batch']} right",
        ]
        for row in rows
        for model in row["models"]
    ]
    header = ["model", "D", "s an answer", "tokens/s", "s a training step", "weights"]
    print_table("At the frontier, medians of CPU seconds of one thread", header, table)
