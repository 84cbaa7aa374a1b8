"""State sizes and FLOPs in docs/mixers.md match the code."""

import re

import pytest
from configured import model_of
from processes import ROOT

# For the models that `model_of` builds for 64 tokens, at the last token.
SIZES = {
    "D": 16, "H": 2, "K": 8, "t": 64, "b": 8, "W": 8, "d": 16, "F": 1 + 16 + 16**2, "n": 2, "S": 26,
}  # fmt: skip
ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "mixers.md").read_text(encoding="utf-8"))


def value(formula):
    """Evaluate "4 D (K + 1), ..."; a space between two factors is a product."""
    formula = re.split(", | and ", formula)[0].replace("−", "-")
    return eval(re.sub(r"(?<=[\w)]) (?=[\w(])", "*", formula), {}, SIZES)


def test_every_mixer_has_a_row():
    """Besides those composed of others, and those of docs/tensor.md and docs/findings.md."""
    models = {path.stem for path in (ROOT / "conf" / "model").glob("*.yaml")}
    others = {name for name in models if name.startswith(("tensor", "last_lines"))}
    assert {name for name, *_ in ROWS} >= models - others - {"based", "hybrid"}


@pytest.mark.parametrize(("name", "state", "flops"), ROWS, ids=[name for name, *_ in ROWS])
def test_state_and_flops_per_token(name, state, flops):
    mixer = model_of(name, max_len=SIZES["t"]).blocks[0].mixer
    matrices = sum(count for term, count in mixer.flops(1).items() if term.startswith("linear/"))
    assert mixer.state_bytes(SIZES["t"]) == 4 * value(state)
    upto = [sum(mixer.flops(t).values()) for t in (SIZES["t"] - 1, SIZES["t"])]
    assert upto[1] - upto[0] - matrices == value(flops)
