"""Names of training runs and evaluations: hashes of the settings that affect them. `runs/<run>/`
holds one training run. A cell evaluated with the default settings has the name of its run."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from common import UserError, locate, sha256_of
from experiments.config import OUR_PACKAGES, CellConfig, deciding_settings, measured_settings
from tasks.sources import sources

# Increase this when a code change alters results, beyond rounding, under the same configuration.
RESULTS_VERSION = 2


def run_name(config: CellConfig) -> str:
    """12 hexadecimal digits that name the training run."""
    return _hash(training_settings(config))


def cell_name(config: CellConfig) -> str:
    """12 hexadecimal digits that name the evaluation."""
    return _hash(cell_settings(config))


def training_settings(config: CellConfig) -> dict[str, Any]:
    """What determines the weights: task, model, recipe, data and seed. Files are identified by
    content, classes from outside the project by source."""
    settings = deciding_settings(config)
    del settings["measure"]
    model = {key: value for key, value in settings["model"].items() if value is not None}
    data = settings["data"]
    files = {key: sha256_of(data[key]) for key in ("file", "train_file") if data[key] is not None}
    settings |= {"model": model, "data": data | files}
    if config.recipe.epochs is not None:
        settings["steps_of_epochs"] = "whole batches"  # formerly sequences / batch_size
    digests = source_digests(config)
    return {**settings, "sources": digests} if digests else settings


def cell_settings(config: CellConfig) -> dict[str, Any]:
    """Settings that determine a row: those of training, and those of evaluation that differ from
    the defaults."""
    measure, measured = config.measure, measured_settings(config.task, config.measure.task)
    whole = config.data.test if measure.split == "test" and not config.data.file else None
    found = {
        "task": {k: value for k, value in measured.items() if config.task.get(k) != value} or None,
        "split": None if measure.split == "test" else measure.split,
        "file": measure.file and sha256_of(measure.file),
        "count": None if measure.count == whole else measure.count,
        "state_format": measure.state_format,
        "weight_format": measure.weight_format,
    }
    own = {key: value for key, value in found.items() if value is not None}
    return training_settings(config) | ({"measure": own} if own else {})


def source_digests(config: CellConfig) -> dict[str, str]:
    """A digest of the source of each class or function from outside the project, and of the modules
    that it imports (`tasks.sources`)."""
    model = config.model
    parts = (config.task, model.mixer, *(model.mixers or []))
    targets = {str(part["_target_"]) for part in parts if part and part.get("_target_")}
    found = {}
    for target in sorted(targets):
        if not target.startswith(OUR_PACKAGES):
            cls = locate(target, "_target_")
            try:
                own = sources(cls)
                found[target] = own.pop(cls.__module__)
            except (AttributeError, TypeError):
                raise UserError(f"_target_={target}: not a Python class or function") from None
            found |= own
    return found


def _hash(settings: Mapping[str, Any]) -> str:
    text = json.dumps([RESULTS_VERSION, settings], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
