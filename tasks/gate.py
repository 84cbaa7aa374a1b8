"""Baselines that guess the final answer without computing it.

Each baseline is fitted to half of the prompts and tested on the other half. None of them can carry
out several steps, so if one is good, a model's accuracy says little about computation. (A
model once answered a closure problem with 99 % accuracy and not one correct chain.)
"""

import numpy as np
import torch
from torch import nn

from tasks.sampling import draw_set
from tasks.sequences import PAD_ID
from tasks.task import Task

MARGIN = 0.15  # above chance; a task fails where a baseline is better
MAX_ANSWERS, MAX_BIGRAMS = 256, 1000  # the most frequent; others are ignored
EPOCHS, BATCH, HIDDEN, RATE = 15, 100, 128, 3e-3


def gate(task: Task, count: int = 20_000, seed: int = 0) -> dict[str, float]:
    """The accuracy, 0 to 1, of each baseline. "majority" always gives the most frequent answer,
    i.e. chance; the best single position is named."""
    prompts, answers = prompts_and_answers(task, count, seed)
    by_position = [_table(prompts[:, -i], answers) for i in range(1, prompts.shape[1] + 1)]
    best = int(np.argmax(by_position))
    size, classes = len(task.vocabulary), answers.max() + 1
    bigrams = np.where(prompts[:, :-1] > 0, prompts[:, :-1] * size + prompts[:, 1:], PAD_ID)
    ranked = _ranked(bigrams) + 1  # 0 stands for the rarer ones
    torch.manual_seed(seed)
    network = nn.Sequential(_sums(size, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
    return {
        "majority": float((answers[count // 2 :] == 0).mean()),
        "last token": by_position[0],
        f"token {best + 1} from the end": by_position[best],
        "token counts, linear": _fitted(_sums(size, classes), prompts, answers),
        "bigram counts, linear": _fitted(
            _sums(MAX_BIGRAMS + 1, classes), np.where(ranked <= MAX_BIGRAMS, ranked, 0), answers
        ),
        "token counts, network": _fitted(network, prompts, answers),
    }


def prompts_and_answers(task: Task, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct prompts (N, W) as ids, left-padded, without the closing marker, and answers (N,),
    numbered from the most frequent; -1 for a rare one."""
    drawn = draw_set(task, "test", count, seed)
    examples = [task.decode(drawn, row) for row in range(count)]
    given = [e.prompt[: -1 if e.prompt[-1] == task.answer_marker else None] for e in examples]
    prompts = np.full((count, max(2, *map(len, given))), PAD_ID)  # 2: room for a bigram
    for row, prompt in enumerate(given):
        ids = task.vocabulary.encode(prompt)
        prompts[row, -len(ids) :] = ids
    last = slice(-1 if task.labelled else 0, None)
    numbers = _ranked(np.array([" ".join(example.answer[last]) for example in examples]))
    return prompts, np.where(numbers < MAX_ANSWERS, numbers, -1)


def _ranked(values: np.ndarray) -> np.ndarray:
    """Number values by frequency, 0 the most frequent."""
    _, numbers, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.argsort(np.argsort(-counts, kind="stable"))[numbers]


def _table(tokens: np.ndarray, answers: np.ndarray) -> float:
    """Accuracy of the most frequent answer given each token (N,)."""
    half = len(tokens) // 2
    seen = np.zeros((tokens.max() + 1, MAX_ANSWERS + 1))
    np.add.at(seen, (tokens[:half], answers[:half]), 1)  # last: rare answers
    return float((seen[:, :-1].argmax(1)[tokens[half:]] == answers[half:]).mean())


def _sums(kinds: int, width: int) -> nn.EmbeddingBag:
    bag = nn.EmbeddingBag(kinds, width, mode="sum", padding_idx=PAD_ID)
    nn.init.normal_(bag.weight, std=0.05)
    return bag


def _fitted(model: nn.Module, ids: np.ndarray, answers: np.ndarray) -> float:
    """Accuracy of a model from ids (N, W) to logits, fitted to the first half."""
    x, y = torch.from_numpy(ids), torch.from_numpy(answers)
    half = len(x) // 2
    known = torch.arange(half)[y[:half] >= 0]
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    for _ in range(EPOCHS):
        for rows in known[torch.randperm(len(known))].split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    with torch.no_grad():
        return float((model(x[half:]).argmax(1) == y[half:]).float().mean())
