"""What one sees while a cell runs and when it is done."""

from __future__ import annotations

import os
import sys
from typing import Any

from tqdm import tqdm

from config.grid import describe
from config.schema import CellConfig


class CellProgress:
    """A progress bar for one cell; silent when not a terminal, or one of several at once."""

    def __init__(self, enabled: bool) -> None:
        alone = "COTCOST_WORKER" not in os.environ
        self._enabled = enabled and alone and sys.stderr.isatty()
        self._bar: tqdm | None = None

    def __enter__(self) -> CellProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, values: dict[str, Any]) -> None:
        """Show the latest ``values`` that training or evaluation has told."""
        if not self._enabled:
            return
        if values.get("phase") == "evaluation":
            self._show(values.get("evaluated", 0), values.get("of"), "evaluating", {})
        elif "step" in values:
            shown = {
                "loss": f"{values.get('train_loss', float('nan')):.4f}",
                "chains": f"{values.get('validation_chain_exact_match', 0):.1%}",
            }
            self._show(values["step"], values.get("steps"), "training", shown)

    def _show(self, done: int, total: int | None, what: str, shown: dict[str, str]) -> None:
        if self._bar is None or self._bar.desc != f"{what}: ":
            if self._bar is not None:
                self._bar.close()
            self._bar = tqdm(total=total, desc=what, initial=done, leave=False)
        self._bar.total = total
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(done - self._bar.n)


def summary_line(config: CellConfig, record: dict[str, Any] | None) -> str:
    """Return one line that says which cell it was and what came of it."""
    which = "{task} n={size} {model} D={dim} seed={seed}".format(**describe(config))
    if record is None:
        return f"{which}: another process works on this cell; left to it"
    if record["status"] != "done":
        return f"{which}: {record['status']} ({record['reason']})"
    return (
        f"{which}: answer {record['answer_accuracy']:.2%} "
        f"[{record['answer_accuracy_low']:.2%}, {record['answer_accuracy_high']:.2%}], "
        f"chain {record['chain_exact_match']:.2%}, {record['steps']} steps "
        f"({record['stopped']}), {record['train_seconds']:.0f} s + "
        f"{record['eval_seconds']:.1f} s evaluation, cell {record['cell']}"
    )
