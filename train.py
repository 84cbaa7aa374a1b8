"""Train and evaluate one cell, or many.

python train.py task=lis task.size=40 model=sparse model.dim=64 recipe=fast seed=1
python train.py -m model=standard,sparse,linear model.dim=32,64 seed=0,1,2
python train.py cell=overnight/ID          # a cell of a table again
"""

import re
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from common import CONF_DIR, UserError, exit_on_user_error, plain, run_command


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="train")
def main(settings: DictConfig) -> Any:
    in_multirun = HydraConfig.get().mode == RunMode.MULTIRUN
    # Launchers note what a job raises and start the next one; they do not catch SystemExit.
    return (run if in_multirun else exit_on_user_error(run))(settings)


def run(settings: DictConfig) -> Any:
    """Run the cell that the command line describes; returns its answer accuracy, for sweepers that
    optimise."""
    from experiments.config import cell_from, require_own_name
    from experiments.names import cell_name, source_digests
    from experiments.run import run_and_report

    given, words = plain(settings), HydraConfig.get().overrides.task
    for word in words:
        if several := re.match(r"(task|model|recipe|data|measure)=\[", word):
            raise UserError(f"{several[1]}: give one name, not a list")
    if given["cell"] is not None:
        given |= published_settings(given)
    elif (choice := HydraConfig.get().runtime.choices.get("model")) and not any(
        word.lstrip("+").startswith("model.name=") for word in words
    ):
        require_own_name(choice, given["model"])
    config = cell_from(given)
    if given["cell"] and source_digests(config) and cell_name(config) not in given["cell"]:
        raise UserError(f"cell={given['cell']}: its code from outside the project has changed")
    row = run_and_report(config)
    return row and row["answer_accuracy"]


def published_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The configuration of the published cell EXPERIMENT/ID."""
    from experiments.config import HASHED_SECTIONS, require_trusted
    from experiments.table import published_cell

    for word in HydraConfig.get().overrides.task:
        if word.lstrip("+~").partition("=")[0].partition(".")[0] in HASHED_SECTIONS:
            raise UserError(f"{word}: cell= runs a cell exactly as it was; remove this override")
    shipped = str(CONF_DIR.parent / "results")
    published = published_cell(given["cell"], [given["results_dir"], shipped])
    require_trusted(published, given["cell"], given["trust"] is True)
    return published


if __name__ == "__main__":
    run_command(main)
