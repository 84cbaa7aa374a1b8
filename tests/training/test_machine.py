import json
import math
import os

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from common import UserError
from training.machine import Machine

ADAPTER = TypeAdapter(Machine)
OUT_OF_RANGE = [
    {"compile": "yes"},
    {"threads": 0},
    {"threads": 1025},
    {"micro_batch_size": 0},
    {"micro_batch_size": 2**20 + 1},
    {"evaluation_memory_mb": 0},
    {"evaluation_memory_mb": "much"},
    {"evaluation_memory_mb": True},
    {"evaluation_memory_mb": math.inf},
    {"checkpoint_seconds": 0},
    {"checkpoint_seconds": math.nan},
    {"checkpoint_seconds": 86_401},
    {"time_limit_seconds": -1},
    {"time_limit_seconds": math.inf},
]


@pytest.mark.parametrize("values", OUT_OF_RANGE, ids=str)
def test_a_value_out_of_range_is_refused_by_its_name(values):
    (key, value), *_ = values.items()
    with pytest.raises(UserError, match=rf"^{key}={value}: must be "):
        Machine(**values)


@pytest.mark.parametrize("values", OUT_OF_RANGE[:2], ids=str)
def test_pydantic_passes_the_same_line_on(values):
    with pytest.raises(UserError, match="must be "):
        ADAPTER.validate_json(json.dumps(values))


def test_pydantic_refuses_other_keys_and_types():
    for values in ({"cores": 2}, {"threads": "2"}, {"checkpoint_seconds": "60"}):
        with pytest.raises(ValidationError):
            ADAPTER.validate_json(json.dumps(values))
    wide = {"threads": 1024, "checkpoint_seconds": 86_400, "compile": "graphs"}
    assert ADAPTER.validate_json(json.dumps(wide)) == Machine(**wide)


def test_graphs_hold_the_whole_batch():
    with pytest.raises(UserError, match="not together with compile=graphs"):
        Machine(compile="graphs", micro_batch_size=8)


def test_threads_are_held_against_the_cores_where_they_run(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(UserError, match="threads=9: must be at most 8 here"):
        Machine(threads=9).use_threads()
    try:
        Machine(threads=2).use_threads()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
