"""From a name on the command line, or a configuration, to a task; there is no registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from common import UserError, did_you_mean
from instantiate import construct, locate, parameter_names
from tasks.task import Task

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"


def build_task(settings: Mapping[str, Any], key: str = "task") -> Task:
    """Return the task of ``_target_`` with the other ``settings`` as its parameters.

    ``name`` is passed over.  Raises `UserError` for whatever is unknown, wrong or too large,
    naming it below ``key``.
    """
    parameters = {k: v for k, v in settings.items() if k not in ("_target_", "name")}
    cls = locate(settings.get("_target_"), f"{key}._target_", wanted=Task)
    if "capacity" in parameters and "capacity" not in parameter_names(cls):
        capacity = parameters.pop("capacity")
        if capacity is not None:
            raise UserError(
                f"{key}.capacity={capacity}: {cls.__name__} takes no capacity, so its models are "
                "measured at the size that they were trained at (see tasks.task.Task)"
            )
    task = construct(cls, parameters, key)
    task.check_bounds()
    return task


def task_by_name(
    name: str, given: Mapping[str, Any], config_dir: str | None = None, checking: bool = False
) -> Task:
    """Return the task ``name`` (conf/task/NAME.yaml, or the dotted path of a class).

    ``given`` overrides the file's parameters; with ``checking`` the class's ``check_defaults``
    stand between the two.  Raises `UserError` for whatever is unknown or wrong.
    """
    defaults = {"_target_": name} if "." in name else read_config("task", name, config_dir)
    cls = locate(defaults.get("_target_"), f"task {name}: _target_", wanted=Task)
    settings = {**defaults, **(cls.check_defaults if checking else {}), **given}
    if "size" not in settings:
        raise UserError(f"task {name}: --size is missing")
    return build_task(settings)


def config_dirs(extra: str | None = None) -> list[Path]:
    """Return where YAML files are looked for, the most specific first."""
    usual = [Path("conf"), CONF_DIR]
    if extra is None:
        return usual
    if not Path(extra).is_dir():
        raise UserError(f"--config-dir {extra}: no such folder")
    return [Path(extra), *usual]


def read_config(group: str, name: str, config_dir: str | None = None) -> dict[str, Any]:
    """Return the content of GROUP/NAME.yaml from the first folder that has it."""
    folders = [folder / group for folder in config_dirs(config_dir)]
    for folder in folders:
        path = folder / f"{name}.yaml"
        if path.is_file():
            return _read_yaml(path)
    known = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    meant = did_you_mean(name, known)
    raise UserError(f"no {group} named {name!r}: there are {', '.join(known)}{meant}")


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: must hold 'key: value' lines, among them _target_")
    return content


def parse_override(text: str) -> tuple[str, Any]:
    """Split ``key=value``; the value is read as YAML reads it."""
    key, _, value = text.partition("=")
    try:
        return key.removeprefix("task."), yaml.safe_load(value)
    except yaml.YAMLError:
        return key.removeprefix("task."), value
