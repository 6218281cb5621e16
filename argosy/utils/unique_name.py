"""unique_name.generate, guard, switch: see argosy.engine.ir.names."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.ir.names import generate, guard, switch

__all__ = ["generate", "guard", "switch"]
