"""Evaluate a finished run again, from its checkpoint.

    python evaluate.py run=runs/0123456789ab
    python evaluate.py run=runs/0123456789ab task.size=20 show=5
    python evaluate.py run=runs/0123456789ab state_format=float8_e4m3
    python evaluate.py run=runs/0123456789ab data.file=sequences.txt out=written.jsonl

The last line of standard output is one JSON object.
"""

import dataclasses
import json
from itertools import islice
from pathlib import Path

import hydra
from omegaconf import DictConfig

from common import CONF_DIR, exit_on_user_error, plain, run_command, write_text


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="evaluate")
@exit_on_user_error
def main(settings: DictConfig) -> None:
    import torch
    from tqdm import tqdm

    import cotcost
    from experiments.config import EvaluateCall, MeasureConfig, call_from, measured_task
    from experiments.row import accuracies
    from experiments.run import load_data, measure, measured_sequences
    from training.device import Machine

    given = plain(settings)
    call: EvaluateCall = call_from(EvaluateCall, given)
    run = cotcost.load(call.run, call.trust)
    config = dataclasses.replace(
        run.config,
        measure=call_from(MeasureConfig, {**given, "file": given["data"]["file"]}),
        machine=call_from(Machine, given),
        data_dir=call.data_dir or run.config.data_dir,
    )
    torch.set_num_threads(config.machine.threads)
    measured = measured_task(config, run.task)
    data = load_data(config, run.task)
    sequences = measured_sequences(config, run.task, measured, data)
    if call.out:  # fails before the evaluation
        Path(call.out).parent.mkdir(parents=True, exist_ok=True)
        Path(call.out).open("a").close()
    with tqdm(total=len(sequences), desc="evaluating", disable=None, leave=False) as bar:
        result = measure(
            config, run.model, measured, sequences, data.train,
            lambda done, total: bar.update(done - bar.n),
        )  # fmt: skip
    if call.show or call.out:
        most = None if call.out else call.show
        chains = list(islice(cotcost.written(measured, sequences, result.generation), most))
        print("".join(f"{chain}\n\n" for chain in chains[: call.show]), end="")
        if call.out:
            lines = [json.dumps(dataclasses.asdict(chain)) for chain in chains]
            write_text(Path(call.out), "\n".join(lines) + "\n")
    found = accuracies(result)
    found["seconds"] = found.pop("eval_seconds")
    found |= {k: result.errors[k] for k in ("by_kind", "longest_prefix") if k in result.errors}
    print(json.dumps(found))


if __name__ == "__main__":
    run_command(main, lambda key: "")  # a run's settings are fixed
