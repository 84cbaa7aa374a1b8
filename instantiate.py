"""From the dotted path in a ``_target_`` to a class or function, and to an object made by it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from common import RunError, UserError, did_you_mean

LARGEST_NUMBER = 100_000
ROOT = Path(__file__).resolve().parent
OUR_CLASSES = ("tasks", "models")  # the rooms that a `_target_` of ours lies in
TRUSTED = "COTCOST_TRUST"  # modules that a configuration from a file may name, as my_mixer:other
_DOTTED_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def locate(target: Any, key: str, wanted: type | None = None) -> Any:
    """Return what the dotted path ``target`` names; ``key`` is where it was written.

    ``wanted`` is the class of which it must be a subclass, or ``types.FunctionType`` for a
    function written in Python.  Raises `UserError` for anything else, and when the module cannot
    be imported.
    """
    if not isinstance(target, str) or not _DOTTED_PATH.fullmatch(target):
        raise UserError(f"{key}={target!r}: must be a dotted path such as tasks.lis.LIS")
    found = _imported(target, key)
    if wanted is FunctionType:
        if not inspect.isfunction(found):
            raise UserError(f"{key}={target}: is not a function")
    elif wanted is not None and not (inspect.isclass(found) and issubclass(found, wanted)):
        raise UserError(
            f"{key}={target}: is not a subclass of {wanted.__module__}.{wanted.__qualname__}"
        )
    return found


def require_trusted(target: Any, key: str, trust: bool, never: Iterable[Path]) -> None:
    """Raise `UserError` unless ``target``, which a file names, may be imported; import nothing.

    Modules of the project may; others when the person vouches for them, by ``trust`` or in the
    environment variable `TRUSTED`.  Nothing that lies under ``never``, folders that programs fill,
    may at all.
    """
    if not isinstance(target, str) or not _DOTTED_PATH.fullmatch(target):
        return  # `locate` says what is wrong with it
    if _is_ours(target):
        return
    top, *inner = target.split(".")[:-1]
    if not trust and top not in os.environ.get(TRUSTED, "").split(":"):
        raise UserError(
            f"{key}={target}: names code from outside the project, which would run; if you know "
            f"where it comes from: trust=true, or {TRUSTED}={top} in your environment"
        )
    places = _places(top)
    inside = [place.joinpath(*inner) for place in places] + places
    for folder in map(Path.resolve, never):
        if any(place.resolve().is_relative_to(folder) for place in inside):
            raise UserError(f"{key}={target}: lies under {folder}, from where no code is run")


def _is_ours(dotted_path: str) -> bool:
    """Tell whether a module, or what lies in it, is one of the project's own rooms."""
    top = dotted_path.split(".")[0]
    places = _places(top) if top in OUR_CLASSES else []
    return bool(places) and all(place.is_relative_to(ROOT / top) for place in places)


def _places(module: str) -> list[Path]:
    """Return the file or folders that a top-level module comes from, without importing it."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    origin = [spec.origin] if spec.has_location and spec.origin else []
    return [Path(place).resolve() for place in spec.submodule_search_locations or origin]


def _imported(target: str, key: str) -> Any:
    module_name, _, attribute = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{key}={target}: no module named {error.name!r} (is its folder on PYTHONPATH?)"
        ) from None
    except AttributeError as error:
        if getattr(error, "name", None) != attribute:  # raised inside the module
            raise UserError(_import_failure(target, key, module_name, error)) from None
        raise UserError(f"{key}={target}: {module_name} has no {attribute!r}") from None
    except Exception as error:  # a module may raise anything while it is imported
        raise UserError(_import_failure(target, key, module_name, error)) from None


def _import_failure(target: str, key: str, module_name: str, error: Exception) -> str:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{key}={target}: {module_name} cannot be imported ({reason})"


def parameter_names(made_by: Callable[..., Any]) -> list[str]:
    """Return the names of all parameters of a function or of a class's constructor.

    A constructor that passes ``**kwargs`` on also takes those of the classes above it.
    """
    if not inspect.isclass(made_by):
        return _named(inspect.signature(made_by))
    names: dict[str, None] = {}
    for base in inspect.getmro(made_by):
        if base is object or "__init__" not in vars(base):
            continue
        signature = inspect.signature(vars(base)["__init__"])
        names |= dict.fromkeys(_named(signature))
        if not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            break
    names.pop("self", None)
    return list(names)


def _named(signature: inspect.Signature) -> list[str]:
    parameters = signature.parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def check_parameters(
    made_by: Callable[..., Any],
    parameters: Mapping[str, Any],
    key: str,
    reserved: Collection[str] = (),
) -> None:
    """Raise `UserError` for a name that ``made_by`` does not take, or for a number too large.

    ``reserved`` are parameters that the program gives, and a configuration may not.
    """
    known = [name for name in parameter_names(made_by) if name not in reserved]
    for name, value in parameters.items():
        if name not in known:
            meant = did_you_mean(name, known)
            takes = ", ".join(known) or "no parameters"
            raise UserError(f"unknown key {key}.{name}; {made_by.__name__} takes {takes}{meant}")
        if isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER:
            raise UserError(
                f"{key}.{name}={value}: must be at most {LARGEST_NUMBER:,}, since vocabularies, "
                "masks and weights grow with such numbers"
            )


def construct(
    made_by: Callable[..., Any],
    parameters: Mapping[str, Any],
    key: str,
    reserved: Mapping[str, Any] | None = None,
) -> Any:
    """Call ``made_by`` with ``parameters`` and with the program's own, ``reserved``.

    Raises `UserError`, in one line, for what `check_parameters` refuses and for a `TypeError` or
    `ValueError` of the call; for whatever a call of code from outside the project raises.
    """
    reserved = reserved or {}
    check_parameters(made_by, parameters, key, reserved)
    try:
        return made_by(**reserved, **parameters)
    except (UserError, RunError, MemoryError):
        raise
    except Exception as error:
        if _is_ours(made_by.__module__) and not isinstance(error, TypeError | ValueError):
            raise
        raise UserError(_call_failure(made_by, parameters, key, error)) from error


def _call_failure(
    made_by: Callable[..., Any], parameters: Mapping[str, Any], key: str, error: Exception
) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
    called = f"{key}._target_={made_by.__module__}.{made_by.__qualname__}({given})"
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{called}: {reason} (HYDRA_FULL_ERROR=1 shows where)"
