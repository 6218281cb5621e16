"""paddle.sysconfig: where the C++ sources and libraries of Argosy are."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from argosy.engine.kernels import shared_library
from argosy.framework.missing import missing


def get_include() -> str:
    """The directory of the headers of Argosy's kernels."""
    return str(Path(shared_library.__file__).parent / "source")


def get_lib() -> str:
    """The directory of torch's shared libraries, which Argosy's kernels are linked with."""
    import torch

    return str(Path(torch.__file__).parent / "lib")


__all__ = ["get_include", "get_lib"]
__getattr__ = missing(__name__, globals())
