"""Small, briefly trained models, and a plain greedy decoder to compare with."""

import functools

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from models.linear import LinearAttention
from models.sparse import SparseAttention
from models.standard import StandardAttention
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tasks.sequences import EOS_ID, SequenceSet
from tasks.task import Task
from tests.models.toy_mixers import Multiplies
from training.data import Batch, SequenceTensors

MIXERS = {
    "standard": StandardAttention, "sparse": functools.partial(SparseAttention, block_size=4),
    "linear": LinearAttention, "toy": Multiplies,
}  # fmt: skip
TASKS = {
    "arithmetic": Arithmetic(3), "lis": LIS(6), "ed": EditDistance(4),
    "ed_local": EditDistanceLocal(4), "direct": Arithmetic(3, format="direct"),
}  # fmt: skip


def small_model(
    task: Task, mixer: str = "standard", max_len: int | None = None, dim=16, seed=0, **changes
) -> Transformer:
    torch.manual_seed(seed)
    vocabulary, max_len = len(task.vocabulary), max_len or task.max_len
    return Transformer(vocabulary, max_len, dim, 2, 2, MIXERS[mixer], **changes)


def trained_model(task: Task, mixer: str, steps: int, max_len: int | None = None) -> Transformer:
    model = small_model(task, mixer, max_len)
    sequences = SequenceTensors(task.draw(0, 1, 0, 200))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss_of(model, sequences.batch(torch.randint(200, (16,)))).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def loss_of(model: Transformer, batch: Batch) -> Tensor:
    """Mean cross-entropy over the targets of a padded or packed batch."""
    hidden = model.hidden(batch.inputs, batch.packing)
    return F.cross_entropy(model.head(batch.at_targets(hidden)), batch.targets)


def flat_weights(model: torch.nn.Module) -> Tensor:
    """All parameters as one vector."""
    return torch.cat([p.detach().cpu().flatten() for p in model.parameters()])


@functools.cache
def prepared(task_name: str, mixer: str, steps: int) -> tuple[Task, Transformer]:
    """A task and a model trained for `steps` steps, cached."""
    task = TASKS[task_name]
    return task, trained_model(task, mixer, steps)


def twin_model(task: Task, mixer: str, perturbation: float) -> tuple[Transformer, int]:
    """A model whose every arg-max is a tie: both halves of the vocabulary share the head's rows;
    the second half's biases are higher by `perturbation`."""
    model, half = small_model(task, mixer), len(task.vocabulary) // 2
    with torch.no_grad():
        weight = model.head.weight.mul_(20)
        weight[half : 2 * half] = weight[:half]
        model.head.bias.zero_()
        model.head.bias[half : 2 * half] = perturbation
    return model, half


def lowest_of_tie(logits: np.ndarray) -> np.ndarray:
    """The lowest token id whose float64 logit (..., V) is within 1e-9 of the maximum."""
    return (logits.max(-1, keepdims=True) - logits < 1e-9).argmax(-1)


@torch.no_grad()
def plain_greedy(
    model: Transformer, sequences: SequenceSet, longest: int | None = None
) -> list[list[int]]:
    """Greedy decoding with a full float64 forward pass per token."""
    exact, longest = model.double().eval(), longest or model.max_len
    rows = zip(sequences.tokens.tolist(), sequences.prompt_lengths, strict=True)
    texts = [tokens[:length] for tokens, length in rows]
    while going := [text for text in texts if text[-1] != EOS_ID and len(text) <= longest]:
        read = pad_sequence([torch.tensor(text) for text in going], batch_first=True)
        last = torch.tensor([len(text) - 1 for text in going])
        logits = exact(read)[torch.arange(len(going)), last].numpy()
        for text, token in zip(going, lowest_of_tie(logits).tolist(), strict=True):
            text.append(token)
    model.float()
    return texts


def written(generation) -> list[list[int]]:
    """The generated tokens of each row, in the format of `plain_greedy`."""
    rows = zip(generation.tokens.tolist(), generation.lengths, strict=True)
    return [tokens[:length] for tokens, length in rows]


def held_bytes(state):
    """Allocated bytes of a layer's generation state, without integers (positions)."""
    return sum(held.nbytes for held in state.tensors.values() if held.is_floating_point())
