"""Kills at random moments, of workers and of the sweep itself."""

import os
import random
import signal
import subprocess
import time

from processes import wait_until
from small_sweep import SmallSweep, descendants

KILLS = int(os.environ.get("FAULT_KILLS", "40"))
SEED = int(os.environ.get("FAULT_SEED", random.SystemRandom().randrange(10**6)))


def test_kills_lose_no_results(tmp_path, undisturbed):
    chance = random.Random(SEED)
    kills = rounds = 0
    print(f"seed {SEED}: FAULT_SEED={SEED} repeats the choices, not the moments")
    while kills < KILLS:
        rounds += 1
        sweep = SmallSweep(tmp_path / f"round{rounds}")
        kills += _disturb(sweep, chance, KILLS - kills)
        for _ in range(20):
            done = sweep.run()
            if done.returncode == 0:
                break
            time.sleep(1)  # a worker of a killed sweep is still writing its checkpoint
        assert done.returncode == 0, done.stderr
        sweep.check_equal(undisturbed)


def _disturb(sweep: SmallSweep, chance: random.Random, most: int) -> int:
    """Kill processes until the sweep ends or `most` were killed; return the number of kills."""
    kills = 0
    process = sweep.start()
    while kills < most:
        of_worker = chance.random() < 0.65
        if of_worker:
            _wait_for_workers(process)
        try:
            process.wait(chance.uniform(0.0, 1.0 if of_worker else 5.0))
        except subprocess.TimeoutExpired:
            pass
        else:
            if sweep.is_done():
                break
            process = sweep.start()
            continue
        workers = descendants(process.pid) if of_worker else []
        whom = chance.choice(workers or [process.pid])
        try:
            os.kill(whom, chance.choice([signal.SIGKILL, signal.SIGTERM]))
        except ProcessLookupError:
            continue
        kills += 1
    process.terminate()
    process.wait()
    return kills


def _wait_for_workers(process: subprocess.Popen) -> None:
    """Wait until the sweep has started workers or has ended."""
    wait_until(lambda: process.poll() is not None or len(descendants(process.pid)) > 2, 30)
