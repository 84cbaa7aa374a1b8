"""Shared by all packages: one-line errors, composed and checked settings, atomic writes."""

import contextlib
import difflib
import errno
import functools
import hashlib
import inspect
import io
import json
import os
import pydoc
import re
import shlex
import sys
import tempfile
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

CONF_DIR = Path(__file__).resolve().parent / "conf"
T = TypeVar("T")
# In the path of a pydantic error: members of a union, not keys.
UNION_TAG = re.compile(r"bool|int|float|str|literal\[.*|(list|dict)\[.*|constrained-.*")
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


def exit_on_user_error(
    function: Callable[..., Any], suggest: Callable[[str], str] | None = None
) -> Callable[..., Any]:
    """Turn user errors in `function` into one line on stderr and exit status 2 (RunError: 1).
    `suggest` completes the line for an unknown key."""

    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            line = user_line(error, suggest or suggest_key)
            if line is None:
                raise
            print(f"error: {line}", file=sys.stderr)
            sys.exit(1 if isinstance(error, RunError) else 2)

    return wrapper


def run_command(main: Callable[[], Any], suggest: Callable[[str], str] | None = None) -> None:
    """Run a Hydra entry point, with `exit_on_user_error`."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # pass errors on unchanged
    # Workers of a launcher run this clone's code, whichever is installed.
    paths = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ["COTCOST_COMMAND"] = shlex.join(["python", Path(sys.argv[0]).name, *sys.argv[1:]])
    # A job submitted from inside an allocation would inherit its bindings and limits.
    for name in [n for n in os.environ if n.startswith("SLURM_") and n != "SLURM_CONF"]:
        del os.environ[name]
    try:
        exit_on_user_error(main, suggest)()
    except KeyboardInterrupt:
        sys.exit(130)


def user_line(error: Exception, suggest: Callable[[str], str]) -> str | None:
    """What an error tells the user, in one line; None for a bug."""
    import yaml
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, OSError) and is_bad_path(error):
        return f"{error.filename}: {error.strerror}"
    if unknown := re.match(r"Could not override '([\w.]+)'", str(error)):
        inner = getattr(error.__cause__, "full_key", None) or ""  # key in a dict
        key = max(unknown[1], inner, key=len)
        near = suggest(key.removeprefix("machine."))
        new = "did you mean" not in near and key.startswith(("task.", "model.mixer."))
        return f"{key}: no such key{near}{f'; +{key}=VALUE adds it' if new else ''}"
    if several := re.match(r"Key '(\w+)' is not in struct\s+full_key: hydra.", str(error)):
        return f"{several[1]}: give one name, not a list"
    if str(error).startswith("Input config does not have a `_target_`"):
        return "hydra.launcher is not a name; write hydra/launcher=NAME"
    if isinstance(error, HydraException | OmegaConfBaseException | yaml.YAMLError):
        word = getattr(error, "override", None)  # the bad override
        near = ""
        if f"{word}".startswith("overrides="):
            near = "; write 'overrides=[\"KEY=VALUE\"]'"
        elif word is not None:
            near = f"; write \"{word.partition('=')[0] if '=' in word else 'KEY'}='VALUE'\""
        if isinstance(error, MissingConfigException) and error.options:
            name = str(error.missing_cfg_file).rpartition("/")[2]
            near = did_you_mean(name, error.options)
            if not any("config-dir" in typed for typed in sys.argv):
                near += "; --config-dir=DIR adds your own"
        reason = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else ""
        text = f"{f'{word}: ' if word else ''}{error} {reason}"
        # Without the configuration's name and the folders it searched.
        text = re.sub("^In '[^']*': ", "", text.partition("Config search path:")[0])
        return " ".join(text.split()) + near
    # `theirs`: plain exceptions of submitit (no SLURM) and Hydra (model=2, `defaults: x`).
    ours = isinstance(error, UserError | RunError)
    plain_errors = "Could not detect", "Config group override must", "Invalid defaults list"
    theirs = str(error).startswith(plain_errors)
    return str(error) if ours or theirs else None


def failure_of(job: Any) -> BaseException | None:
    """Why a Hydra job failed; None if it did not."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # `return_value` prints before it raises
            job.return_value  # noqa: B018
    except Exception as error:
        return error
    return None


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """ "; did you mean ...?" with the closest of the `known` names, or ""."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def suggest_key(key: str) -> str:
    """ "; did you mean GROUP.KEY?" for a key without its group, or a misspelt GROUP.KEY."""
    groups = ("task", "model", "recipe", "data", "measure", "logger")
    known = [f"{group}.{found}" for group in groups
             for path in (CONF_DIR / group).glob("*.yaml") for found in _keys(path)]  # fmt: skip
    if key == "experiment":
        return "; sweep.py runs experiments"
    same = [name for name in known if name.endswith(f".{key}")]
    if same or "." not in key:
        top = (*_keys(CONF_DIR / "train.yaml"), *_keys(CONF_DIR / "machine" / "default.yaml"))
        return f"; did you mean {same[0]}?" if same else did_you_mean(key, (*groups, *top))
    if key in known:
        return f"; another {key.partition('.')[0]} has it"
    group, _, last = key.partition(".")
    own = [name.partition(".")[2] for name in known if name.startswith(f"{group}.")]
    if "." in last:
        return ""
    return did_you_mean(last, own, f"{group}.") if own else did_you_mean(key, known)


def _keys(path: Path) -> list[str]:
    """The top-level keys of a YAML file."""
    return re.findall(r"^(\w+):", path.read_text(), re.MULTILINE)


def compose_plain(
    config_name: str | None,
    overrides: Sequence[str] = (),
    config_dir: str | Path | None = None,
    resolve: bool = True,
) -> dict[str, Any]:
    """Compose a configuration, in a Hydra application with its search path; `config_dir` adds its
    YAML files to ours. `resolve` replaces interpolations."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.types import Quote, QuotedString

    words = list(overrides)
    if config_dir and not Path(config_dir).is_dir():
        raise UserError(f"config_dir={config_dir}: no such folder")
    if config_dir:
        path = QuotedString(f"file://{Path(config_dir).absolute()}", Quote.single)
        words.append(f"hydra.searchpath=[{path.with_quotes()}]")
    if GlobalHydra.instance().is_initialized():
        return plain(compose(config_name, overrides=words), resolve)
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return plain(compose(config_name, overrides=words), resolve)


def plain(config: Any, resolve: bool = True) -> dict[str, Any]:
    """An OmegaConf configuration as plain data, with its interpolations replaced if `resolve`."""
    from omegaconf import OmegaConf
    from omegaconf.errors import MissingMandatoryValue

    try:
        content: Any = OmegaConf.to_container(config, resolve=resolve, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise UserError(f"missing: {error.full_key}=VALUE") from None
    return content


def checked(kind: Any, values: Mapping[str, Any], where: str = "") -> Any:
    """`values` as `kind`; pydantic's findings become one UserError, beginning with `where`."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(json.dumps(values))
    except ValidationError as error:
        raise wrong_values(error, where) from None


def read_options(function: Callable[..., Any], words: Sequence[str]) -> dict[str, Any]:
    """Arguments of `function` from words `key=value`; a list is `key=a,b`. UserError for an unknown
    or missing key, or a value of another type."""
    parameters = inspect.signature(function).parameters
    if bare := [word for word in words if "=" not in word]:
        raise UserError(f"{bare[0]}: write KEY=VALUE")
    values: dict[str, Any] = dict(word.partition("=")[::2] for word in words)
    for key in values.keys() & parameters.keys():
        if typing.get_origin(parameters[key].annotation) is tuple:
            values[key] = re.findall(r"[^][,\s]+", values[key])
    return validated(parameters, values, strict=False)


def validated(
    parameters: Mapping[str, inspect.Parameter],
    values: Mapping[str, Any],
    where: str = "",
    strict: bool = True,
) -> dict[str, Any]:
    """`values` (YAML data) for these parameters; UserError for an unknown or missing one, or one
    that is not of its annotated type."""
    from pydantic import ConfigDict, Field, PydanticUserError, ValidationError, create_model

    fields: dict[str, Any] = {}  # by number: a model refuses fields called `copy` or `_gain`
    for number, (name, p) in enumerate(parameters.items()):
        kind = Any if p.annotation is p.empty or isinstance(p.annotation, str) else p.annotation
        default = ... if p.default is p.empty else p.default
        fields[f"field_{number}"] = kind, Field(default, alias=name)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    try:
        options: Any = create_model("Options", __config__=config, **fields)
        read = options.model_validate_json(json.dumps(values), strict=strict)
    except ValidationError as error:
        raise wrong_values(error, where, parameters) from None
    except PydanticUserError:  # an annotation that pydantic cannot evaluate
        return dict(values)
    return {n: getattr(read, f) for f, n in zip(fields, parameters, strict=True) if n in values}


def wrong_values(error: Any, where: str = "", known: Iterable[str] | None = None) -> UserError:
    """pydantic's findings in one line; each key begins with `where`."""
    found = []
    for wrong in error.errors():
        path = [str(part) for part in wrong["loc"]]
        path = path[:1] + [part for part in path[1:] if not UNION_TAG.fullmatch(part)]
        key, value = ".".join(path).removeprefix("machine."), wrong["input"]
        shown = "" if isinstance(value, dict | list) else f"={value!r}"
        reason = wrong["msg"].removeprefix("Value error, ").replace("a valid array", "a list")
        if known is not None and wrong["type"] == "extra_forbidden":
            keys = f"the keys are {', '.join(known)}" if known else "it takes no keys"
            reason = f"unknown; {keys}{did_you_mean(key, known)}"
        found.append(f"{where}{key}{shown}: {reason}")
    return UserError("; ".join(found))


def locate(target: str, key: str) -> Any:
    """The class or function at a dotted path, e.g. `tasks.lis.LIS`. UserError naming `key`, where
    the path was written, if there is none; errors while its module runs are raised."""
    found = pydoc.locate(target) if target else None
    if found is None:
        wrong = f"{key}={target}: not found" if target else f"{key}: missing"
        how = "write a dotted path like tasks.lis.LIS, with its folder on PYTHONPATH"
        raise UserError(f"{wrong}; {how}")
    return found


def construct(base: type[T], settings: Mapping[str, Any], key: str, **given: Any) -> T:
    """The subclass of `base` that `settings` name under `_target_`, called with the other settings
    and with those `given` that it takes. UserError naming `key` for an unknown or missing
    parameter, or a value that is not of its annotated type."""
    target = str(settings.get("_target_", ""))
    cls = locate(target, f"{key}._target_")
    if not (inspect.isclass(cls) and issubclass(cls, base)):
        name = f"{base.__module__}.{base.__name__}"
        raise UserError(f"{key}._target_={target}: is not a subclass of {name}")
    own = {name: value for name, value in settings.items() if name != "_target_"}
    parameters = parameters_of(cls)
    takes = {name: found for name, found in parameters.items() if name not in given}
    changed = {n: v for n, v in own.items() if n not in takes or v is not takes[n].default}
    validated(takes, changed, f"{key}.")
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
