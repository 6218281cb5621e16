"""The version of Argosy, of Paddle's API, and the version of torch that it is tested with."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.errors import ConfigError

VERSION = "0.1.0"
PADDLE = "2.0.0"
"""The version of Paddle whose API Argosy has: what `paddle.__version__` is for scripts that import paddle."""
TESTED_TORCH = "2.13"


def check_torch(version: str) -> None:
    """Raise ConfigError unless this is a tested version of torch."""
    if version.split(".")[:2] != TESTED_TORCH.split("."):
        raise ConfigError(
            f"torch {version} is installed, and Argosy is tested with torch {TESTED_TORCH} only; install it with "
            f"pip install 'torch=={TESTED_TORCH}.*'"
        )
