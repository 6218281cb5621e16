"""Torch modules inside a program: copy the trained values back to the module."""

# SPDX-License-Identifier: Apache-2.0
import torch

from argosy.engine.ir.module_state import tensors_of
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.torch_module import recordable, values_for
from argosy.engine.runtime.scope import Scope, global_scope


def write_back(
    module: torch.nn.Module, program: Program | None = None, scope: Scope | None = None
) -> torch.nn.Module:
    """Copy the scope's values into a torch module that was called in the program; returns the module."""
    scope, tensors = scope or global_scope(), tensors_of(recordable(module))
    with torch.no_grad():
        for key, variable in values_for(program or default_main_program(), module).items():
            tensors[key].copy_(scope.get(variable.name))
    return module
