"""The models of conf/model/*.yaml, and of ``--config-dir``, at a small size; and more settings of
the same mixers."""

import dataclasses
import functools
import types

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from common import CONF_DIR
from models.build import ModelConfig, build_model
from tasks.sequences import Vocabulary

FOLDERS = [CONF_DIR]
LONGEST = 70
VOCABULARY = 11
VARIANTS = {  # a file in conf/model, and what changes of its mixer
    "sparse:blocked": ("sparse", {"block_size": 8, "implementation": "blocked"}),
    "sparse:blocked_5_2_3": ("sparse", {
        "block_size": 5, "window_blocks": 2, "summary_tokens": 3, "implementation": "blocked",
    }),
    "sparse:window_alone": ("sparse", {"summary_tokens": 0, "implementation": "blocked"}),
    "sparse:all": ("sparse", {"window_blocks": 9, "implementation": "blocked"}),
    "linear:chunked": ("linear", {"implementation": "chunked", "chunk_size": 8}),
    "standard:canon": ("standard", {"convolution": "canon", "convolution_width": 3}),
    "sparse:silu": ("sparse", {"convolution": "silu"}),
    "linear:silu": ("linear", {"convolution": "silu", "convolution_width": 1}),
    "gla:no_gate": ("gla", {"output_gate": False}),
    "delta_product:of_3": ("delta_product", {"num_householder": 3}),
    "delta_product:gated": (
        "delta_product", {"forget_gate": True, "A_range": [0, 16], "convolution": "none"},
    ),
    "tensor:sqrt": ("tensor", {"scale": "sqrt"}),
    "toy": ("standard", {"_target_": "toy_mixers.Multiplies"}),
}  # fmt: skip


@functools.cache
def settings(name):
    """The `model` group NAME as Hydra composes it, names in `mixers` replaced by settings."""
    name, changes = VARIANTS.get(name, (name, {}))
    beside = ",".join(f"file://{folder}" for folder in FOLDERS[1:])
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        composed = compose(overrides=[f"+model={name}", f"hydra.searchpath=[{beside}]"])
    model = OmegaConf.to_container(composed.model)
    if "mixers" in model:
        model["mixers"] = [settings(mixer).mixer for mixer in model["mixers"]]
    if changes:
        model["mixer"] |= changes
    return ModelConfig(**model)


def names():
    return sorted({path.stem for folder in FOLDERS for path in folder.glob("model/*.yaml")})


def model_of(
    name, position="sinusoidal", max_len=LONGEST, dropout=0.0, layers=None, seed=0,
    vocabulary=VOCABULARY,
):  # fmt: skip
    """A model by the file, of D = 16 and two heads, with at least one layer of every mixer.

    Every parameter is moved a little: norms and biases that start at 1 and 0 would hide.
    """
    config = settings(name)
    layers = layers or max(1, len(config.mixers or []))
    config = dataclasses.replace(config, dim=16, num_heads=2, num_layers=layers, position=position)
    room = types.SimpleNamespace(max_len=max_len, longest_lines=(max_len // 4, max_len // 6))
    tokens = Vocabulary(["<sep>", *map(str, range(vocabulary - 3))])
    task = types.SimpleNamespace(vocabulary=tokens, at_capacity=room, line_ends=["<sep>"])
    torch.manual_seed(seed)
    model = build_model(config, task, dropout)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def mixers_of(name, **changes):
    """One mixer of each of the model's layers."""
    return [block.mixer.eval() for block in model_of(name, **changes).blocks]
