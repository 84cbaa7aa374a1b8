"""Every task and model of the configurations has a name of its own in the figures."""

from pathlib import Path

import pytest

from plots import style
from plots.layout import LABEL_BREAKS
from plots.text import wrap

CONF = Path(__file__).resolve().parents[2] / "conf"


@pytest.mark.parametrize(("group", "names"), [("task", style.TASKS), ("model", style.MODELS)])
def test_figures_name_every_task_and_model(group, names):
    assert {path.stem for path in (CONF / group).glob("*.yaml")} <= names.keys()
    assert len(set(names.values())) == len(names)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("model.mixer.output_gate", True, "with output gate"),
        ("model.mixer.output_gate", "False", "without output gate"),
        ("model.mixer.A_range", "[0, 1]", "A from [0,\N{NO-BREAK SPACE}1]"),
        ("model.mixer.scale", "sqrt", "scores over √K"),
        ("recipe.learning_rate", 0.01, "learning rate 0.01"),
        ("model.position", "rope", "rotary positions"),
    ],
)
def test_settings_are_named_in_the_terms_of_the_field(key, value, words):
    assert style.setting_label(key, value) == words


def test_axes_spell_out_what_tables_name_by_the_words_of_a_configuration():
    assert style.axis_label("recipe.learning_rate") == "learning rate"
    assert style.tick_label("format", "cot") == "chain of thought"
    assert style.setting_label("format", "cot") == "cot"
    assert style.tick_label("task.monoid", "A4xZ5") == "A4×Z5"
    assert style.tick_label("task.monoid", "A5") == "A5"


def test_a_range_is_not_broken_over_lines():
    label = style.setting_label("model.mixer.A_range", "[0, 1]")
    assert wrap(f"Gated DeltaNet, {label}", 1.2, 8, LABEL_BREAKS)[-1] == label
