"""Checks of the inputs of layer functions, from a table: the types and dtypes that Paddle's functions accept.

    check_inputs(globals(), {"x: float": "exp log sqrt", "condition: bool; x: any": "where"})

    exp(3.0)                 ArgumentTypeError: exp: x is a float; give a Variable
    exp(ids)                 ArgumentTypeError: exp: x is 'ids' of int64; give a Variable of floating-point numbers

An ArgumentTypeError is a TypeError, which Paddle raises for both.
"""

# SPDX-License-Identifier: Apache-2.0
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from argosy.engine.errors import ArgumentTypeError
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.variable import Variable

_Accepts = Callable[[torch.dtype], bool]
_KINDS: dict[str, tuple[str, _Accepts]] = {
    "any": ("", lambda dtype: True),
    "float": ("of floating-point numbers", lambda dtype: dtype.is_floating_point),
    "number": ("of numbers", lambda dtype: dtype is not torch.bool),
    "integer": ("of integers", lambda dtype: not (dtype.is_floating_point or dtype is torch.bool)),
    "bool": ("of truth values (bool)", lambda dtype: dtype is torch.bool),
}
"""The kinds of a table: their names in messages, and the dtypes that they accept."""


@dataclass(frozen=True)
class InputType:
    """What one argument of a function accepts: a Variable of this kind, or with `is_list` a list of them."""

    name: str
    kind: str
    is_list: bool

    def check(self, function: str, value: Any) -> None:
        """Raise ArgumentTypeError for another value."""
        if not self.is_list:
            self._check_one(f"{function}: {self.name}", value)
            return
        if not isinstance(value, list | tuple):
            raise ArgumentTypeError(
                f"{function}: {self.name} is a {type(value).__name__}; give a list of Variables"
            )
        for index, item in enumerate(value):
            self._check_one(f"{function}: {self.name}[{index}]", item)

    def _check_one(self, what: str, value: Any) -> None:
        description, accepts = _KINDS[self.kind]
        if not isinstance(value, Variable):
            raise ArgumentTypeError(
                f"{what} is a {type(value).__name__}; give a Variable {description}".rstrip()
            )
        if not accepts(value.dtype):
            raise ArgumentTypeError(
                f"{what} is {value.name!r} of {dtype_name(value.dtype)}; give a Variable {description}"
            )


def check_inputs(package: dict[str, Any], table: Mapping[str, str]) -> None:
    """Replace functions of a package by ones that check their inputs first.

    `table`: the inputs, "x: float; label: any", or for lists of Variables "input: any[]", and the functions that have
    them. An input that is None is not checked.
    """
    replacements = {
        package[name]: checked(package[name], input_types(text))
        for text, names in table.items()
        for name in names.split()
    }
    for name, value in package.items():  # other names of a function, too
        if isinstance(value, FunctionType) and value in replacements:
            package[name] = replacements[value]


def input_types(text: str) -> list[InputType]:
    """The rules in "x: float; label: any"."""
    rules = [rule.split(": ") for rule in text.split("; ")]
    return [InputType(name, kind.removesuffix("[]"), kind.endswith("[]")) for name, kind in rules]


def checked(function: Callable[..., Any], rules: list[InputType]) -> Callable[..., Any]:
    """The function, with its inputs checked before every call."""
    parameters = list(inspect.signature(function).parameters)
    places = [(parameters.index(rule.name), rule) for rule in rules]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for place, rule in places:
            value = args[place] if place < len(args) else kwargs.get(rule.name)
            if value is not None:
                rule.check(function.__name__, value)
        return function(*args, **kwargs)

    return call
