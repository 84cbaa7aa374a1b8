"""Evaluate a finished training again, from its checkpoint.

    python evaluate.py run=runs/0123456789ab
    python evaluate.py run=runs/0123456789ab task.size=20 show=5
    python evaluate.py run=runs/0123456789ab data.file=sequences.txt out=written.jsonl

The last line of standard output is one JSON object.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

from common import in_one_line, run_command, write_text

CONF_DIR = str(Path(__file__).resolve().parent / "conf")


@hydra.main(version_base="1.3", config_path=CONF_DIR, config_name="evaluate")
@in_one_line
def main(settings: DictConfig) -> None:
    """Measure the run as the command line asks; show and write what the model writes."""
    import torch
    from tqdm import tqdm

    import cotcost
    from evaluation.judge import evaluate
    from experiments.config import measured_task, plain
    from experiments.run import accuracies, load_data, measured_sequences
    from training.device import resolve_device

    call = plain(settings)
    run = cotcost.load(call["run"], call["trust"])
    config = with_measurement(run.config, call)
    torch.set_num_threads(config.machine.threads)
    device = resolve_device(config.machine.device)
    measured = measured_task(config, run.task)
    sequences = measured_sequences(config, run.task, measured, load_data(config, run.task))
    with tqdm(total=len(sequences), desc="evaluating", disable=None, leave=False) as bar:
        result = evaluate(
            run.model, measured, sequences, config.machine.evaluation_memory_mb, device,
            lambda done, total: bar.update(done - bar.n),
        )  # fmt: skip
    if call["show"]:
        shown = sequences.select(slice(call["show"]))
        print("\n\n".join(map(str, cotcost.written(run.model, measured, shown))), end="\n\n")
    if call["out"]:
        every = cotcost.written(run.model, measured, sequences)
        lines = [json.dumps(dataclasses.asdict(one)) for one in every]
        write_text(Path(call["out"]), "\n".join(lines) + "\n")
    told = accuracies(result) | {"seconds": round(result.seconds, 3)}
    others = {k: result.errors[k] for k in ("by_kind", "longest_prefix") if k in result.errors}
    print(json.dumps(told | others))


def with_measurement(config: Any, call: dict[str, Any]) -> Any:
    """Return the configuration measured as the command line asks."""
    from experiments.config import MACHINE_KEYS, MeasureConfig, checked
    from training.device import Machine

    known = config.data_dir if Path(config.data_dir).is_dir() else "data"
    measure = MeasureConfig(
        task={**config.measure.task, **{k: v for k, v in call["task"].items() if v is not None}},
        file=call["data"]["file"],
        count=call["count"],
    )
    machine = checked(Machine, {key: call[key] for key in MACHINE_KEYS})
    data_dir = call["data_dir"] or known
    return dataclasses.replace(config, measure=measure, machine=machine, data_dir=data_dir)


if __name__ == "__main__":
    run_command(main)
