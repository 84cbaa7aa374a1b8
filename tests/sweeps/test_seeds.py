"""`train.py seeds=[...]`: as many cells as seeds, the same as by as many calls."""

import json

import pandas as pd
import pytest
from commands import TINY

from common import UserError
from config.schema import parse_seeds
from sweeps.seeds import with_listed_seeds

MEASURED = [
    "cell", "seed", "status", "answer_accuracy", "chain_exact_match", "steps", "padded_share",
    "flops_total", "data_fingerprint",
]  # fmt: skip


def rows(folder):
    table = pd.read_csv(folder / "results/manual/results.csv", dtype=str)
    return table[MEASURED].to_dict("records")


def curves(folder):
    paths = sorted(folder.glob("runs/*/curve.csv"))
    return [(p.parent.name, pd.read_csv(p).drop(columns="seconds").to_csv()) for p in paths]


def test_seeds_together_are_the_cells_of_separate_calls(command, tmp_path_factory, monkeypatch):
    for seed in (0, 3):
        assert command("train.py", *TINY, f"seed={seed}").status == 0
    apart = command.folder
    together = tmp_path_factory.mktemp("together")
    monkeypatch.chdir(together)
    outcome = command("train.py", *TINY, "seeds=0,3")
    assert (outcome.status, outcome.err) == (0, "")
    assert rows(together) == rows(apart)
    assert [row["seed"] for row in rows(together)] == ["0", "3"]
    assert curves(together) == curves(apart)


def test_a_seed_that_fails_is_named_and_the_others_are_done(command):
    """Seed 2 has no time; seed 1 has its record already."""
    assert command("train.py", *TINY, "seed=1").status == 0
    (path,) = command.folder.glob("runs/*/record.json")
    done = json.loads(path.read_text())
    words = ["time_limit_seconds=1e-9", "seeds=[1,2]"]
    outcome = command("train.py", *TINY, *words)
    assert outcome.status == 1
    assert "1 of 2 seeds are not done: seed=2: cell" in outcome.line
    assert json.loads(path.read_text()) == done


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("train.py seeds=0,1,2 seed=3", "train.py seeds=[0,1,2] seed=3"),
        ("train.py seeds=[0,1] model.dim=8,16", "train.py seeds=[0,1] model.dim=8,16"),
        ("train.py seeds=0,x", "train.py seeds=0,x"),
        ("train.py -m seeds=0,1", "train.py -m seeds=0,1"),
        ("train.py --multirun seeds=0,1", "train.py --multirun seeds=0,1"),
    ],
)
def test_a_list_of_seeds_needs_no_brackets(given, meant):
    assert with_listed_seeds(given.split()) == meant.split()


@pytest.mark.parametrize(
    ("given", "seeds"), [([0, 2], [0, 2]), ("0,1, 2", [0, 1, 2]), (4, [4]), ([7], [7])]
)
def test_ways_to_write_seeds(given, seeds):
    assert parse_seeds(given) == seeds


@pytest.mark.parametrize("given", [[], "", [1, 1], [-1], [2**63], "0;1", [True], [0.5], [[1]], {}])
def test_what_is_no_list_of_seeds(given):
    with pytest.raises(UserError, match="seeds="):
        parse_seeds(given)
