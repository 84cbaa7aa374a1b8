"""Initial values of the parts of the transformer that are not a mixer's own."""

from torch import nn


def xavier_uniform(module: nn.Module) -> None:
    """Xavier-uniform for every weight matrix inside (Yang et al. 2024, section 6), biases zero."""
    for name, parameter in module.named_parameters():
        if parameter.dim() >= 2:
            nn.init.xavier_uniform_(parameter)
        elif name.split(".")[-1] == "bias":
            nn.init.zeros_(parameter)
