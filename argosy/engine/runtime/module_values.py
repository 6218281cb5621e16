"""Values of torch modules and of the scope, before and after the startup program ran.

before     the module's tensors are the initial values: the startup program reads them when it runs
after      the scope has the values; `load_state_dict` into the module writes through to the scope, and `write_back`
           copies the scope's values to the module
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping

import torch

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ir import module_tensors
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.module_state import tensors_of
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.torch_module import recordable, values_for
from argosy.engine.log import logger
from argosy.engine.ps.trainer import trainer
from argosy.engine.runtime.scope import Scope, global_scope


def write_through(tensors: Mapping[str, torch.Tensor]) -> None:
    """Copy the values that were loaded into torch tensors to their variables in the current scope."""
    scope = global_scope()
    known = {name: tensor for name, tensor in tensors.items() if name in scope.names()}
    if not known:
        return  # the startup program has not run yet, and will read the tensors
    if trainer.is_connected():
        raise ConfigError(
            f"load_state_dict changed {', '.join(known)}, whose values are on the parameter servers; load before "
            "fleet.init_worker(), or save and load by fleet"
        )
    for name, tensor in known.items():
        scope.write(name, tensor)
    logger.info("load_state_dict: %d variables of the scope have the loaded values", len(known))


def check_sources(startup: Program) -> None:
    """Raise ProgramError if a module no longer has the tensor whose value initializes a variable."""
    for source in startup.module_tensors.sources:
        module, key, tensor = source.module, source.path, source.tensor
        variable = startup.vars[module_tensors.name_of(tensor, key)]
        if tensor.dtype != variable.dtype or tuple(tensor.shape) != variable.shape:
            raise ProgramError(
                f"{key!r} of {type(module).__name__} is {dtype_name(tensor.dtype)}{list(tensor.shape)} now, and was "
                f"{dtype_name(variable.dtype)}{list(variable.shape)} when the program was built; convert the module "
                "before it is called"
            )
        path, _, name = key.rpartition(".")
        try:
            current = getattr(module.get_submodule(path), name, None)
        except AttributeError:  # a submodule was removed
            current = None
        if current is not tensor and not torch.nn.utils.parametrize.is_parametrized(module):
            raise ProgramError(
                f"{key!r} of {type(module).__name__} was replaced by another tensor after the program was built; "
                "change it in place (load_state_dict, tensor.copy_), or build the program afterwards"
            )


def write_back(
    module: torch.nn.Module, program: Program | None = None, scope: Scope | None = None
) -> torch.nn.Module:
    """Copy the scope's values into a torch module that was called in the program; returns the module."""
    scope, tensors = scope or global_scope(), tensors_of(recordable(module))
    with torch.no_grad():
        for key, variable in values_for(program or default_main_program(), module).items():
            tensors[key].copy_(scope.peek(variable.name))
    return module
