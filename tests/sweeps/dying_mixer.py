"""A mixer whose process dies on purpose, when the environment says so."""

import os
import signal

from models.standard import StandardAttention


class DyingAttention(StandardAttention):
    """Standard attention; in the process of rank ``DIES`` the 30th forward pass is the last."""

    passes = 0

    def forward(self, x):
        DyingAttention.passes += 1
        if os.environ.get("DIES", "none") == os.environ.get("RANK") and self.passes == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)
