"""fluid.framework and fluid.compiler give the classes of static."""

# SPDX-License-Identifier: Apache-2.0
from argosy import fluid, static
from argosy.fluid import compiler, framework


def test_they_are_those_of_static() -> None:
    assert framework.Program is static.Program
    assert framework.Parameter is static.Parameter
    assert compiler.CompiledProgram is static.CompiledProgram
    assert framework.in_dygraph_mode() is False
    assert framework.grad_var_name("w") == "w@GRAD"
    assert fluid.framework is framework
    assert hash(static.InputSpec([None, 3], "float32")) == hash(static.InputSpec((None, 3), "float32"))
    with framework.device_guard("gpu:0"):
        assert framework.default_main_program() is fluid.default_main_program()
