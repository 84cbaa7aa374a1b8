"""The LSTM as a mixer (Hochreiter and Schmidhuber 1997): a control with a nonlinear recurrence.

One layer can follow any finite automaton, including the word problem of A5; softmax attention and
diagonal linear recurrences of fixed depth cannot, unless TC0 = NC1 (Merrill et al. 2024, arXiv
2404.08819). The price: training reads one token at a time.
"""

from typing import Any

from torch import Tensor, nn

from models.mixer import GenerationState, Mixer, Role, upcast, without_autocast, xavier_uniform


class LSTM(Mixer):
    """One layer of `torch.nn.LSTM`, D wide; h_t is the output. At least float32.

    No heads, no attention dropout. Each gate's matrix starts Xavier-uniform, the forget gate's bias
    at 1 (Gers et al. 2000; Jozefowicz et al. 2015), other biases at 0.
    """

    def __init__(self, *sizes: Any, **shared: Any):
        super().__init__(*sizes, **shared)
        dim = self.dim
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        xavier_uniform(self.lstm, parts=4)  # input, forget, cell, output
        nn.init.ones_(self.lstm.get_parameter("bias_ih_l0")[dim : 2 * dim])

    def parameter_roles(self) -> dict[str, Role]:
        stack = Role("hidden", parts=4)
        return {"lstm.weight_ih_l0": stack, "lstm.weight_hh_l0": stack}

    def forward(self, x: Tensor) -> Tensor:
        with without_autocast(x):
            return self.lstm(upcast(x))[0].to(x.dtype)

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        rows = nn.utils.rnn.pack_padded_sequence(
            upcast(x), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        with without_autocast(x):
            packed, (h, c) = self.lstm(rows)
        y = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])[0]
        state = GenerationState({"h": h[0], "c": c[0]}, x.shape[1])
        return y.to(x.dtype), state

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        held = (state.tensors["h"][None], state.tensors["c"][None])  # (1, B, D) each
        with without_autocast(x):
            y, (h, c) = self.lstm(upcast(x)[:, None], held)
        state.tensors["h"], state.tensors["c"] = h[0], c[0]
        return y[:, 0].to(x.dtype)

    def flops(self, length: int) -> dict[str, int]:
        """Eight D x D matrices per token; 4 FLOPs per channel for c = f c + i g and h = o tanh(c).
        FlopCounterMode counts 0 for a fused LSTM."""
        matrices = 2 * 4 * self.dim**2 * length
        return {
            "linear/lstm_input": matrices,
            "linear/lstm_recurrence": matrices,
            "mixing/lstm_cell": 4 * self.dim * length,
        }

    def state_bytes(self, length: int) -> int:
        return 2 * 4 * self.dim
