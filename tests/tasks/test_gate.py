"""Tasks of the suite cannot be guessed from their prompts, and the gate detects leaks."""

import re

import pytest
from processes import ROOT

from experiments.grid import cells, load_experiment, with_model
from tasks.__main__ import main
from tasks.gate import MARGIN, gate
from tasks.task import Task, build_task

COUNT = 4000


class Leaky(Task):
    """Letters that reveal the answer by a position, by pairs or by counts."""

    name, own_tokens, max_len = "leaky", ("<sep>", *"abcd"), 14

    def __init__(self, size, format="direct", leak="count"):
        super().__init__(size, format)
        self.leak = leak

    def sample_prompt(self, rng, size):
        return [*rng.choices("abcd", k=size), "<sep>"]

    def solve(self, prompt):
        text = "".join(prompt[:-1])
        answers = {
            "position": text[2], "last": text[-1], "bigram": "ab"["ab" in text],
            "count": "ab"[text.count("a") > text.count("b")],
            "network": "abcd"[text.count("a") % 4],
        }  # fmt: skip
        return [], [answers[self.leak]]


@pytest.mark.parametrize(
    ("leak", "baseline", "least"),
    [("last", "last token", 1), ("position", "token 10 from the end", 1),
     ("count", "token counts, linear", 0.9), ("bigram", "bigram counts, linear", 0.95),
     ("network", "token counts, network", 0.85)],
)  # fmt: skip
def test_each_baseline_finds_its_leak(leak, baseline, least):
    found = gate(Leaky(12, leak=leak), COUNT)
    assert found[baseline] >= least
    assert found[baseline] > found["majority"] + MARGIN


SUITE = {
    f"{cell.identity['task']}-{cell.identity['format']}": cell.config.task
    for cell in cells(with_model(load_experiment("suite"), "standard"))
}
PAGE = (ROOT / "docs" / "suite.md").read_text()
ROWS = {
    "word-tagged": ", 12 letters, labels", "word-cot": ", 12 letters, chain",
    "mqar-tagged": ", 8 pairs", "arithmetic-cot": "Arithmetic, 4 operators",
    "ed-cot": "ED, 3 letters",
}  # fmt: skip


@pytest.mark.parametrize("name", SUITE)
def test_guesses_on_suite_tasks_match_the_documentation(name):
    found = gate(build_task(SUITE[name]), COUNT)
    assert max(found.values()) <= found["majority"] + MARGIN
    guess, chance = re.search(rf"\| .*{ROWS[name]}.* \| (\d+) \((\d+)\) \|", PAGE).groups()
    assert 100 * max(found.values()) <= int(guess) + 1
    assert 100 * found["majority"] == pytest.approx(int(chance), abs=1.5)


def test_command(capsys):
    words = ["--size", "12", "--count", "2000"]
    assert main(["gate", "arithmetic", *words]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 8 and printed[-1].startswith("passes")
    assert main(["gate", "word", *words, "monoid=flip-flop", "format=tagged"]) == 1
    assert "fails" in capsys.readouterr().out
