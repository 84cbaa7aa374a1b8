"""Shared by all packages: one-line errors, atomic writes, options of the small commands."""

import difflib
import errno
import functools
import hashlib
import importlib
import inspect
import json
import os
import re
import sys
import tempfile
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

CONF_DIR = Path(__file__).resolve().parent / "conf"
T = TypeVar("T")
STRICT: Any = {"extra": "forbid", "strict": True, "allow_inf_nan": False}  # of pydantic dataclasses


BAD_PATH = (
    errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EROFS
)  # fmt: skip


def is_bad_path(error: BaseException) -> bool:
    """Whether the error names a path that the user has to change."""
    return isinstance(error, OSError) and bool(error.filename) and error.errno in BAD_PATH


class UserError(Exception):
    """Invalid or missing user input: a value, a name, a file, a device. Exit status 2."""


class RunError(Exception):
    """A run that failed: divergence, a full disk. Exit status 1."""


class WorkerDiedError(RunError):
    """A job's process ended without a result."""


def exit_on_user_error(function: Callable[..., Any]) -> Callable[..., Any]:
    """Print a UserError or RunError of `function` as one line, and exit with its status."""

    import yaml

    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (UserError, RunError) as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2 if isinstance(error, UserError) else 1)
        except yaml.YAMLError as error:
            print("error:", " ".join(str(error).split()), file=sys.stderr)
            sys.exit(2)
        except OSError as error:
            if not is_bad_path(error):
                raise
            print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
            sys.exit(2)

    return wrapper


def run_command(main: Callable[[], Any], suggest: Callable[[str], str] | None = None) -> None:
    """Run a Hydra entry point; Hydra's errors, e.g. an unknown key, exit with status 2. `suggest`
    completes the message for an unknown key."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # pass errors on unchanged
    # Workers of a launcher run this clone's code, whichever is installed.
    paths = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    # A job submitted from inside an allocation would inherit its bindings and limits.
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        if name != "SLURM_CONF":
            del os.environ[name]
    try:
        exit_on_user_error(main)()
    except (HydraException, OmegaConfBaseException) as error:
        reason = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else ""
        word = getattr(error, "override", None)  # that cannot be parsed
        unknown = re.match(r"Could not override '([\w.]+)'", str(error))
        near = (suggest or suggest_key)(unknown[1]) if unknown else ""
        if str(word).startswith("overrides="):
            near = "; write 'overrides=[\"KEY=VALUE\"]'"
        text = one_line(f"{f'{word}: ' if word else ''}{error} {reason}")
        if unknown:
            text = f"{unknown[1]}: no such key{'' if near else f'; +{unknown[1]}=VALUE adds it'}"
        print(f"error: {text}{near}", file=sys.stderr)
        sys.exit(2)
    except (RuntimeError, ValueError) as error:  # submitit without SLURM; model=2
        if not str(error).startswith(("Could not detect", "Config group override must")):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """ "; did you mean ...?" with the closest of the `known` names, or ""."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def one_line(error: object) -> str:
    """The text of a Hydra error, without the configuration's name and the folders it searched."""
    text = re.sub("^In '[^']*': ", "", str(error).partition("Config search path:")[0])
    return " ".join(text.split())


def suggest_key(key: str) -> str:
    """ "; did you mean GROUP.KEY?" for a key without its group, or a misspelt GROUP.KEY."""
    known = [
        f"{group}.{found}"
        for group in ("task", "model", "recipe", "data", "measure", "logger")
        for path in (CONF_DIR / group).glob("*.yaml")
        for found in re.findall(r"^(\w+):", path.read_text(), re.MULTILINE)
    ]
    same = [name for name in known if name.endswith(f".{key}")]
    if same or "." not in key:
        return f"; did you mean {same[0]}?" if same else ""
    return did_you_mean(key, known)


def compose_plain(
    config_name: str | None, overrides: Sequence[str] = (), config_dir: str | Path | None = None
) -> dict[str, Any]:
    """Compose a configuration, in a Hydra application with its search path; `config_dir` adds its
    YAML files to ours."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    words = list(overrides)
    if config_dir:
        words.append(f"hydra.searchpath=['file://{Path(config_dir).absolute()}']")
    if GlobalHydra.instance().is_initialized():
        return plain(compose(config_name, overrides=words))
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return plain(compose(config_name, overrides=words))


def plain(config: Any) -> dict[str, Any]:
    """An OmegaConf configuration as plain, resolved data."""
    from omegaconf import OmegaConf
    from omegaconf.errors import MissingMandatoryValue

    try:
        content: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise UserError(f"missing: {error.full_key}=VALUE") from None
    return content


def checked(kind: Any, values: Mapping[str, Any], where: str = "") -> Any:
    """`values` as `kind`; pydantic's findings become one UserError, beginning with `where`."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(json.dumps(values))
    except ValidationError as error:
        raise UserError(where + "; ".join(map(_in_words, error.errors()))) from None


def _in_words(found: Any) -> str:
    key = ".".join(map(str, found["loc"])).removeprefix("machine.")  # top-level keys
    value = found["input"]
    shown = "" if isinstance(value, dict | list) else f"={value!r}"
    reason = found["msg"].removeprefix("Value error, ").replace("a valid array", "a list")
    return f"{key}{shown}: {reason}"


def read_options(function: Callable[..., Any], words: Sequence[str]) -> dict[str, Any]:
    """Arguments of `function` from words `key=value`; a list is `key=a,b`. UserError for an unknown
    or missing key, or a value of another type."""
    import yaml
    from pydantic import TypeAdapter, ValidationError

    types = typing.get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    known = f"the keys are {', '.join(parameters)}"
    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in parameters:
            problem = "unknown key" if equals else "write KEY=VALUE"
            raise UserError(f"{word}: {problem}; {known}{did_you_mean(key, parameters)}")
        if typing.get_origin(types[key]) is tuple:
            value = f"[{value.strip('[]')}]"
        try:
            read = value if types[key] is str else yaml.safe_load(value)  # 2025 can be a name
            options[key] = TypeAdapter(types[key]).validate_python(read)
        except ValidationError as error:
            raise UserError(f"{word}: {error.errors()[0]['msg']}") from None
        except yaml.YAMLError:
            raise UserError(f"{word}: not a YAML value") from None
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in options:
            raise UserError(f"{key}=... is missing; {known}")
    return options


def locate(target: str, key: str) -> Any:
    """The class or function at a dotted path, e.g. `tasks.lis.LIS`. UserError naming `key`, where
    the path was written, if there is no such module or name; errors while the module runs are
    raised as they are."""
    module_name, _, name = str(target).rpartition(".")
    if not module_name:
        raise UserError(f"{key}={target}: not a dotted path, e.g. tasks.lis.LIS")
    try:
        found = importlib.import_module(module_name)
    except (ModuleNotFoundError, ValueError) as error:
        missing = getattr(error, "name", None) or module_name
        if isinstance(error, ModuleNotFoundError) and not module_name.startswith(missing):
            raise
        raise UserError(f"{key}={target}: no module {missing!r} (is it on PYTHONPATH?)") from None
    if not hasattr(found, name):
        near = did_you_mean(name, vars(found), f"{module_name}.")
        raise UserError(f"{key}={target}: {module_name} has no {name!r}{near}")
    return getattr(found, name)


def construct(base: type[T], settings: Mapping[str, Any], key: str, **given: Any) -> T:
    """The subclass of `base` that `settings` name under `_target_`, called with the other settings
    and with those `given` that it takes. UserError naming `key` for an unknown or missing
    parameter, or a value that is not of its annotated type."""
    target = str(settings.get("_target_"))
    cls = locate(target, f"{key}._target_")
    if not (inspect.isclass(cls) and issubclass(cls, base)):
        name = f"{base.__module__}.{base.__name__}"
        raise UserError(f"{key}._target_={target}: is not a subclass of {name}")
    own = {name: value for name, value in settings.items() if name != "_target_"}
    parameters = parameters_of(cls)
    takes = {name: found for name, found in parameters.items() if name not in given}
    for name, value in own.items():
        if name not in takes:
            raise UserError(
                f"{key}: {cls.__name__}: no parameter {name!r}; it takes "
                f"{', '.join(takes) or 'no parameters'}{did_you_mean(name, takes)}"
            )
        default = takes[name].default
        if value != default or type(value) is not type(default):
            _check_type(takes[name].annotation, value, f"{key}.{name}")
    missing = [n for n, p in takes.items() if p.default is p.empty and n not in own]
    if missing:
        raise UserError(f"{key}: {cls.__name__} needs {', '.join(missing)}")
    return cls(**{name: value for name, value in given.items() if name in parameters}, **own)


def parameters_of(cls: type) -> dict[str, inspect.Parameter]:
    """Parameters of a class, including those passed on to its bases."""
    found: dict[str, inspect.Parameter] = {}
    for source in inspect.getmro(cls):
        own = inspect.signature(source).parameters.values()
        for p in own:
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                found.setdefault(p.name, p)
        if not any(p.kind == p.VAR_KEYWORD for p in own):
            break
    return found


def _check_type(kind: Any, value: Any, key: str) -> None:
    """Raise UserError for a YAML value that is not of the annotated type `kind`."""
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

    if kind is inspect.Parameter.empty or isinstance(kind, str):  # unannotated, or not evaluated
        return
    config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    try:
        TypeAdapter(kind, config=config).validate_json(json.dumps(value))
    except ValidationError as error:
        raise UserError(f"{key}={value!r}: {error.errors()[0]['msg']}") from None
    except PydanticUserError:
        return  # a kind that pydantic does not know


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write `content` atomically: readers see the old content or the new. RunError on a full
    disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            temporary = Path(folder) / path.name
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RunError(f"{path}: the disk is full; free some space and rerun") from error


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1) + "\n")


def sha256_of(path: str | Path) -> str:
    """The SHA-256 of a file in hexadecimal; UserError if there is none."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
