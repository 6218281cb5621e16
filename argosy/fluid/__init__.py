"""The 1.x API: `import argosy.fluid as fluid`."""

# SPDX-License-Identifier: Apache-2.0
from argosy import core
from argosy.engine.data.lod_tensor import (
    LoDTensor,
    LoDTensorArray,
    create_lod_tensor,
    create_random_int_lodtensor,
)
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.flags import get_flags, set_flags
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.fluid import (
    backward,
    clip,
    contrib,
    dataset,
    evaluator,
    executor,
    incubate,
    initializer,
    io,
    layers,
    metrics,
    nets,
    optimizer,
    param_attr,
    reader,
    regularizer,
    transpiler,
)
from argosy.fluid.backward import append_backward, gradients
from argosy.fluid.data_feeder import DataFeeder
from argosy.fluid.dataset import DatasetFactory
from argosy.fluid.framework import in_dygraph_mode
from argosy.fluid.input import data, embedding, one_hot
from argosy.fluid.io import load, save
from argosy.fluid.parallel_executor import ParallelExecutor
from argosy.fluid.param_attr import ParamAttr
from argosy.fluid.transpiler import (
    DistributeTranspiler,
    DistributeTranspilerConfig,
    memory_optimize,
    release_memory,
)
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
from argosy.modules import submodules
from argosy.static.compiled_program import CompiledProgram
from argosy.static.input import device_guard, name_scope
from argosy.static.strategies import BuildStrategy, ExecutionStrategy
from argosy.utils import require_version, unique_name

__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "DataFeeder",
    "DatasetFactory",
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "ExecutionStrategy",
    "Executor",
    "LoDTensor",
    "LoDTensorArray",
    "ParallelExecutor",
    "ParamAttr",
    "Program",
    "Scope",
    "Variable",
    "append_backward",
    "backward",
    "clip",
    "contrib",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "cuda_places",
    "data",
    "dataset",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "embedding",
    "evaluator",
    "executor",
    "get_flags",
    "global_scope",
    "gradients",
    "in_dygraph_mode",
    "incubate",
    "initializer",
    "io",
    "is_compiled_with_cuda",
    "is_compiled_with_xpu",
    "layers",
    "load",
    "memory_optimize",
    "metrics",
    "name_scope",
    "nets",
    "one_hot",
    "optimizer",
    "param_attr",
    "program_guard",
    "reader",
    "regularizer",
    "release_memory",
    "require_version",
    "save",
    "scope_guard",
    "set_flags",
    "transpiler",
    "unique_name",
]
_SUBMODULES = (
    "average",
    "compiler",
    "framework",
    "incubate",
    "install_check",
    "layer_helper",
    "lod_tensor",
    "profiler",
)
__getattr__ = submodules(__name__, _SUBMODULES, missing(__name__, globals()))
