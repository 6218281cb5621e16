"""Building blocks of layer functions: names of results, parameters, and running a torch function.

def relu(x, name=None):
    return apply("relu", torch.relu, x, name=name)

def linear(x, weight, …):
    layer = LayerBuilder("linear", name)
    weight = layer.parameter(weight_attr, [x.shape[-1], size], x.dtype)
    return layer.run(torch.matmul, x, weight)
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable, first_variable
from argosy.framework.initializer import Constant, Xavier


@dataclass
class ParamAttr:
    """Attributes of one parameter. Layers also take a name, an initialiser, or False for no parameter."""

    name: str | None = None
    initializer: Any = None
    learning_rate: float = 1.0
    """A factor on the optimizer's rate for this parameter alone."""
    regularizer: Any = None
    """L1Decay or L2Decay for this parameter, instead of the optimizer's weight_decay."""
    trainable: bool = True
    do_model_average: bool = True
    """False: ExponentialMovingAverage and ModelAverage leave it alone."""
    need_clip: bool = True

    def __post_init__(self) -> None:
        if self.name is not None and not isinstance(self.name, str):
            raise ConfigError(f"ParamAttr: name is {self.name!r}; give a string or None")


def to_param_attr(attr: Any) -> ParamAttr | None:
    """Convert a layer's param_attr or bias_attr to a ParamAttr; None for False (no parameter)."""
    if attr is False:
        return None
    if attr is None or attr is True:
        return ParamAttr()
    if isinstance(attr, ParamAttr):
        return attr
    if isinstance(attr, str):
        return ParamAttr(name=attr)
    if callable(attr):  # an initialiser
        return ParamAttr(initializer=attr)
    raise ConfigError(
        f"{attr!r} does not describe a parameter; give a ParamAttr, a name, an initialiser or False"
    )


class LayerBuilder:
    """One call of a layer: its name is the prefix of its parameters and results."""

    def __init__(self, kind: str, name: str | None = None) -> None:
        self.kind = kind
        self.name = name or names.generate(kind)

    def parameter(
        self,
        attr: Any,
        shape: Sequence[int],
        dtype: Any,
        is_bias: bool = False,
        default_initializer: Any = None,
    ) -> Any:
        """A Parameter `name`.w_0 (or .b_0 for a bias), or None if `attr` is False."""
        described = to_param_attr(attr)
        if described is None:
            return None
        name = described.name or names.generate(f"{self.name}.{'b' if is_bias else 'w'}")
        fallback = default_initializer or (Constant(0.0) if is_bias else Xavier())
        parameter = create_parameter(
            default_main_program(),
            name,
            shape,
            dtype,
            described.initializer or fallback,
            trainable=described.trainable,
            learning_rate=described.learning_rate,
            regularizer=described.regularizer,
            need_clip=described.need_clip,
        )
        if not described.do_model_average:
            leave_out_of_averages(parameter)
        return parameter

    def statistic(
        self, name: str | None, shape: Sequence[int], dtype: Any, value: float, is_averaged: bool = True
    ) -> Variable:
        """A variable of the scope that is not trained, such as a running mean."""
        state = create_state(name or names.generate(f"{self.name}.w"), shape, dtype, Constant(value))
        if not is_averaged:
            leave_out_of_averages(state)
        return state

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a torch function; its results become `name`.tmp_0, .tmp_1, …"""
        args, kwargs = _constants(args), _constants(kwargs)
        variable = first_variable((args, kwargs))
        program = variable.program if variable is not None else default_main_program()
        return program.call(function, args, kwargs, self.kind, self.name)

    def skip_names(self, count: int) -> None:
        """Skip the names of `count` intermediate results that only Paddle has, so that later ones match Paddle's."""
        for _ in range(count):
            names.generate(f"{self.name}.tmp")

    def activate(self, x: Any, act: str | None) -> Any:
        """Apply an activation by name, if one is given."""
        if act is None:
            return x
        if act not in ACTIVATIONS:
            raise ConfigError(
                f"{self.kind}: act={act!r} is not known; use one of {', '.join(sorted(ACTIVATIONS))}"
            )
        return self.run(ACTIVATIONS[act], x)


ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softmax": lambda x: torch.softmax(x, -1),
    "gelu": torch.nn.functional.gelu,
    "relu6": torch.nn.functional.relu6,
    "leaky_relu": torch.nn.functional.leaky_relu,
    "elu": torch.nn.functional.elu,
    "swish": torch.nn.functional.silu,
    "exp": torch.exp,
    "square": torch.square,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
}


NOT_AVERAGED = "not_averaged"
"""The meta key of variables that averages of weights leave alone (optimizer/averaging.py)."""


def leave_out_of_averages(variable: Variable) -> None:
    """Exclude a variable from the averages of weights."""
    variable.program.recorder.placeholder_of[variable.value].meta[NOT_AVERAGED] = True


def apply(kind: str, function: Callable[..., Any], *args: Any, name: str | None = None, **kwargs: Any) -> Any:
    """A layer without parameters: run a torch function under the layer's name."""
    return LayerBuilder(kind, name).run(function, *args, **kwargs)


def create_parameter(
    program: Program,
    name: str,
    shape: Sequence[int],
    dtype: Any,
    initializer: Any,
    trainable: bool = True,
    **attrs: Any,
) -> Variable:
    """A Parameter, and the nodes of the startup program that initialize it."""
    parameter = program.state(name, _sizes(name, shape), dtype, trainable, initializer=initializer, **attrs)
    default_startup_program().define(name, lambda: initializer(tuple(shape), parameter.dtype))
    return parameter


def create_state(name: str, shape: Sequence[int], dtype: Any, initializer: Any) -> Variable:
    """A variable of the scope that is not trained, with its initial value."""
    state = default_main_program().state(name, _sizes(name, shape), dtype)
    default_startup_program().define(name, lambda: initializer(tuple(shape), state.dtype))
    return state


def _sizes(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    for size in shape:
        if not isinstance(size, int) or size < 1:
            raise ConfigError(
                f"parameter {name!r} would have shape {list(shape)}: a parameter needs known sizes; "
                "give static.data a number in the dimension that the layer multiplies with"
            )
    return tuple(shape)


def _constants(tree: Any) -> Any:
    """Convert NumPy arrays to tensors, which the program stores as constants."""
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree.copy())
    if isinstance(tree, dict):
        return {key: _constants(value) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_constants(value) for value in tree)
    return tree
