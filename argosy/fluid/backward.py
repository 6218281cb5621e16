"""fluid.backward: append_backward and gradients."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.ir.backward import append_backward, gradients

__all__ = ["append_backward", "gradients"]
