"""fluid.framework: programs, variables, places and flags, under the module's name in 1.x."""

# SPDX-License-Identifier: Apache-2.0
from typing import Literal

from argosy import core
from argosy.engine.ir.operator import Operator
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.runtime.flags import get_flags, set_flags
from argosy.framework.missing import missing
from argosy.framework.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cpu_places,
    cuda_places,
    is_compiled_with_cuda,
    is_compiled_with_xpu,
)
from argosy.static.input import device_guard, name_scope
from argosy.utils import unique_name
from argosy.utils.require_version import require_version


def in_dygraph_mode() -> Literal[False]:
    """False: there is no eager mode."""
    return False


def grad_var_name(var_name: str) -> str:
    """The name of a variable's gradient."""
    return f"{var_name}@GRAD"


__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "Operator",
    "Parameter",
    "Program",
    "Variable",
    "core",
    "cpu_places",
    "cuda_places",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "get_flags",
    "grad_var_name",
    "in_dygraph_mode",
    "is_compiled_with_cuda",
    "is_compiled_with_xpu",
    "name_scope",
    "program_guard",
    "require_version",
    "set_flags",
    "unique_name",
]
__getattr__ = missing(__name__, globals())
