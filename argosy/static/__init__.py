"""paddle.static: programs, the executor, saving."""

# SPDX-License-Identifier: Apache-2.0
from functools import partial

from argosy.engine.ir.backward import append_backward, gradients
from argosy.engine.ir.gc_pause import freeze_imports
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.ir.torch_module import accept_variables
from argosy.engine.ir.variable import Parameter, Variable, before_creation
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.module_values import write_back, write_through
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.framework.missing import missing
from argosy.framework.place import cpu_places, cuda_places
from argosy.metric import accuracy, auc
from argosy.optimizer.averaging import ExponentialMovingAverage
from argosy.static import amp, nn
from argosy.static.compiled_program import CompiledProgram
from argosy.static.debugging import Print, py_func
from argosy.static.input import InputSpec, create_global_var, create_parameter, data, device_guard, name_scope
from argosy.static.io import (
    deserialize_program,
    load,
    load_inference_model,
    load_program_state,
    load_vars,
    normalize_program,
    save,
    save_inference_model,
    save_vars,
    serialize_program,
    set_program_state,
)
from argosy.static.serialized import (
    deserialize_persistables,
    load_from_file,
    save_to_file,
    serialize_persistables,
)
from argosy.static.strategies import BuildStrategy, ExecutionStrategy

# Once there is a Variable: torch modules accept it, and all imports are done.
before_creation.extend([partial(accept_variables, write_through), freeze_imports])

__all__ = [
    "BuildStrategy",
    "CompiledProgram",
    "ExecutionStrategy",
    "Executor",
    "ExponentialMovingAverage",
    "InputSpec",
    "Parameter",
    "Print",
    "Program",
    "Scope",
    "Variable",
    "accuracy",
    "amp",
    "append_backward",
    "auc",
    "cpu_places",
    "create_global_var",
    "create_parameter",
    "cuda_places",
    "data",
    "default_main_program",
    "default_startup_program",
    "deserialize_persistables",
    "deserialize_program",
    "device_guard",
    "global_scope",
    "gradients",
    "load",
    "load_from_file",
    "load_inference_model",
    "load_program_state",
    "load_vars",
    "name_scope",
    "nn",
    "normalize_program",
    "program_guard",
    "py_func",
    "save",
    "save_inference_model",
    "save_to_file",
    "save_vars",
    "scope_guard",
    "serialize_persistables",
    "serialize_program",
    "set_program_state",
    "write_back",
]
__getattr__ = missing(__name__, globals())
