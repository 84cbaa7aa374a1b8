"""Train and evaluate one cell, or many.

python train.py task=lis task.size=40 model=sparse model.dim=64 recipe=fast seed=1
python train.py -m model=standard,sparse,linear model.dim=32,64 seed=0,1,2
python train.py cell=overnight/ID          # that cell of a table again, exactly
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

from common import in_one_line, run_command

CONF_DIR = str(Path(__file__).resolve().parent / "conf")


@hydra.main(version_base="1.3", config_path=CONF_DIR, config_name="train")
@in_one_line
def main(settings: DictConfig) -> Any:
    """Run the cell that the command line describes; return the row, or ``objective`` of it."""
    from experiments.config import cell_from, plain, require_trusted
    from experiments.run import run_and_report
    from experiments.table import published_cell

    given = plain(settings)
    if given["cell"] is not None:
        published = published_cell(given["cell"], [given["results_dir"], "results"])
        require_trusted(published, given["cell"], given["trust"])
        given |= published
    row = run_and_report(cell_from(given))
    return row[given["objective"]] if row and given["objective"] else row


if __name__ == "__main__":
    run_command(main)
