"""How time and memory of attention grow with length: standard, sparse and linear, alone.

python -m benchmarks.scaling            L = 512 ... 16,384: table, scaling.json and scaling.png
python -m benchmarks.scaling --forms    where the block-wise forms overtake the dense ones, which
                                        decides BLOCKED_FROM and CHUNKED_FROM in models/

One sequence, 4 heads of 16, forward and backward through `attend`, float32, one thread. Seconds
are CPU seconds (on one thread: wall time on an idle machine), the median of several passes. Peak
memory is what a first pass adds to a fresh process, its inputs not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from files import write_json
from models.attention import AttentionMixer
from models.linear import LinearAttention
from models.sparse import SparseAttention
from models.standard import StandardAttention

RECORDS = Path(__file__).parent / "records"
HEADS, HEAD_DIM = 4, 16
LENGTHS = [2**power for power in range(9, 15)]
MIXERS: dict[str, Callable[[int], AttentionMixer]] = {
    "standard": lambda length: StandardAttention(HEADS * HEAD_DIM, HEADS, length),
    "sparse": lambda length: SparseAttention(HEADS * HEAD_DIM, HEADS, length),
    "linear": lambda length: LinearAttention(HEADS * HEAD_DIM, HEADS, length),
}
FORMS = {
    "sparse": (SparseAttention, ("dense", "blocked")),
    "linear": (LinearAttention, ("dense", "chunked")),
}
FORM_LENGTHS = [32, 48, 64, 87, 112, 144, 160, 221, 355, 505]
SECONDS_PER_CASE = 240.0


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark; see the module's first lines."""
    parser = argparse.ArgumentParser(prog="benchmarks.scaling", description=__doc__)
    parser.add_argument("--max-length", type=int, default=LENGTHS[-1])
    parser.add_argument("--forms", action="store_true", help="compare dense and block-wise forms")
    parser.add_argument("--measure", nargs=2, metavar=("MIXER", "LENGTH"), help=argparse.SUPPRESS)
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder for the results")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    if options.measure:
        print(json.dumps(measure(options.measure[0], int(options.measure[1]))))
    elif options.forms:
        compare_forms(options.records)
    else:
        scaling(options.max_length, options.records)


def scaling(max_length: int, records: Path) -> None:
    """Measure every mixer at every length in a process of its own; print, write, draw."""
    lengths = [length for length in LENGTHS if length <= max_length]
    rows: list[dict] = []
    for length in tqdm(lengths, desc="lengths", disable=None):
        for mixer in MIXERS:
            rows.append(measure_apart(mixer, length, rows))
    fits = {mixer: exponents([row for row in rows if row["mixer"] == mixer]) for mixer in MIXERS}
    record = {"setting": setting(), "rows": rows, "exponents": fits}
    write_json(records / "scaling.json", record)
    draw(record, records / "scaling.png")
    print(table(rows, fits))
    print(f"written: {records / 'scaling.json'} and {records / 'scaling.png'}")


def measure_apart(mixer: str, length: int, earlier: list[dict]) -> dict:
    """One row from a fresh process, or a row that says why there is none."""
    row: dict = {"mixer": mixer, "length": length}
    before = [r for r in earlier if r["mixer"] == mixer]
    if before and "skipped" in before[-1]:
        return row | {"skipped": "a shorter length was skipped"}
    if before and before[-1]["total_seconds"] * 4.5 > SECONDS_PER_CASE:
        return row | {"skipped": f"expected to take more than {SECONDS_PER_CASE:.0f} s"}
    command = [sys.executable, "-m", "benchmarks.scaling", "--measure", mixer, str(length)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=RECORDS.parents[1])
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["killed, probably for its memory"])[-1]
        return row | {"skipped": f"exit status {done.returncode}: {last}"}
    return row | json.loads(done.stdout.splitlines()[-1])


def measure(name: str, length: int) -> dict:
    """Median CPU seconds and peak bytes of a forward and backward pass, in this process."""
    pass_once = attention_pass(MIXERS[name](length), length, batch=1)
    attention_pass(MIXERS[name](64), 64, batch=1)()  # libraries loaded, threads started
    start = reset_peak()
    begin = time.process_time()
    pass_once()
    first = time.process_time() - begin
    peak = peak_bytes() - start
    seconds = cpu_seconds(pass_once, repeats=3 if first > 2 else 15)
    return {
        "seconds": statistics.median(seconds),
        "fastest_seconds": min(seconds),
        "repeats": len(seconds),
        "total_seconds": first + sum(seconds),
        "peak_bytes": peak,
    }


def attention_pass(mixer: AttentionMixer, length: int, batch: int) -> Callable[[], None]:
    """A function that runs `attend` forward and backward on fixed random inputs."""
    generator = torch.Generator().manual_seed(0)
    shape = (batch, mixer.num_heads, length, mixer.head_dim)
    q, k, v, direction = (torch.randn(shape, generator=generator) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def pass_once() -> None:
        torch.autograd.grad(mixer.attend(*leaves), leaves, direction)

    return pass_once


def cpu_seconds(function: Callable[[], None], repeats: int) -> list[float]:
    """CPU seconds of each of `repeats` calls, after one that does not count."""
    function()
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        function()
        seconds.append(time.process_time() - begin)
    return seconds


def reset_peak() -> int:
    """Let the kernel's high-water mark start anew; resident bytes now, where it allows that."""
    with contextlib.suppress(OSError):  # then the mark is that of the imports: small cases shrink
        Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def peak_bytes() -> int:
    """The most memory this process has held, in bytes: VmHWM on Linux, else ru_maxrss."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if platform.system() == "Darwin" else used * 1024


def exponents(rows: list[dict]) -> dict[str, float | None]:
    """Slopes of log seconds and log peak bytes on log length, by least squares.

    Over all lengths, and over the upper half, where fixed costs weigh less.
    """
    rows = [row for row in rows if "skipped" not in row]
    fits = {}
    for quantity in ("seconds", "peak_bytes"):
        points = [(row["length"], row[quantity]) for row in rows]
        fits[quantity], fits[f"{quantity}_upper_half"] = (
            slope(points),
            slope(points[len(points) // 2 :]),
        )
    return fits


def slope(points: list[tuple[float, float]]) -> float | None:
    """Slope of log y on log x; None for fewer than two points."""
    if len(points) < 2:
        return None
    logs = [(math.log(x), math.log(y)) for x, y in points]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def table(rows: list[dict], fits: dict[str, dict[str, float | None]]) -> str:
    """Milliseconds and MiB per mixer and length, exponents below."""
    lines = [f"{'L':>7}" + "".join(f"{m + ' ms':>14}{m + ' MiB':>14}" for m in MIXERS)]
    for length in sorted({row["length"] for row in rows}):
        cells = [row for row in rows if row["length"] == length]
        lines.append(f"{length:>7,}" + "".join(map(cell, cells)))
    for name, suffix in (("power", ""), ("upper", "_upper_half")):
        fitted = [fit[q + suffix] for fit in fits.values() for q in ("seconds", "peak_bytes")]
        lines.append(
            f"{name:>7}" + "".join(f"{'-' if f is None else f'{f:.2f}':>14}" for f in fitted)
        )
    reasons = [row for row in rows if "skipped" in row]
    lines += [f"{row['mixer']} at {row['length']:,} skipped: {row['skipped']}" for row in reasons]
    return "\n".join(lines)


def cell(row: dict) -> str:
    """Two columns of the table."""
    if "skipped" in row:
        return f"{'-':>14}{'-':>14}"
    return f"{row['seconds'] * 1e3:>14.1f}{row['peak_bytes'] / 2**20:>14.1f}"


def draw(record: dict, path: Path) -> None:
    """Time and memory against length, both axes logarithmic."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    panels = (("seconds", "CPU seconds, one thread", 1.0), ("peak_bytes", "peak MiB", 2**20))
    for axis, (quantity, label, unit) in zip(axes, panels, strict=True):
        for mixer in MIXERS:
            rows = [r for r in record["rows"] if r["mixer"] == mixer and "skipped" not in r]
            x, y = [r["length"] for r in rows], [r[quantity] / unit for r in rows]
            fit = record["exponents"][mixer][quantity]
            axis.plot(x, y, marker="o", label=mixer + (f": $L^{{{fit:.2f}}}$" if fit else ""))
        lengths = sorted({r["length"] for r in record["rows"]})
        axis.set_xscale("log", base=2)
        axis.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axis.set(xlabel="length L", ylabel=label, yscale="log")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.suptitle(
        f"Attention alone, forward + backward, {HEADS} heads of {HEAD_DIM}, batch 1; one run, "
        "medians; fitted over all L"
    )
    aside = path.with_suffix(".part.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(aside, dpi=150)
    aside.replace(path)
    plt.close(figure)


def compare_forms(records: Path) -> None:
    """Milliseconds of both forms of sparse and linear attention; batch 16, as in training."""
    names = [f"{mixer} {form}" for mixer, (_, forms) in FORMS.items() for form in forms]
    rows = [{"length": length} | time_forms(length) for length in FORM_LENGTHS]
    print(f"{'L':>7}" + "".join(f"{name:>16}" for name in names))
    for row in rows:
        print(f"{row['length']:>7}" + "".join(f"{row[name] * 1e3:>13.2f} ms" for name in names))
    write_json(records / "scaling_forms.json", {"setting": setting() | {"batch": 16}, "rows": rows})


def time_forms(length: int) -> dict[str, float]:
    """Fastest CPU seconds of each form at one length, the forms taking turns."""
    passes = {
        f"{mixer} {form}": attention_pass(
            build(HEADS * HEAD_DIM, HEADS, length, implementation=form), length, batch=16
        )
        for mixer, (build, forms) in FORMS.items()
        for form in forms
    }
    rounds = [{name: cpu_seconds(f, 1)[0] for name, f in passes.items()} for _ in range(9)]
    return {name: min(r[name] for r in rounds) for name in passes}


def setting() -> dict:
    """What the figures depend on."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    return {
        "heads": HEADS,
        "head_dim": HEAD_DIM,
        "batch": 1,
        "threads": 1,
        "torch": torch.__version__,
        "processor": processor(),
        "commit": commit.stdout.strip() or None,
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def processor() -> str:
    """The processor's name where Linux tells it, else its kind."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x for x in lines if x.startswith("model name")).split(":")[1].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
