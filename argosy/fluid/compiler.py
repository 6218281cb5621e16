"""fluid.compiler: compiled programs and their strategies, under the module's name in 1.x."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import missing
from argosy.static.compiled_program import CompiledProgram
from argosy.static.strategies import BuildStrategy, ExecutionStrategy

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]
__getattr__ = missing(__name__, globals())
