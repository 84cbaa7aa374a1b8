"""A trained model in three lines.

    run = cotcost.load("runs/0123456789ab")
    run.generate("3 / 4 / ( 10 - 1 * 2 ) =")
    run.model, run.task

cotcost.build("model=gla", "model.dim=64", "task=lis") is an untrained model.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from common import UserError, compose_plain
from evaluation.generate import Generation, generate
from evaluation.judge import without_markers
from experiments.config import CellConfig, cell_from, require_trusted
from experiments.names import run_name, source_digests
from experiments.run import initial_model, load_model
from experiments.run_folder import Run
from models.transformer import Transformer
from tasks.sequences import EOS, SequenceSet
from tasks.task import Task, build_task


@dataclass
class Written:
    """A model's generation for one prompt, and the correct chain and answer, as tokens.
    `first_mistake` is the index of the first wrong token, None if all are right, `len(tokens)` if
    the model stops too early. `answer` is None if generation does not end."""

    prompt: list[str]
    tokens: list[str]
    right: list[str]
    answer: list[str] | None
    first_mistake: int | None

    def __str__(self) -> str:
        """Prompt, generated tokens (the first wrong one in brackets) and correct ones."""
        shown = list(self.tokens)
        if self.first_mistake == len(shown):
            shown.append("end")
        if self.first_mistake is not None:
            shown[self.first_mistake] = f"[{shown[self.first_mistake]}]"
        lines = [f"prompt {' '.join(self.prompt)}", f"model  {' '.join(shown)}"]
        return "\n".join([*lines, f"right  {' '.join(self.right)}"])


@dataclass
class LoadedRun:
    """A finished training run: its configuration, task and model."""

    config: CellConfig = field(repr=False)
    task: Task
    model: Transformer = field(repr=False)

    def generate(self, prompt: str) -> Written:
        """The model's greedy generation after a prompt, tokens separated by spaces. UserError
        for a prompt that the task cannot solve."""
        task, tokens = self.task, prompt.split()
        marker = task.answer_marker
        answer = next(token for token in task.own_tokens if token != marker)  # any
        try:
            if task.parse([*tokens, answer]).prompt != tokens:
                raise UserError(f"must have exactly one {marker!r}, at the end")
            sequences = task.encode([task.complete(tokens)])
        except UserError as error:
            reason = f"{error} (tokens are separated by spaces)"
            raise UserError(f"prompt {prompt!r}: {reason}") from None
        except (ValueError, LookupError) as error:
            said = str(error) if isinstance(error, ValueError) else ""
            reason = task.check_prompt(tokens) or said or "not a prompt"
            raise UserError(f"prompt {prompt!r}: {reason}") from None
        return next(written(self.task, sequences, generate(self.model, sequences)))


def load(folder: str | Path, trust: bool = False) -> LoadedRun:
    """The run in `folder`, e.g. runs/0123456789ab. UserError if there is none, its checkpoint is
    damaged, or it names code from outside the project without `trust`."""
    folder = Path(folder).resolve()
    path = folder / "config.yaml"
    if not path.is_file():
        raise UserError(f"run={folder}: no such run")
    settings = yaml.safe_load(path.read_text())
    if not isinstance(settings, dict) or "task" not in settings:
        raise UserError(f"{path}: not the configuration of a cell")
    require_trusted(settings, str(path), trust)
    config = cell_from({**settings, "runs_dir": str(folder.parent)})
    run = Run(folder.parent, folder.name)
    if run.training() is None:
        raise UserError(f"run={folder}: training is not finished; rerun its command to resume")
    if source_digests(config) and run_name(config) != run.name:
        raise UserError(
            f"run={folder}: renamed, or its code from outside the project has changed; restore it "
            "or rerun the run's command"
        )
    task = build_task(config.task)
    return LoadedRun(config, task, load_model(config, task, run))


def build(*words: str, config_dir: str | Path | None = None) -> Transformer:
    """An untrained model from train.py's overrides; the YAML of `model=gla` is in conf/model or
    `config_dir`/model; `blocks[0].mixer` is the first mixer."""
    config = cell_from(compose_plain("train", words, config_dir), config_dir)
    return initial_model(config, build_task(config.task))


def written(task: Task, sequences: SequenceSet, generation: Generation) -> Iterator[Written]:
    """What a model generated for each prompt of `sequences`; with labels, the labels it gave."""
    decode, judged = task.vocabulary.decode, sequences
    if task.format == "online":
        judged, generation = without_markers(sequences, generation)
    gold = judged.tokens if judged.labels is None else judged.labels
    for row in range(len(sequences)):
        start, end = judged.prompt_lengths[row], generation.lengths[row]
        tokens = decode(generation.tokens[row, start:end])
        right = decode(gold[row, start : judged.lengths[row]])
        mistake = int(generation.first_mistake[row]) - int(start)
        yield Written(
            prompt=decode(sequences.tokens[row, : sequences.given_lengths[row]]),
            tokens=[token for token in tokens if token != EOS or sequences.labels is not None],
            right=[token for token in right if token != EOS],
            answer=task.extract_answer(tokens) if sequences.labels is None else tokens[-1:],
            first_mistake=mistake if mistake >= 0 else None,
        )
