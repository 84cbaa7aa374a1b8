"""`python -m benchmarks` with a wrong name, none, or a question."""

import pytest

from benchmarks.__main__ import main
from common import UserError


@pytest.mark.parametrize(
    ("words", "line"),
    [([], "NAME is missing: python -m benchmarks NAME"), (["swep"], "'swep'; did you mean sweep?")],
)
def test_a_bad_name_is_told_with_the_right_ones(monkeypatch, words, line):
    monkeypatch.setattr("sys.argv", ["benchmarks", *words])
    with pytest.raises(UserError) as refused:
        main()
    assert line in str(refused.value) and "answers" in str(refused.value)


def test_help_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", "--help"])
    main()
    assert capsys.readouterr().out.startswith("python -m benchmarks NAME")
