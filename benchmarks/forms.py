"""Where the block-wise forms of sparse and linear attention overtake the dense ones.

    python -m benchmarks forms

Decides BLOCKED_FROM and CHUNKED_FROM in models/.  Batch 16, as in training; forward and backward
through `attend`, float32, one thread; the fastest of nine CPU times, the forms taking turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.shared.attention import HEAD_DIM, HEADS, attention_pass
from benchmarks.shared.cells import MIXERS
from benchmarks.shared.report import RECORDS, print_table, read_options, write_record
from benchmarks.shared.timing import in_turns

FORMS = {"sparse": ("dense", "blocked"), "linear": ("dense", "chunked")}
BATCH, REPEATS = 16, 9


@dataclass
class Options:
    """What the command line may set."""

    lengths: list[int] = field(
        default_factory=lambda: [32, 48, 64, 87, 112, 144, 160, 221, 355, 505]
    )
    record: Path = RECORDS / "scaling_forms.json"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the record."""
    options = read_options(Options, words)
    torch.set_num_threads(1)
    rows = [{"length": length, **fastest_seconds(length)} for length in options.lengths]
    names = list(rows[0])[1:]
    table = [[row["length"], *(1000 * row[name] for name in names)] for row in rows]
    print_table("Milliseconds, forward and backward", ["L", *names], table)
    write_record(options.record, {"batch": BATCH, "rows": rows})


def fastest_seconds(length: int) -> dict[str, float]:
    """Return the fastest CPU seconds of each form at one length."""
    passes = {}
    for mixer, forms in FORMS.items():
        for form in forms:
            attention = MIXERS[mixer](HEADS * HEAD_DIM, HEADS, length, implementation=form)
            passes[f"{mixer} {form}"] = attention_pass(attention, length, BATCH)
    return {name: min(taken) for name, taken in in_turns(passes, REPEATS).items()}
