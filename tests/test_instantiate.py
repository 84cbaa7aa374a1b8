"""Dotted paths: what is found, and the one line for each way in which it is not."""

import functools
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from common import RunError, UserError
from instantiate import LARGEST_NUMBER, check_parameters, construct, locate, parameter_names


class Base:
    def __init__(self, size: int, colour: str = "red"):
        if size < 0:
            raise ValueError("size must not be\nnegative")
        self.size, self.colour = size, colour


class Passing(Base):
    def __init__(self, *args: Any, weight: float = 1.0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.weight = weight


class Own(Base):
    def __init__(self, size: int, /, depth: int = 1):
        super().__init__(size)


class Inheriting(Passing):
    pass


def function(task: object, width: int = 2) -> tuple[object, int]:
    return task, width


HERE = __name__


def test_locates_classes_and_functions() -> None:
    assert locate(f"{HERE}.Base", "key") is Base
    assert locate(f"{HERE}.Passing", "key", wanted=Base) is Passing
    assert locate(f"{HERE}.function", "key", wanted=FunctionType) is function


@pytest.mark.parametrize(
    ("target", "wanted", "line"),
    [
        (None, None, "k=None: must be a dotted path such as tasks.lis.LIS"),
        (3, None, "k=3: must be a dotted path such as tasks.lis.LIS"),
        ("Base", None, "k='Base': must be a dotted path such as tasks.lis.LIS"),
        ("a..b", None, "k='a..b': must be a dotted path such as tasks.lis.LIS"),
        ("os system.x", None, "k='os system.x': must be a dotted path such as tasks.lis.LIS"),
        ("absent.Task", None, "k=absent.Task: no module named 'absent' (is its folder on PYTHON"),
        ("os.absent", None, "k=os.absent: os has no 'absent'"),
        ("os.system", Base, f"k=os.system: is not a subclass of {HERE}.Base"),
        ("os.system", FunctionType, "k=os.system: is not a function"),
        ("builtins.int", Base, f"k=builtins.int: is not a subclass of {HERE}.Base"),
        (f"{HERE}.Base", FunctionType, f"k={HERE}.Base: is not a function"),
        (f"{HERE}.function", Base, f"k={HERE}.function: is not a subclass of {HERE}.Base"),
    ],
)
def test_what_cannot_be_located_is_one_line(target: Any, wanted: type | None, line: str) -> None:
    with pytest.raises(UserError) as caught:
        locate(target, "k", wanted)
    assert str(caught.value).startswith(line)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "source", "reason"),
    [
        ("broken_syntax", "def f(:", "SyntaxError"),
        ("broken_import", "import absent_package", "no module named 'absent_package'"),
        ("broken_name", "undefined_name", "NameError"),
        ("broken_attribute", "import os\nos.absent", "AttributeError: module 'os' has no"),
        ("broken_value", "raise ValueError('two\\nlines')", "ValueError: two lines"),
    ],
)
def test_a_module_that_fails_is_one_line(name, source, reason, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError) as caught:
        locate(f"{name}.Task", "k")
    assert str(caught.value).startswith(f"k={name}.Task: ")
    assert reason in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_parameter_names_follow_kwargs_upwards() -> None:
    assert parameter_names(Base) == ["size", "colour"]
    assert parameter_names(Passing) == parameter_names(Inheriting) == ["weight", "size", "colour"]
    assert parameter_names(Own) == ["depth"]
    assert parameter_names(function) == ["task", "width"]
    assert parameter_names(functools.partial(function, width=3)) == ["task", "width"]


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"color": "blue"}, "unknown key m.color; Base takes size, colour; did you mean colour?"),
        ({"depth": 3}, "unknown key m.depth; Base takes size, colour"),
        ({"size": LARGEST_NUMBER + 1}, "m.size=100001: must be at most 100,000, since"),
        ({"size": -1e9}, "m.size=-1000000000.0: must be at most 100,000, since"),
        ({"size": float("nan")}, "m.size=nan: must be at most 100,000, since"),
        ({"size": -1}, f"m._target_={HERE}.Base(size=-1): ValueError: size must not be negative"),
        ({"size": "x"}, f"m._target_={HERE}.Base(size='x'): TypeError: '<' not supported"),
        ({"colour": "red"}, f"m._target_={HERE}.Base(colour='red'): TypeError: "),
    ],
)
def test_wrong_parameters_are_one_line(parameters: Mapping[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        construct(Base, parameters, "m")
    assert str(caught.value).startswith(line)
    assert len(str(caught.value).splitlines()) == 1


def test_reserved_parameters_are_given_by_the_program_alone() -> None:
    made = construct(Passing, {"weight": 2.0}, "m", reserved={"size": 3})
    assert (made.size, made.colour, made.weight) == (3, "red", 2.0)
    assert construct(function, {"width": 4}, "m", reserved={"task": None}) == (None, 4)
    with pytest.raises(UserError, match=r"unknown key m\.size; Passing takes weight, colour"):
        construct(Passing, {"size": 4}, "m", reserved={"size": 3})
    with pytest.raises(UserError, match=r"unknown key m\.dim; Own takes no parameters"):
        check_parameters(Own, {"dim": 4}, "m", reserved=["depth"])
    check_parameters(Own, {"depth": 4}, "m")


def raising(error: Exception, token: str = "zz") -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("zz"), "KeyError: 'zz'"),
        (RuntimeError("two\nlines"), "RuntimeError: two lines"),
        (OSError(2, "No such file"), "FileNotFoundError: [Errno 2] No such file"),
    ],
)
def test_whatever_code_from_outside_raises_names_its_call(error: Exception, reason: str) -> None:
    with pytest.raises(UserError) as caught:
        construct(raising, {"token": "zz"}, "m", reserved={"error": error})
    called = f"m._target_={HERE}.raising(token='zz')"
    assert str(caught.value) == f"{called}: {reason} (HYDRA_FULL_ERROR=1 shows where)"
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [UserError("bad"), RunError("failed"), MemoryError()])
def test_errors_with_words_of_their_own_are_kept(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        construct(raising, {}, "m", reserved={"error": error})
    assert caught.value is error


def test_an_error_of_our_own_code_is_no_bad_call(monkeypatch) -> None:
    monkeypatch.setattr(raising, "__module__", "tasks.lis")
    with pytest.raises(KeyError):
        construct(raising, {}, "m", reserved={"error": KeyError("zz")})
