"""Run scripts with `import paddle` on Argosy: `python -m argosy.paddle script.py`, or `argosy.paddle.install()`."""

# SPDX-License-Identifier: Apache-2.0
from argosy.paddle.hook import install, uninstall

__all__ = ["install", "uninstall"]
