"""What to say of the errors that Hydra, OmegaConf and Python raise about a command line."""

from __future__ import annotations

import re
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverrideParseException, OverridesParser
from hydra.core.override_parser.types import QuotedString
from hydra.errors import ConfigCompositionException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, MissingMandatoryValue
from yaml import MarkedYAMLError

from common import did_you_mean

CELL_SECTIONS = ("task", "model", "recipe", "data", "measure", "seed")  # what decides a cell


def in_our_words(error: Exception) -> str | None:
    """Return one line that says what was wrong with the call and what would be right.

    None for errors that have none here.
    """
    said = (
        unreadable,
        damaged_yaml,
        wrong_group,
        no_such_file,
        several_values,
        missing_argument,
        too_long,
        unknown_key,
    )
    return next((words for say in said if (words := say(error))), None)


def unreadable(error: Exception) -> str | None:
    """Return what to say of an override that Hydra cannot parse, None for other errors."""
    if not isinstance(error, OverrideParseException):
        return None
    given = _as_given(str(error.override))
    if given.startswith("overrides="):
        wanted = given.removeprefix("overrides=").strip("[]\"' ") or "task.size=4"
        return f"{given}: a list of overrides is wanted; write 'overrides=[\"{wanted}\"]'"
    return f"{given}: cannot be read; write KEY=VALUE, KEY=[A,B] or \"KEY='any text'\""


def damaged_yaml(error: Exception) -> str | None:
    """Return what to say of a file of conf/ that is no YAML, None for other errors."""
    if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        return None
    mark = error.problem_mark
    return f"{mark.name}, line {mark.line + 1}: not readable as YAML ({error.problem})"


def wrong_group(error: Exception) -> str | None:
    """Return what to say of a config group that does not exist here."""
    group = re.search(r"Could not override '(\w+)'", str(error))
    if group and group[1] == "experiment":
        return "experiment: train.py runs one cell; python sweep.py experiment=NAME runs a grid"
    return of_cells(group[1]) if group and group[1] in CELL_SECTIONS else None


def of_cells(key: str) -> str:
    """Return what to say of a setting of cells that is given to a whole sweep."""
    return (
        f"{key}: the experiment decides it; only.size=4 keeps some of its cells (so only.model=, "
        "only.dim=, …), 'overrides=[\"task.size=4\"]' changes them all"
    )


def no_such_file(error: Exception) -> str | None:
    """Return what to say of a name that no file of its config group has."""
    if not isinstance(error, MissingConfigException) or not error.missing_cfg_file:
        return None
    group, _, name = error.missing_cfg_file.rpartition("/")
    if not group or not error.options:
        return None
    known = ", ".join(error.options)
    return f"no {group} named {name!r}: there are {known}{did_you_mean(name, error.options)}"


def several_values(error: Exception) -> str | None:
    """Return what to say of several values where one is taken."""
    found = re.match(r"Ambiguous value for argument '([^=]+)=(.*)'", str(error))
    if not isinstance(error, ConfigCompositionException) or not found:
        return None
    key, values = found.groups()
    return f"{key}={values}: one value is taken here; -m runs each, [{values}] is a list of them"


def missing_argument(error: Exception) -> str | None:
    """Return what to say of a call without the one argument that it needs."""
    if isinstance(error, MissingMandatoryValue) and error.full_key == "run":
        return "run is missing; write run=runs/CELL, the folder of a trained cell"
    said, _, options = str(error).partition("Available options:")
    if isinstance(error, ConfigCompositionException) and "specify 'experiment'" in said:
        return f"experiment is missing; write experiment=NAME: {', '.join(options.split())}"
    return None


def nameless_groups(words: list[str]) -> list[str]:
    """Return the overrides that give a group of conf/ what cannot be a file's name, such as null.

    Hydra tells of these in many ways, of lists of numbers not at all.
    """
    groups = "|".join(p.name for p in (Path(__file__).parent / "conf").iterdir() if p.is_dir())
    given = [word for word in words if re.match(rf"[+~]*({groups}|hydra/\w+)(@[\w.]+)?=", word)]
    return [word for word in given if not _names_a_file(word)]


def _names_a_file(word: str) -> bool:
    try:
        override = OverridesParser.create().parse_override(word)
    except OverrideParseException:
        return True  # Hydra says why it cannot be read
    value = override.value()
    name = value.text if isinstance(value, QuotedString) else value
    return override.is_sweep_override() or (isinstance(name, str) and name != "")


def whole_keys(words: list[str]) -> list[str]:
    """Return the words with ``only.task.monoid=A5`` as an entry ``task.monoid`` of ``only``.

    Hydra would look below ``only.task``, which is a value.
    """
    return [re.sub(r"^only\.(\w+(?:\.\w+)+)=(.+)$", r"++only={\1:\2}", word) for word in words]


def _as_given(word: str) -> str:
    """Return the word that `whole_keys` was given."""
    return re.sub(r"^\+\+only=\{([\w.]+):(.+)\}$", r"only.\1=\2", word)


def too_long(error: Exception) -> str | None:
    """Return what to say of a number with more digits than Python reads, None for other errors."""
    if isinstance(error, ValueError) and "for integer string conversion" in str(error):
        return "a number on the command line has thousands of digits"
    return None


def unknown_key(error: Exception) -> str | None:
    """Return what to say of an override whose key does not exist, None for other errors.

    Hydra advises to append it with a "+", which is seldom what a mistyped key needs; where an
    object is described (``_target_``) it may be.
    """
    cause = error.__cause__
    if not isinstance(cause, ConfigKeyError | ConfigAttributeError):
        return None
    if not isinstance(cause.parent_node, DictConfig):
        return None
    known = [str(key) for key in cause.parent_node if key not in ("hydra", "_target_")]
    if "only" in known and str(cause.full_key) in CELL_SECTIONS:
        return of_cells(str(cause.full_key))
    above = str(cause.full_key).removesuffix(str(cause.key))
    if meant := did_you_mean(str(cause.key), known, above):
        return f"unknown key {cause.full_key}{meant}"
    if "_target_" in cause.parent_node:
        return None
    if not known:
        return f"unknown key {cause.full_key}; {above[:-1]} is one value, without keys of its own"
    return f"unknown key {cause.full_key}; there are {', '.join(known)}"


def one_line(message: str) -> str:
    """Return ``message`` on one line, without Hydra's list of search paths."""
    message = re.split(r"\n\s*Config search path:|\nSee https?://", message)[0]
    lines = [line.strip() for line in message.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("full_key:", "object_type="))]
    return " ".join(kept)
