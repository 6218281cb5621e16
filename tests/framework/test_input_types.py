"""Inputs of layer functions: every function of the tables rejects what is no Variable, and wrong dtypes."""

# SPDX-License-Identifier: Apache-2.0
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from argosy import fluid, static, tensor
from argosy.engine.errors import ArgumentTypeError
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.variable import Variable
from argosy.fluid.layers.input_types import INPUTS as FLUID
from argosy.framework.input_types import InputType, checked, input_types
from argosy.nn import functional
from argosy.nn.functional.input_types import INPUTS as FUNCTIONAL
from argosy.static.nn.input_types import INPUTS as STATIC
from argosy.tensor.input_types import INPUTS as TENSOR

PACKAGES: list[tuple[ModuleType, Mapping[str, str]]] = [
    (tensor, TENSOR),
    (functional, FUNCTIONAL),
    (static.nn, STATIC),
    (fluid.layers, FLUID),
]
ACCEPTED = {
    "any": "bool",
    "float": "float32 float64 float16 bfloat16",
    "number": "float32 int64",
    "integer": "int64 int32",
    "bool": "bool",
}
REJECTED = {
    "any": "",
    "float": "int64 bool",
    "number": "bool",
    "integer": "float32 bool",
    "bool": "int64 float32",
}


def variable(dtype: str) -> Variable:
    return default_main_program().data(f"x_{dtype}", [None, 4], dtype)


def functions() -> Iterator[tuple[Callable[..., Any], list[InputType]]]:
    for package, table in PACKAGES:
        for text, names in table.items():
            for name in names.split():
                yield getattr(package, name), input_types(text)


def arguments(rules: list[InputType], wrong: InputType, value: Any) -> dict[str, Any]:
    """Valid inputs, except for one; other arguments are not looked at before the inputs are checked."""
    given: dict[str, Any] = {rule.name: variable(ACCEPTED[rule.kind].split()[0]) for rule in rules}
    given |= {rule.name: [given[rule.name]] * 2 for rule in rules if rule.is_list}
    return {**given, wrong.name: value}


def test_every_function_rejects_values_that_are_no_variables() -> None:
    count = 0
    for function, rules in functions():
        for rule in rules:
            for value in (np.ones((2, 4), "float32"), 3.0, "x", [3.0]):
                with pytest.raises(TypeError, match=rf"{rule.name}(\[0\])? is a "):
                    function(**arguments(rules, rule, value))
                count += 1
    assert count > 700


def test_every_function_rejects_wrong_dtypes() -> None:
    count = 0
    for function, rules in functions():
        for rule in rules:
            for dtype in REJECTED[rule.kind].split():
                wrong = [variable(dtype)] if rule.is_list else variable(dtype)
                with pytest.raises(TypeError, match=f"of {dtype}; give a Variable of"):
                    function(**arguments(rules, rule, wrong))
                count += 1
    assert count > 250


def test_the_signature_and_the_docstring_stay() -> None:
    for function, _ in functions():
        assert function.__doc__
        assert "kwargs" not in inspect.signature(function).parameters


def test_accepted_inputs_are_passed_on_by_position_and_by_name() -> None:
    def pair(x: Variable, label: Variable | None = None) -> tuple[Variable, Variable | None]:
        return x, label

    guarded = checked(pair, input_types("x: float; label: integer"))
    for dtype in ACCEPTED["float"].split():
        assert guarded(variable(dtype)) == (variable(dtype), None)
    x, label = variable("float32"), variable("int64")
    assert guarded(x, label) == guarded(label=label, x=x) == (x, label)
    with pytest.raises(
        ArgumentTypeError, match="pair: label is 'x_float32' of float32; give a Variable of integers"
    ):
        guarded(x, x)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        guarded()
