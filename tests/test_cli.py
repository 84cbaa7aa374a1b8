"""What stands between Hydra and the command line."""

import argparse
import contextlib
import io
import os
import re
import signal
import sys
import time

import pytest
import yaml
from hydra._internal.utils import get_args_parser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue

import cli
from common import UserError
from config.compose import compose_plain
from hydra_words import in_our_words, whole_keys


def check_help_as_python_3_14(monkeypatch):
    """Before Python 3.14, check a help text when its option is added, as 3.14 does."""
    if sys.version_info >= (3, 14):
        monkeypatch.setattr(
            argparse.ArgumentParser, "_check_help", argparse.ArgumentParser._check_help
        )  # only to have it put back
        return
    add_argument = argparse.ArgumentParser.add_argument

    def _check_help(self, action):
        try:
            if action.help and "%" in action.help:
                self._get_formatter()._expand_help(action)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError("badly formed help string") from error

    def add_and_check(self, *arguments, **options):
        action = add_argument(self, *arguments, **options)
        self._check_help(action)
        return action

    monkeypatch.setattr(argparse.ArgumentParser, "_check_help", _check_help, raising=False)
    monkeypatch.setattr(argparse.ArgumentParser, "add_argument", add_and_check)


def test_hydra_starts_where_argparse_checks_help_texts(monkeypatch):
    check_help_as_python_3_14(monkeypatch)
    cli.allow_lazy_help()
    assert get_args_parser().parse_args(["--cfg", "job"]).cfg == "job"


def test_a_badly_formed_help_text_is_still_refused(monkeypatch):
    check_help_as_python_3_14(monkeypatch)
    cli.allow_lazy_help()
    with pytest.raises(ValueError, match="badly formed"):
        argparse.ArgumentParser().add_argument("--share", help="in %(nothing)s")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 checks help texts")
def test_before_python_3_14_nothing_is_replaced():
    cli.allow_lazy_help()
    assert not hasattr(argparse.ArgumentParser, "_check_help")


def test_a_closed_standard_output_is_no_fault(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "argv", ["program"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    told = []
    cli.main(lambda: told.append(print("done")))
    assert told == [None]


def test_a_name_that_standard_output_cannot_show_is_no_fault(monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "argv", ["program"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    cli.main(lambda: print("日本: done"))
    assert shown.buffer.getvalue() == b"\\u65e5\\u672c: done\n"


@pytest.mark.parametrize(("error", "status"), [(UserError("bad"), 2), (ZeroDivisionError(), 1)])
def test_a_traceback_changes_no_exit_status(monkeypatch, capsys, error, status):
    def entry():
        raise error

    monkeypatch.setattr(cli, "_WANTS_TRACEBACK", True)
    monkeypatch.setattr(sys, "argv", ["program"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(SystemExit) as left:
        cli.main(entry)
    assert left.value.code == status
    assert "Traceback" in capsys.readouterr().err


def test_a_terminated_program_says_so_once_and_dies_of_the_second(monkeypatch, capsys):
    def entry():
        with contextlib.suppress(KeyboardInterrupt):  # as a watch that Ctrl-C ends
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(sys, "argv", ["program"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    try:
        with pytest.raises(SystemExit) as left:
            cli.main(entry)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert left.value.code == 143
    told = "error: terminated; the same command continues from here\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("word", ["=3", "+=3", "++=3", "~="])
def test_an_override_without_a_key_is_a_bad_call(monkeypatch, capsys, word):
    monkeypatch.setattr(sys, "argv", ["program", word])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    with pytest.raises(SystemExit) as left:
        cli.main(lambda: None)
    assert left.value.code == 2
    assert capsys.readouterr().err == f"error: {word}: has no key before the =; write KEY=VALUE\n"


def test_a_number_of_thousands_of_digits_is_a_bad_call():
    with pytest.raises(ValueError, match="integer string") as caught:
        int("1" * 5000)
    assert cli.exit_status(caught.value) == 2
    assert cli.exit_status(ValueError("another")) is None


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("task=arithmetik", r"no task named 'arithmetik': .* lis, .*; did you mean arithmetic\?"),
        ("task=zzz", r"no task named 'zzz': there are [\w, ]*"),
        ("hydra/launcher=slrm", r"no hydra/launcher named 'slrm': .*; did you mean slurm\?"),
        (
            "model=standard,linear",
            r"model=standard,linear: one value is taken here; -m runs each.*",
        ),
        ("task.sise=3", r"unknown key task\.sise; did you mean task\.size\?"),
        ("seed.x=3", r"unknown key seed\.x; seed is one value, without keys of its own"),
        ("seed={", r"seed={: cannot be read; write KEY=VALUE.*"),
        ("overrides=model.dim=8", r"overrides=.*; write 'overrides=\[\"model\.dim=8\"\]'"),
        ("only.task.monoid=A5,Z60", r"only\.task\.monoid=A5,Z60: cannot be read; write .*"),
    ],
)
def test_hydra_s_errors_become_one_line(override, line):
    with pytest.raises(HydraException) as caught:
        compose_plain("train", whole_keys([override]))
    assert re.fullmatch(line, in_our_words(caught.value))


@pytest.mark.parametrize(
    "override", ["task.size=4", "model.dim=16", "recipe=paper", "seed=1", "task=lis"]
)
def test_a_sweep_says_how_to_choose_or_change_its_cells(override):
    with pytest.raises(HydraException) as caught:
        compose_plain("sweep", ["experiment=quick", override])
    key = re.match(r"\w+", override)[0]
    assert in_our_words(caught.value).startswith(f"{key}: the experiment decides it; only.size=4")
    assert cli.exit_status(caught.value) == 2


def test_a_sweep_without_an_experiment_says_which_there_are():
    with pytest.raises(HydraException) as caught:
        compose_plain("sweep", [])
    told = in_our_words(caught.value)
    assert told.startswith("experiment is missing; write experiment=NAME: ") and "quick" in told


def test_an_evaluation_without_a_run_says_what_to_write():
    with pytest.raises(MissingMandatoryValue) as caught:
        OmegaConf.create({"run": "???"}).run  # noqa: B018
    assert in_our_words(caught.value).startswith("run is missing; write run=runs/CELL")


def test_damaged_yaml_is_named_with_its_line(tmp_path):
    (tmp_path / "bad.yaml").write_text("a: 1\nname: [bad\n")
    with pytest.raises(yaml.YAMLError) as caught:
        OmegaConf.load(tmp_path / "bad.yaml")
    told = in_our_words(caught.value)
    assert re.fullmatch(r".*bad\.yaml, line 3: not readable as YAML \(.*\)", told)
    assert cli.exit_status(caught.value) == 2


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("a=1 -m b=2,3", "-m a=1 b=2,3"),
        ("experiment=x --config-dir=/q dry_run=true", "--config-dir=/q experiment=x dry_run=true"),
        ("data=quick --config-dir /q model=mean", "--config-dir /q data=quick model=mean"),
        ("a=1 -cd /q b=2 --multirun c=3", "--multirun -cd /q a=1 b=2 c=3"),
        ("a=1 --help b=2", "a=1 --help b=2"),
    ],
)
def test_an_option_may_stand_anywhere_in_the_line(given, parsed):
    assert cli.options_first(given.split()) == parsed.split()


DEFAULTS = {"experiment": "", "results_dir": "results", "--config-dir": ""}


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ([], {}),
        (["experiment=a=b", "results_dir=x"], {"experiment": "a=b", "results_dir": "x"}),
        (["--config-dir=here"], {"--config-dir": "here"}),
        (["--config-dir", "here", "experiment=a"], {"--config-dir": "here", "experiment": "a"}),
    ],
)
def test_key_values_are_the_defaults_with_what_is_given(words, changed):
    assert cli.key_values(words, DEFAULTS, "usage: x") == DEFAULTS | changed


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("experimnt=a", "experimnt=a: unknown argument; did you mean experiment?; usage: x"),
        ("quick", "quick: unknown argument; usage: x"),
        ("experiment=", "experiment=: experiment needs a value, experiment=…; usage: x"),
        ("--config-dir", "--config-dir=: --config-dir needs a value, --config-dir=…; usage: x"),
    ],
)
def test_a_word_that_is_no_key_and_value_is_refused_with_the_usage(word, told):
    with pytest.raises(UserError) as refusal:
        cli.key_values([word], DEFAULTS, "usage: x\n\nMore.")
    assert str(refusal.value) == told
