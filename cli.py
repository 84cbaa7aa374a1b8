"""What a person sees when something goes wrong: one line, and the right exit status."""

from __future__ import annotations

import argparse
import functools
import io
import itertools
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from common import RunError, UserError, did_you_mean
from hydra_words import (
    damaged_yaml,
    in_our_words,
    nameless_groups,
    one_line,
    too_long,
    whole_keys,
    wrong_group,
)
from torchrun import is_first


class Terminated(BaseException):
    """This process was told to end (SIGTERM): what is under way is put away as after Ctrl-C."""


_FAILURES: list[Exception] = []
_WANTS_TRACEBACK = os.environ.get("HYDRA_FULL_ERROR") == "1"


def task_function(function: Callable[[DictConfig], Any]) -> Callable[[DictConfig], Any]:
    """Let `main` hear of an error before Hydra reports it in its own words.

    In a multirun the error goes to the launcher, which has other jobs to run.
    """

    @functools.wraps(function)
    def guarded(config: DictConfig) -> Any:
        try:
            return function(config)
        except Exception as error:
            if HydraConfig.get().mode != RunMode.RUN:
                raise
            _FAILURES.append(error)
            return None

    return guarded


def main(entry: Callable[[], object], left: str = "the same command continues from here") -> None:
    """Call an entry point, of Hydra or not, and leave with its exit status.

    0 done; 1 a run failed, or was told to end and is unfinished; 2 a bad call; 130 interrupted;
    143 terminated; after these two ``left`` says how things stand.  With ``HYDRA_FULL_ERROR=1``
    the traceback is shown instead of the line.
    """
    _prepare_process()
    try:
        _call(entry)
    except Terminated:
        _leave(143, f"terminated; {left}")
    except KeyboardInterrupt:
        _leave(130, f"interrupted; {left}")
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as raised:
        # What a launcher refuses, Hydra wraps into words of its own.
        error = raised.__cause__ if isinstance(raised.__cause__, UserError) else raised
        status, line = exit_status(error), one_line(str(error))
        if _WANTS_TRACEBACK:
            traceback.print_exception(raised)
            sys.exit(status or 1)
        if status is None:
            _leave(1, f"{type(error).__name__}: {line} (HYDRA_FULL_ERROR=1 shows where)")
        _leave(status, in_our_words(error) or line)


def _prepare_process() -> None:
    """Set what must hold before Hydra reads the command line."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that it cannot show is no failure
        sys.stdout.reconfigure(errors="backslashreplace")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing and exiting
    allow_lazy_help()
    argparse.ArgumentParser.error = _refuse  # type: ignore[method-assign, assignment]
    sys.argv = [sys.argv[0], *options_first(whole_keys(sys.argv[1:]))]
    raise_job_errors_silently()


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # who asks again does not want to wait
    raise Terminated


def _call(entry: Callable[[], object]) -> None:
    """Show the help that is asked for, or call ``entry`` and raise what its job raised."""
    words = sys.argv[1:]
    if nameless := [word for word in words if re.match(r"[+~]*=", word)]:
        raise UserError(f"{nameless[0]}: has no key before the =; write KEY=VALUE")
    if {"-h", "--help"} & set(words) and _settings_of(entry):
        print(help_text(entry))
        return
    if _settings_of(entry) and (bad := nameless_groups(words)):
        raise UserError(f"{', '.join(bad)}: must be the name of a file in that folder of conf/")
    entry()
    if _FAILURES:
        raise _FAILURES.pop()
    sys.stdout.flush()


def _refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    raise UserError(f"{message}; --help shows what there is")


OPTIONS_WITH_VALUE = (
    "--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn",
    "--config-dir", "-cd", "--experimental-rerun",
)  # fmt: skip


def options_first(arguments: list[str]) -> list[str]:
    """Return the arguments with ``-m``, and options that have a value, before the overrides.

    Hydra does not parse overrides on both sides of an option.
    """
    marks: list[str] = []
    options: list[str] = []
    others: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in ("-m", "--multirun"):
            marks = [word]
        elif word in OPTIONS_WITH_VALUE:
            options += [word, *itertools.islice(words, 1)]
        elif word.startswith("--") and word.partition("=")[0] in OPTIONS_WITH_VALUE:
            options.append(word)
        else:
            others.append(word)
    return [*marks, *options, *others]


def key_values(words: Sequence[str], defaults: Mapping[str, str], usage: str) -> dict[str, str]:
    """Return ``defaults`` with what ``words`` (``key=value``; also ``--key value``) set.

    A default of "" is no value: the program asks for one where it needs it.  Raises `UserError`
    with the first line of ``usage`` for an unknown key or an empty value.
    """
    values, given = dict(defaults), iter(words)
    for word in given:
        if word.startswith("--") and word in values:
            word = f"{word}={next(given, '')}"
        key, _, value = word.partition("=")
        if key not in values:
            meant = did_you_mean(key, values)
            raise UserError(f"{word}: unknown argument{meant}; {usage.splitlines()[0]}")
        if not value:
            raise UserError(f"{word}: {key} needs a value, {key}=…; {usage.splitlines()[0]}")
        values[key] = value
    return values


def help_text(entry: Callable[[], object]) -> str:
    """Return what an entry point is for, its keys, and the names that its groups know."""
    settings = _settings_of(entry)
    assert settings is not None
    keys = settings.read_text(encoding="utf-8").partition("\nhydra:")[0]
    groups = sorted(path for path in settings.parent.iterdir() if path.is_dir())
    known = {group.name: sorted(file.stem for file in group.glob("*.yaml")) for group in groups}
    lists = [f"{name}: {', '.join(found)}" for name, found in known.items() if found]
    about = (sys.modules[entry.__module__].__doc__ or "").strip()
    return "\n".join([about, "", f"Keys ({settings}):", "", keys, "", "Groups:", *lists])


def _settings_of(entry: Callable[[], object]) -> Path | None:
    """Return the file of conf/ that lists an entry point's keys; None where it has none."""
    module = Path(getattr(sys.modules[entry.__module__], "__file__", None) or "")
    path = Path(__file__).parent / "conf" / f"{module.stem}.yaml"
    return path if path.is_file() else None


def raise_job_errors_silently() -> None:
    """Let Hydra raise what a job of a multirun raised without a line of its own before ours."""

    def value(job: JobReturn) -> Any:
        if job.status == JobStatus.FAILED and isinstance(job._return_value, BaseException):
            raise job._return_value
        return job._return_value

    setter = lambda job, value: setattr(job, "_return_value", value)  # noqa: E731
    JobReturn.return_value = property(value, setter)


def allow_lazy_help() -> None:
    """Let Hydra 1.3 (up to 1.3.8) add an option whose help is an object, not a string.

    Python 3.14 checks a help text when the option is added, and refuses every Hydra application
    (facebookresearch/hydra#3121).
    """
    parser: Any = argparse.ArgumentParser
    check = getattr(parser, "_check_help", None)
    if check is None:  # before Python 3.14
        return

    def check_strings(self: argparse.ArgumentParser, action: argparse.Action) -> None:
        if isinstance(action.help, str):
            check(self, action)

    parser._check_help = check_strings


def exit_status(error: Exception) -> int | None:
    """Return 2 for a bad call, 1 for a failed run, None for what nobody foresaw."""
    if isinstance(error, UserError | HydraException | OmegaConfBaseException):
        return 2
    if damaged_yaml(error) or wrong_group(error) or too_long(error):
        return 2
    if isinstance(error, RunError | OSError):
        return 1
    return None


def _leave(status: int, message: str) -> NoReturn:
    if status not in (2, 143) or is_first():  # of torchrun's processes, one tells
        print(f"error: {message}", file=sys.stderr)
    sys.exit(status)
