"""Which files decide the name of a cell whose class comes from outside the project."""

import hashlib
import sys

import pytest

from config.compose import compose_plain
from config.identity import cell_name, source_digest
from config.schema import validate_cell

OWN = "from models.linear import LinearAttention\nclass Mean(LinearAttention):\n    pass\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that passes a class on: ``from passed_on.impl import Mean``."""
    folder = tmp_path / "passed_on"
    folder.mkdir()
    (folder / "__init__.py").write_text("from passed_on.impl import Mean\n")
    (folder / "impl.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "passed_on"]:
        del sys.modules[name]
    source_digest.cache_clear()


def name_of(target):
    source_digest.cache_clear()  # another process reads the files anew
    words = ["logger=none", f"model.mixer._target_={target}"]
    return cell_name(validate_cell(compose_plain("train", words)))


@pytest.mark.parametrize("file", ["impl.py", "__init__.py"])
def test_an_edit_of_a_class_that_its_package_passes_on_makes_another_cell(package, file):
    before = name_of("passed_on.Mean")
    assert name_of("passed_on.Mean") == before
    path = package / file
    path.write_text(path.read_text() + "# edited\n")
    assert name_of("passed_on.Mean") != before


def test_a_class_named_by_its_own_module_has_the_digest_of_that_file(package):
    digest = hashlib.sha256(OWN.encode()).hexdigest()[:16]
    assert source_digest("passed_on.impl.Mean") == digest


def test_a_function_under_a_decorator_from_elsewhere_counts_by_its_own_file(package):
    (package / "marks.py").write_text(
        "import functools\ndef marked(f):\n    return functools.wraps(f)(lambda *a: f(*a))\n"
    )
    source = "from passed_on.marks import marked\n@marked\ndef made(task):\n    return None\n"
    (package / "impl.py").write_text(OWN + source)
    assert source_digest("passed_on.impl.made") == hashlib.sha256(
        (OWN + source).encode()
    ).hexdigest()[:16]  # fmt: skip


def test_a_class_of_ours_that_is_passed_on_counts_by_the_module_that_does_so(package):
    text = "from models.linear import LinearAttention as Mean\n"
    (package / "__init__.py").write_text(text)
    assert source_digest("passed_on.Mean") == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert source_digest("models.linear.LinearAttention") is None


def test_a_module_that_cannot_be_imported_still_has_its_own_digest(package):
    """The build says what is wrong with it; until then the name is that of the file."""
    text = "raise RuntimeError('no such device')\n"
    (package / "impl.py").write_text(text)
    (package / "__init__.py").write_text("")
    assert source_digest("passed_on.impl.Mean") == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert source_digest("passed_on.nothing.Mean") is None


def test_a_broken_package_is_left_to_the_build_to_name(tmp_path, monkeypatch):
    (tmp_path / "broken_package").mkdir()
    (tmp_path / "broken_package/__init__.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert source_digest("broken_package.mixers.Own") is None
