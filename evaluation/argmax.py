"""Exact arg-maxes of a model's float64 logits, found in float32 where that is safe."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from common import RunError, UserError
from models.checks import exact_copy, require_causal
from models.transformer import Transformer
from tasks.sequences import SequenceSet
from training.data import Batch, Layout, SequenceTensors

TIE = 1e-9
# An arg-max can flip where the lead is below twice the error, so 16 is safe while the true
# maximum is at most eight times the sampled one.
SAFETY = 16.0  # tolerance in multiples of the sampled error
GUARD = 1 / 2  # share of the tolerance that no error may exceed
MINIMUM_TOLERANCE = 1e-6  # a thousand times `TIE`
SAMPLED_ROWS = 16
FALSE_STEP = 1e-2  # error of `step`, relative to the largest logit, too large to be rounding

LARGEST_BATCH = {"cpu": 1024, "cuda": 8192}  # sequences decoded together
CPU_MEMORY_MB = 1024.0
# Certifying 167-token sequences at D = 128 on one core takes 4.3 ms each in batches of 16 and 32,
# 6.4 in batches of 256: activations should fit the cache.
CPU_TOKENS_PER_BATCH = 4096

Memory = float | Literal["auto"]


def exact_argmax(logits: Tensor) -> Tensor:
    """The generated token for float64 `logits` (..., V): the arg-max, where logits within `TIE`
    (absolute) of the largest are tied and the lowest id wins. Without ties, two equal rows of the
    head would leave the token to rounding of about 1e-13, which changes with the batch."""
    ids = torch.arange(logits.shape[-1], device=logits.device)
    tied = logits.amax(-1, keepdim=True) - logits < TIE
    return torch.where(tied, ids, logits.shape[-1]).amin(-1)


def argmax_and_lead(logits: Tensor) -> tuple[Tensor, Tensor]:
    top = logits.topk(2, dim=-1)
    return top.indices[..., 0], top.values[..., 0] - top.values[..., 1]


class ToleranceTooSmall(Exception):
    """A float32 error (its argument, in logits) beyond what the tolerance allows."""


class ExactArgmax:
    """Exact arg-maxes of `model` on `sequences`.

    `tolerance` (in logits) is the lead from which float32 decides. `memory_mb` bounds a batch of
    sequences of up to `longest` tokens: `most_tokens` to certify, `most_rows` to decode, at least
    one sequence. Raises UserError for sequences longer than the model reads or a mixer that looks
    ahead, RunError for logits that are not finite.
    """

    def __init__(
        self,
        model: Transformer,
        sequences: SequenceSet,
        memory_mb: Memory,
        device: torch.device | str,
    ) -> None:
        device = torch.device(device)
        require_causal(model)
        self.longest = longest_sequence(model, sequences)
        self.model = model.to(device).float().eval()
        self.exact = exact_copy(self.model)
        self.sequences = SequenceTensors(sequences, device)
        bytes_per_token = 4 * (16 * model.dim + 4 * model.head.out_features)
        self.most_tokens = int(megabytes(memory_mb, device) * 2**20 / bytes_per_token)
        if device.type == "cpu":
            self.most_tokens = min(self.most_tokens, CPU_TOKENS_PER_BATCH)
        # Mixers may hold their state for max_len tokens at once, and compacting copies it.
        bytes_per_row = 2 * model.state_bytes(model.max_len) + bytes_per_token * self.longest
        self.most_rows = rows_that_fit(memory_mb, device, bytes_per_row)
        self.tolerance = max(SAFETY * self.sampled_error(), MINIMUM_TOLERANCE)

    def sampled_error(self) -> float:
        """The largest difference of float32 and float64 logits on a few sequences."""
        errors = []

        def look(rows: Tensor) -> None:
            batch = self.sequences.batch(rows)
            single, exact = (
                model.head(batch.at_targets(model.hidden(batch.inputs)))  # (targets, V)
                for model in (self.model, self.exact)
            )
            errors.append(largest_difference(single, exact))

        count = min(SAMPLED_ROWS, len(self.sequences))
        self.in_float64(look, torch.linspace(0, len(self.sequences) - 1, count).long())
        return max(errors)

    def in_float64(self, work: Callable[[Tensor], None], rows: Tensor) -> None:
        """Call `work` on `rows` (B,), as many at a time as fit a float64 forward pass."""
        for some in rows.split(max(1, self.most_rows // 8)):
            if len(some):
                halve_on_oom(work, some)

    def batches(self) -> list[Tensor]:
        """All rows, sorted by length, in batches to certify."""
        every = torch.arange(len(self.sequences))
        return self.sequences.parts(every, Layout(most_tokens=self.most_tokens))

    def at_targets(self, batch: Batch, until_mistake: bool = False) -> Tensor:
        """The arg-max at every target, (targets,); `until_mistake`: exact up to the first one."""
        width = batch.inputs.shape[1]
        row, column = batch.counted // width, batch.counted % width  # (targets,)
        logits = self.model.head(batch.at_targets(self.model.hidden(batch.inputs)))
        choice, lead = argmax_and_lead(logits)  # (targets,)
        close = ~(lead >= self.tolerance)  # a NaN is no lead
        if until_mistake:
            close &= column <= first_true(batch.spread(choice != batch.targets))[row]

        def decide(rows: Tensor) -> None:
            here = torch.isin(row, rows)
            hidden = self.exact.hidden(batch.inputs[rows]).flatten(0, 1)  # (b * T, D)
            counted = torch.searchsorted(rows, row[here]) * width + column[here]
            exact = self.exact.head(hidden.index_select(0, counted))
            self.check_error(logits[here], exact)
            choice[here] = exact_argmax(exact)

        self.in_float64(decide, row[close].unique())
        return choice

    def next_token(self, tokens: Tensor, lengths: Tensor, rows: Tensor, logits: Tensor) -> Tensor:
        """The token after the first `lengths` (N,) in `rows` (B,) of `tokens` (N, W), given the
        `logits` (B, V) of `Transformer.step`."""
        choice, lead = argmax_and_lead(logits)

        def decide(part: Tensor) -> None:
            length = lengths[rows[part]]
            prefix = tokens[rows[part], : int(length.max())]
            last = torch.arange(len(part), device=rows.device), length - 1
            exact = self.exact.head(self.exact.hidden(prefix)[last])  # (b, V)
            self.refuse_false_step(largest_difference(logits[part], exact), exact)
            self.check_error(logits[part], exact)
            choice[part] = exact_argmax(exact)

        self.in_float64(decide, torch.nonzero(~(lead >= self.tolerance)).flatten())
        return choice

    def check_error(self, logits: Tensor, exact: Tensor) -> None:
        """Compare float32 `logits` (n, V) with `exact` ones. Raises `ToleranceTooSmall` if the
        error is so large that a lead of the tolerance could be a tie in float64."""
        error = largest_difference(logits, exact)
        if error > GUARD * (self.tolerance - TIE):
            raise ToleranceTooSmall(error)

    def refuse_false_step(self, error: float, exact: Tensor) -> None:
        """Raise RunError if the `error` of `step`, in logits, is too large to be rounding."""
        if error > max(self.tolerance, FALSE_STEP * float(exact.abs().max())):
            raise RunError(
                "`step` does not continue what `forward` computes: their logits differ by "
                f"{error:.2g}; the `prefill` or `step` of a mixer is wrong"
            )


def longest_sequence(model: Transformer, sequences: SequenceSet) -> int:
    """The number of tokens, prompt included and without EOS, at which generation stops: the task's
    longest sequence (a longer chain is wrong anyway), or the model's max_len if shorter."""
    needed = int(sequences.lengths.max()) - 1
    if needed > model.max_len:
        raise UserError(
            f"the longest of these sequences has {needed} tokens, but this model reads at most "
            f"max_len={model.max_len}; evaluate shorter sequences, or a model with room for them"
        )
    return min(sequences.tokens.shape[1] - 1, model.max_len)


def megabytes(memory_mb: Memory, device: torch.device) -> float:
    """auto: `CPU_MEMORY_MB` on a CPU, half of the free memory on a GPU (others share it)."""
    if memory_mb != "auto":
        return float(memory_mb)
    if device.type != "cuda":
        return CPU_MEMORY_MB
    torch.cuda.empty_cache()  # memory that PyTorch caches is free
    return torch.cuda.mem_get_info(device)[0] / 2**20 / 2


def rows_that_fit(memory_mb: Memory, device: torch.device, bytes_per_row: float) -> int:
    most = LARGEST_BATCH.get(device.type, LARGEST_BATCH["cpu"])
    return max(1, min(most, int(megabytes(memory_mb, device) * 2**20 / bytes_per_row)))


def halve_on_oom(work: Callable[[Tensor], None], rows: Tensor) -> None:
    """Call `work` on `rows` (B,), or on halves of them if memory runs out."""
    try:
        return work(rows)
    except torch.OutOfMemoryError:
        if len(rows) == 1:
            raise
    for half in rows.chunk(2):
        halve_on_oom(work, half)
    return None


def largest_difference(logits: Tensor, exact: Tensor) -> float:
    difference = float((logits - exact).abs().max())
    if not math.isfinite(difference):
        raise RunError("the model's logits are not finite; it cannot be evaluated")
    return difference


def first_true(mask: Tensor) -> Tensor:
    """The first true column of each row of `mask` (B, T), T if none."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, columns, mask.shape[1]).amin(1)
