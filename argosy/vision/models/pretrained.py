"""The error for pretrained weights."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.errors import ConfigError


def check_not_pretrained(name: str, pretrained: bool) -> None:
    """Raise a ConfigError if `pretrained`: no weights are downloaded."""
    if pretrained:
        raise ConfigError(
            f"{name}(pretrained=True): Argosy has no trained weights and downloads none; build the model without it, "
            "and load weights of your own: model.set_state_dict(paddle.load(path))"
        )
