"""paddle.version: the version of Paddle whose API Argosy has; `argosy.__version__` is Argosy's."""

# SPDX-License-Identifier: Apache-2.0
import torch

from argosy.engine import version as _version
from argosy.framework.missing import missing

full_version = _version.PADDLE
major, minor, patch = full_version.split(".")
rc = "0"
istaged = True
commit = f"Argosy {_version.VERSION}"
with_mkl = "ON" if torch.backends.mkl.is_available() else "OFF"


def cuda() -> str:
    """The version of CUDA that torch is built with, or 'False'."""
    return str(torch.version.cuda or False)


def cudnn() -> str:
    """The version of cuDNN that torch is built with, or 'False'."""
    return str(torch.backends.cudnn.version() or False)


def mkl() -> str:
    """'ON' or 'OFF'."""
    return with_mkl


def show() -> None:
    """Print the versions."""
    print(f"full_version: {full_version}\ncommit: {commit}\ncuda: {cuda()}\ncudnn: {cudnn()}")


__all__ = [
    "commit", "cuda", "cudnn", "full_version", "istaged", "major", "minor", "mkl", "patch", "rc", "show", "with_mkl",
]  # fmt: skip
__getattr__ = missing(__name__, globals())
