"""Which versions of torch Argosy is tested with: it uses parts of torch.fx that change between minor versions."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.errors import ConfigError

TESTED = "2.13"


def check(version: str) -> None:
    """Raise ConfigError unless this is a tested version of torch."""
    if version.split(".")[:2] != TESTED.split("."):
        raise ConfigError(
            f"torch {version} is installed, and Argosy is tested with torch {TESTED} only; install it with "
            f"pip install 'torch=={TESTED}.*'"
        )
