"""Overrides drawn at random, through the real command line: a result, or one clear line."""

import functools
import os
import random
import shlex
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from config.columns import flat
from config.compose import compose_plain

ROOT = Path(__file__).resolve().parents[2]
CALLS = int(os.environ.get("FAULT_CALLS", "300"))
SEED = int(os.environ.get("FAULT_SEED", random.SystemRandom().randrange(10**6)))
TINY = (
    "task=arithmetic task.size=2 model.dim=8 model.num_layers=1 model.num_heads=2 recipe.steps=4 "
    "recipe.validate_every=2 data.train=300 data.validation=20 data.test=20 logger=none"
).split()
SWEEP = ["experiment=quick", "dry_run=true", "logger=none"]
SWEEP_KEYS = (
    "only.task only.dim only.model overrides strategy max_hours retry_failed threads remeasure "
    "results_dir runs_dir plot device experiment experiment.figures"
)
VALUES = [
    "null", "true", "flase", "0", "-1", "1", "2", "7", "1.5", "-0.0", "1e-9", "1e400", "nan", "inf",
    "99999999999999999999", "''", "' '", "x", "lis", "[]", "[1,2]", "[a,b]", "{}", "{a: 1}", "..",
    "/dev/null", "absent/file", "'a=b'", "日本", "'a\tb'", "$x", "???", "1,2", "=", "\"", "(",
]  # fmt: skip
PATIENCE = 600  # seconds, on a machine that others use as well; what hangs takes longer


@functools.cache
def train_keys() -> list[str]:
    """Return the keys of a cell's configuration, and some that it does not have."""
    return [*flat(compose_plain("train")), "colour", "task.colour", "model.mixer.window"]


def drawn(chance: random.Random) -> list[str]:
    """Return a command line with one to three drawn overrides."""
    program = chance.choices(["train", "sweep", "evaluate"], [6, 3, 1])[0]
    keys, given = train_keys(), TINY
    if program == "sweep":
        keys, given = SWEEP_KEYS.split(), SWEEP
    if program == "evaluate":
        keys, given = "run task.size data.file count out device trust data_dir".split(), []
    words = []
    for key in chance.sample(keys, chance.randint(1, 3)):
        words.append(f"{chance.choice(['', '', '', '+', '++', '~'])}{key}={chance.choice(VALUES)}")
    changed = {word.lstrip("+~").split("=")[0] for word in words}
    kept = [word for word in given if word.split("=")[0] not in changed]
    return [f"{program}.py", *kept, *words]


def judged(folder: Path, words: list[str]) -> int | str:
    """Run one call; return its status, or what was wrong: a status that no line explains."""
    told = shlex.join(words)
    try:
        done = subprocess.run(
            [sys.executable, str(ROOT / words[0]), *words[1:]], cwd=folder, capture_output=True,
            text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{told}: not over after {PATIENCE} seconds"
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    clear = (
        done.returncode in (0, 1, 2)
        and "Traceback" not in done.stdout + done.stderr
        and bool(errors) == (done.returncode != 0)
        and not any("shows where" in line for line in errors)
    )
    return done.returncode if clear else f"{told}: status {done.returncode}, {done.stderr}"


def test_three_hundred_drawn_calls_end_with_a_result_or_a_line(tmp_path, count):
    chance = random.Random(SEED)
    print(f"seed {SEED}: FAULT_SEED={SEED} repeats it")
    begun = time.monotonic()
    folders = [tmp_path / str(number) for number in range(CALLS)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        ends = list(pool.map(judged, folders, [drawn(chance) for _ in range(CALLS)]))
    assert [end for end in ends if isinstance(end, str)] == []
    told = f"statuses {dict(Counter(ends))}, {time.monotonic() - begun:.0f} s; seed {SEED}"
    count(f"{CALLS} calls, {told}")
