"""Small versions of the models in conf/model/*.yaml and `--config-dir`, and mixer variants."""

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
VARIANTS = {  # file in conf/model, changes to its mixer
    "sparse:blocked": ("sparse", {"block_size": 8, "implementation": "blocked"}),
    "sparse:blocked_5_2_3": ("sparse", {
        "block_size": 5, "window_blocks": 2, "summary_tokens": 3, "implementation": "blocked",
    }),
    "sparse:window_alone": ("sparse", {"summary_tokens": 0, "implementation": "blocked"}),
    "sparse:all": ("sparse", {"window_blocks": 9, "implementation": "blocked"}),
    "linear:chunked": ("linear", {"implementation": "chunked", "chunk_size": 8}),
    "standard:canon": ("standard", {"convolution": "canon", "convolution_width": 3}),
    "sparse:silu": ("sparse", {"convolution": "silu"}),
    "linear:silu": ("linear", {"convolution": "silu", "convolution_width": 2}),
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
    """Compose the `model` group NAME; names in `mixers` are replaced by their settings."""
    name, changes = VARIANTS.get(name, (name, {}))
    beside = ",".join(f"'file://{folder}'" for folder in FOLDERS[1:])
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
    """Build the model NAME with D = 16, two heads and at least one layer of each mixer.

    Parameters are perturbed, because norms and biases at 1 and 0 would hide errors.
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
    """The mixer of each layer, in evaluation mode."""
    return [block.mixer.eval() for block in model_of(name, **changes).blocks]
