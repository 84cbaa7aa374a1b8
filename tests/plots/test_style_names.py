"""Every task and model of the configurations has a name of its own in the figures."""

from pathlib import Path

import pytest

from plots import style

CONF = Path(__file__).resolve().parents[2] / "conf"


@pytest.mark.parametrize(("group", "names"), [("task", style.TASKS), ("model", style.MODELS)])
def test_figures_name_every_task_and_model(group, names):
    assert {path.stem for path in (CONF / group).glob("*.yaml")} <= names.keys()
    assert len(set(names.values())) == len(names)
