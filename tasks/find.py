"""From a name on the command line to a task: a YAML file or a dotted path, and no registry."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import yaml

from errors import UserError
from tasks.task import Task

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"


def config_dirs(extra: str | None = None) -> list[Path]:
    """Return where YAML files are looked for, the most specific first."""
    usual = [Path("conf"), CONF_DIR]
    if extra is None:
        return usual
    if not Path(extra).is_dir():
        raise UserError(f"--config-dir {extra}: no such folder")
    return [Path(extra), *usual]


def find_task(
    name: str, given: dict[str, Any], config_dir: str | None = None, checking: bool = False
) -> Task:
    """Build the task ``name`` (conf/task/NAME.yaml, or the dotted path of a class).

    ``given`` overrides the file's parameters; with ``checking`` the class's ``check_defaults``
    stand between the two.  Raises `UserError` for whatever is unknown or wrong.
    """
    defaults = {"_target_": name} if "." in name else read_config("task", name, config_dir)
    cls = locate(defaults.pop("_target_", None), name)
    defaults.pop("name", None)
    parameters = {**defaults, **(cls.check_defaults if checking else {}), **given}
    known = cls.parameter_names()
    for key in parameters:
        if key not in known:
            raise UserError(f"unknown parameter {key!r}: task {name} takes {', '.join(known)}")
    if "size" not in parameters:
        raise UserError(f"task {name}: --size is missing")
    try:
        return cls(**parameters)
    except (TypeError, ValueError) as error:
        raise UserError(f"task {name}: {error}") from None


def read_config(group: str, name: str, config_dir: str | None = None) -> dict[str, Any]:
    """Return the content of GROUP/NAME.yaml from the first folder that has it."""
    folders = [folder / group for folder in config_dirs(config_dir)]
    for folder in folders:
        path = folder / f"{name}.yaml"
        if path.is_file():
            return _read_yaml(path)
    known = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    close = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise UserError(f"no {group} named {name!r}: there are {', '.join(known)}{hint}")


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: must hold 'key: value' lines, among them _target_")
    return content


def locate(target: Any, name: str) -> type[Task]:
    """Return the class that a dotted path names; its folder may be the current one."""
    if not isinstance(target, str) or "." not in target:
        raise UserError(f"task {name}: _target_={target!r} must be a dotted path to a class")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    module_name, _, attribute = target.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise UserError(f"task {name}: _target_={target} cannot be loaded: {error}") from None
    if not (inspect.isclass(cls) and issubclass(cls, Task)):
        raise UserError(f"task {name}: _target_={target} is not a subclass of tasks.task.Task")
    return cls


def parse_override(text: str) -> tuple[str, Any]:
    """Split ``key=value``; the value is read as YAML reads it."""
    key, _, value = text.partition("=")
    try:
        return key.removeprefix("task."), yaml.safe_load(value)
    except yaml.YAMLError:
        return key.removeprefix("task."), value
