"""A cell with labels, from the command line to its record and back."""

import json

from commands import TINY

TAGGED = [
    *(word for word in TINY if not word.startswith("task")),
    *"task=word task.size=6 task.format=tagged task.monoid=S3 task.letters=all".split(),
]


def test_a_tagged_cell_is_trained_measured_and_measured_again(command):
    outcome = command("train.py", *TAGGED)
    assert outcome.status == 0, outcome.err
    [record] = command.folder.glob("runs/*/record.json")
    row, cell = json.loads(record.read_text()), record.parent
    assert (row["format"], row["max_len"], row["status"]) == ("tagged", 7, "done")
    errors = json.loads((cell / "errors.json").read_text())
    right = errors["right_by_position"]
    assert [(place, count) for place, _, count in right] == [(i, 20) for i in range(6)]
    assert right[-1][1] == round(20 * row["answer_accuracy"])
    again = command("evaluate.py", f"run={cell}")
    assert again.status == 0, again.err
    told = json.loads(again.out.splitlines()[-1])
    assert told["answer_accuracy"] == row["answer_accuracy"]
    assert told["chain_exact_match"] == row["chain_exact_match"]
    assert told["longest_prefix"] == errors["longest_prefix"]
