"""Train and measure one cell; with ``-m``, many.

python train.py task=lis task.size=40 model=sparse model.dim=64 recipe=fast seed=1
python train.py -m model=standard,sparse,linear model.dim=32,64 task.size=6,10
python train.py model.dim=64 seeds=0,1,2
python train.py config=results/quick/configs/<cell>.yaml            # that cell, exactly
torchrun --nproc-per-node=2 train.py task.size=16 model.dim=512     # on two GPUs together
"""

from __future__ import annotations

if __name__ == "__main__":
    import quiet_interrupts  # noqa: F401

import sys
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

import cli
from config.compose import CONF_DIR, plain
from config.files import cell_from_file
from sweeps.job import run, run_and_enter
from sweeps.seeds import run_seeds, with_listed_seeds


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="train")
@cli.task_function
def main(call: DictConfig) -> dict[str, Any] | None:
    """Hydra's entry point."""
    if call.config is not None:
        return run_and_enter(cell_from_file(call.config, plain(call), overridden()))
    if call.seeds is not None and HydraConfig.get().mode == RunMode.RUN:
        run_seeds(plain(call))
        return None
    return run(call)


def overridden() -> list[str]:
    """Return the keys that the command line gives."""
    return [word.lstrip("+~").partition("=")[0] for word in HydraConfig.get().overrides.task]


def command_line() -> None:
    """Read the command line as `main` does, but for ``seeds=0,1,2``."""
    sys.argv = with_listed_seeds(sys.argv)
    main()


if __name__ == "__main__":
    cli.main(command_line)
