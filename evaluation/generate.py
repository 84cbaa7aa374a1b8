"""Exact greedy generation, mostly without decoding.

The generated token is *by definition* the arg-max of the model's float64 logits on the prefix; two
logits closer than 1e-9 are a tie, won by the lowest token id (`exact_argmax`). So a float64 copy of
the model, with the mixers' `reference`, gives the same tokens for any batching:

1. **Certify.** One parallel forward pass over prompt + gold chain + answer + EOS. If the arg-max is
the gold token at every target, greedy generation writes the gold sequence, by induction on
prefixes.

2. **Decode** from each sequence's first mistake on, with the mixers' own state; finished rows leave
the batch.

Labels are the arg-maxes of the first pass. With a rounded state (`generate_rounded`)
there is no parallel pass: prompts too are read token by token, in float32.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from common import RunError, UserError
from evaluation.state_format import StateRounding
from models.checks import exact_copy, require_causal, require_same_step
from models.transformer import Transformer
from tasks.sequences import EOS_ID, PAD_ID, SequenceSet
from training.data import Layout, SequenceTensors

TIE = 1e-9
COMPACT_BELOW = 0.75  # a batch is compacted once fewer rows than this share are unfinished
LARGEST_BATCH = {"cpu": 1024, "cuda": 8192}  # sequences decoded together
CPU_MEMORY_MB = 1024.0
# Certifying 167-token sequences at D = 128 on one core takes 4.3 ms each in batches of 16 and 32,
# 6.4 in batches of 256: activations should fit the cache.
CPU_TOKENS_PER_BATCH = 4096

Memory = float | Literal["auto"]
Progress = Callable[[int, int], None]  # called with (sequences done, sequences in all)


@dataclass
class Generation:
    """The greedy generations of N sequences.

    `tokens` (N, W): prompt and generated tokens, padded; `lengths` (N,) counts both, with EOS if
    reached; `first_mistake` (N,): position of the first token that is not gold, -1 for none. With
    labels, `tokens` are the model's labels (N, W) as in `SequenceSet`.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    first_mistake: np.ndarray


@torch.no_grad()
def generate(
    model: Transformer,
    sequences: SequenceSet,
    memory_mb: Memory = "auto",
    device: torch.device | str = "cpu",
    progress: Progress = lambda done, total: None,
    rounding: StateRounding | None = None,
) -> Generation:
    """Greedy generations after the prompts of `sequences`.

    A sequence ends with EOS, or once longer than `longest_sequence`. `memory_mb` bounds a batch
    (`megabytes`). The model is left on `device`, in float32 and evaluation mode. Raises UserError
    for sequences longer than the model reads or a mixer that looks ahead or whose `step` is wrong,
    RunError for logits that are not finite. With a `rounding`, the state is rounded after every
    token, and such logits give an arbitrary token.
    """
    device = torch.device(device)
    model = model.to(device).float().eval()
    require_causal(model)
    longest, total = longest_sequence(model, sequences), len(sequences)
    tensors = SequenceTensors(sequences, device)
    if rounding is not None:
        require_same_step(model)
        rows = rows_that_fit(memory_mb, device, 4 * model.state_bytes(longest + 1) + 1)
        return generate_rounded(model, sequences, tensors, longest, rows, rounding, progress)
    exact = exact_copy(model)
    require_same_step(exact)
    bytes_per_token = exact_bytes_per_token(model, longest)
    max_tokens = int(megabytes(memory_mb, device) * 2**20 / bytes_per_token)
    if device.type == "cpu":
        max_tokens = min(max_tokens, CPU_TOKENS_PER_BATCH)
    parts = tensors.parts(torch.arange(total), Layout(max_tokens=max_tokens))
    predicted = predict(exact, tensors, parts, progress)
    if sequences.labels is not None:
        labels = predicted.cpu().numpy()
        return Generation(labels, sequences.lengths, first_difference(labels, sequences.labels))
    # Mixers may hold their state for max_len tokens at once, and compacting copies it.
    bytes_per_row = 4 * model.state_bytes(model.max_len) + bytes_per_token * longest
    text = TextBuffer(tensors, predicted, longest)
    mistaken = torch.nonzero(text.first_mistake >= 0).flatten()
    order, done = mistaken[torch.argsort(text.first_mistake[mistaken])], total - len(mistaken)
    for rows in order.split(rows_that_fit(memory_mb, device, bytes_per_row)):
        decode_rows(exact, text, rows)
        progress(done := done + len(rows), total)
    found = text.tokens, text.lengths, text.first_mistake
    return Generation(*(x.cpu().numpy() for x in found))


def exact_argmax(logits: Tensor) -> Tensor:
    """The generated token for float64 `logits` (..., V): the arg-max, where logits within `TIE`
    (absolute) of the largest are tied and the lowest id wins. Without ties, two equal rows of the
    head would leave the token to rounding of about 1e-13, which changes with the batch."""
    if not logits.isfinite().all():
        raise RunError("the model's logits are not finite; it cannot be evaluated")
    ids = torch.arange(logits.shape[-1], device=logits.device)
    tied = logits.amax(-1, keepdim=True) - logits < TIE
    return torch.where(tied, ids, logits.shape[-1]).amin(-1)


def first_difference(written: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """The first column in which rows (N, w) of `written` and (N, W) of `gold` differ, or -1."""
    wrong = written != gold[:, : written.shape[1]]
    return np.where(wrong.any(1), wrong.argmax(1), -1)


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


def exact_bytes_per_token(model: Transformer, longest: int) -> int:
    """Of a float64 pass: chunked mixers hold about 56 numbers per channel, and CUDA has no fused
    attention in float64."""
    heads = max(block.mixer.num_heads for block in model.blocks)
    return 8 * (56 * model.dim + 4 * model.head.out_features + 2 * heads * longest)


def rows_that_fit(memory_mb: Memory, device: torch.device, bytes_per_row: float) -> int:
    most = LARGEST_BATCH.get(device.type, LARGEST_BATCH["cpu"])
    return max(1, min(most, int(megabytes(memory_mb, device) * 2**20 / bytes_per_row)))


def predict(
    exact: Transformer, sequences: SequenceTensors, parts: list[Tensor], progress: Progress
) -> Tensor:
    """The token or label that the model gives at every target, in one pass, else 0; (N, W)."""
    predicted, done = torch.zeros_like(sequences.targets), 0
    for rows in parts:
        batch = sequences.batch(rows)
        choice = exact_argmax(exact.head(batch.at_targets(exact.hidden(batch.inputs))))
        found = batch.spread(choice).to(predicted.dtype)  # (B, T)
        predicted[rows.to(predicted.device), 1 : 1 + found.shape[1]] = found
        wrong = batch.spread(choice != batch.targets).any(1)  # these are yet to be decoded
        done += len(rows) - (0 if sequences.labelled else int(wrong.sum()))
        progress(done, len(sequences))
    return predicted


class TextBuffer:
    """The tokens written for N sequences, on their device.

    `tokens` (N, `longest` + 1): prompt and generated tokens, padded; `lengths` (N,) counts both;
    `first_mistake` (N,): position of the first token that is not gold, -1 for none. At first, gold
    sequences up to the first token at which the model's, `predicted` (N, W), differ.
    """

    def __init__(self, sequences: SequenceTensors, predicted: Tensor, longest: int) -> None:
        self.longest, gold = longest, sequences.tokens
        place = torch.arange(gold.shape[1], device=gold.device)
        wrong = predicted != gold  # (N, W), in place: it can be large
        wrong &= place >= sequences.prompt_lengths[:, None]
        wrong &= place < sequences.lengths[:, None]
        mistaken, first = wrong.any(1), wrong.view(torch.uint8).argmax(1)
        self.first_mistake = first.where(mistaken, -1)
        self.lengths = first.where(mistaken, sequences.lengths)
        self.tokens = gold.where(place < self.lengths[:, None], PAD_ID)[:, : longest + 1]
        rows = torch.nonzero(mistaken).flatten()
        self.append(rows, predicted[rows, first[rows]])

    def ended(self, rows: Tensor) -> Tensor:
        """Which of `rows` (B,) end in EOS or are longer than any valid sequence."""
        lengths = self.lengths[rows]
        return (self.tokens[rows, lengths - 1] == EOS_ID) | (lengths > self.longest)

    def append(self, rows: Tensor, token: Tensor) -> None:
        self.tokens[rows, self.lengths[rows]] = token.to(self.tokens.dtype)
        self.lengths[rows] += 1


def decode_rows(exact: Transformer, text: TextBuffer, rows: Tensor) -> None:
    """Generate token by token in `rows` (B,) of `text`."""
    rows = rows[~text.ended(rows)]
    if not len(rows):
        return
    lengths = text.lengths[rows]
    logits, state = exact.prefill(text.tokens[rows, : int(lengths.max())], lengths)
    token = torch.zeros_like(rows)
    live = torch.arange(len(rows), device=rows.device)  # the rows of the batch still going
    while True:
        going = rows[live]
        token[live] = exact_argmax(logits[live])
        text.append(going, token[live])
        live = live[~text.ended(going)]
        if not len(live):
            return
        if len(live) <= COMPACT_BELOW * len(rows):
            rows, token = rows[live], token[live]
            read = int(text.lengths[rows].max()) - 1  # all but the new token
            state = [layer.select(live, read) for layer in state]
            live = torch.arange(len(rows), device=rows.device)
        # Finished rows keep running at a valid position; their logits are ignored.
        positions = (text.lengths[rows] - 1).clamp(max=text.longest - 1)
        logits = exact.step(token, positions, state)  # (B, V)


def generate_rounded(
    model: Transformer,
    sequences: SequenceSet,
    tensors: SequenceTensors,
    longest: int,
    rows: int,
    rounding: StateRounding,
    progress: Progress,
) -> Generation:
    """`generate` with the state rounded after every token, `rows` sequences at a time."""
    forced = tensors.prompt_lengths if sequences.labels is None else tensors.lengths
    parts, done = [], 0
    tokens = tensors.tokens[:, : longest + 1]
    for given, until in zip(tokens.split(rows), forced.split(rows), strict=True):
        parts.append(read_and_write_batch(model, given, until, rounding))
        progress(done := done + len(given), len(sequences))
    text, output = (
        torch.cat(part).cpu().numpy().astype(sequences.tokens.dtype)
        for part in zip(*parts, strict=True)
    )
    if sequences.labels is None:
        ends = text == EOS_ID
        lengths = np.where(ends.any(1), ends.argmax(1) + 1, text.shape[1])
        return Generation(text, lengths, first_difference(text, sequences.tokens))
    labels = np.zeros_like(sequences.labels)
    width = output.shape[1]
    labels[:, :width] = output * (sequences.labels[:, :width] != 0)
    return Generation(labels, sequences.lengths, first_difference(labels, sequences.labels))


def read_and_write_batch(
    model: Transformer, given: Tensor, forced: Tensor, rounding: StateRounding
) -> tuple[Tensor, Tensor]:
    """Take the first `forced` (B,) tokens from `given` (B, W) and write the others up to EOS.
    Returns padded tokens and the model's output at each place, (B, W) each."""
    text, predicted = torch.full_like(given, PAD_ID), torch.full_like(given, PAD_ID)
    text[:, 0] = given[:, 0]
    logits, state = model.prefill(given[:, :1], torch.ones_like(forced))
    ended = torch.zeros_like(forced, dtype=torch.bool)
    for position in range(1, given.shape[1]):
        rounding(state)
        predicted[:, position] = logits.argmax(-1)
        token = torch.where(position < forced, given[:, position], predicted[:, position])
        text[:, position] = token.masked_fill(ended, PAD_ID)
        ended |= text[:, position] == EOS_ID
        if ended.all() or position + 1 == given.shape[1]:
            break
        # Finished rows run on over padding; their output is ignored.
        logits = model.step(text[:, position], torch.full_like(forced, position), state)
    return text, predicted
