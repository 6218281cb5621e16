"""fluid.layer_helper.LayerHelper: what layers of a user's own are written with in 1.x.

    helper = LayerHelper("my_fc", **locals())
    w = helper.create_parameter(helper.param_attr, [4, 3], "float32")
    out = helper.append_activation(paddle.matmul(x, w))

append_op takes the ops of `_OPS`; other layers call functions of paddle or torch.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

from argosy.engine.errors import ConfigError, closest
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.fluid import layers
from argosy.framework.layer import LayerBuilder, ParamAttr, create_state, to_param_attr
from argosy.framework.missing import missing
from argosy.tensor.creation import assign

__all__ = ["LayerHelper"]

_ONE_INPUT = {
    name: getattr(layers, name)
    for name in (
        *(
            "abs",
            "ceil",
            "cos",
            "exp",
            "floor",
            "gelu",
            "log",
            "mean",
            "reciprocal",
            "relu",
            "round",
            "rsqrt",
            "sigmoid",
        ),
        *("sign", "sin", "softplus", "softsign", "sqrt", "square", "tanh"),
    )
}
_TWO_INPUTS = {
    name: getattr(layers, name)
    for name in (
        *("elementwise_add", "elementwise_div", "elementwise_max", "elementwise_min", "elementwise_mul"),
        *("elementwise_pow", "elementwise_sub", "matmul", "mul"),
    )
}
_ATTRS: dict[str, dict[str, str]] = {
    "matmul": {"transpose_X": "transpose_x", "transpose_Y": "transpose_y", "alpha": "alpha"},
    "mul": {"x_num_col_dims": "x_num_col_dims", "y_num_col_dims": "y_num_col_dims"},
    **{name: {"axis": "axis"} for name in _TWO_INPUTS if name.startswith("elementwise")},
}
"""The attributes of an op, and the arguments of the function that they are."""


class _Unwritten(Variable):
    """A Variable without a value: append_op gives it that of the op's result."""

    def __init__(self) -> None:
        pass  # its program, name and value are those of the result

    def bind(self, result: Variable) -> None:
        """Become another reference to the result."""
        vars(self).update(vars(result))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # Python looks up optional dunder names
        raise ConfigError(
            f"the result of create_variable_for_type_inference has no {name} before append_op writes it"
        )


class LayerHelper:
    """Creates the parameters of a layer and names its results; the keyword arguments are those of the layer."""

    def __init__(self, layer_type: str, **kwargs: Any) -> None:
        self.layer_type, self.kwargs = layer_type, kwargs
        self._builder = LayerBuilder(layer_type, kwargs.get("name"))
        self.name = self._builder.name

    @property
    def main_program(self) -> Program:
        """The default main program."""
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        """The default startup program."""
        return default_startup_program()

    @property
    def param_attr(self) -> ParamAttr | None:
        """The layer's param_attr as a ParamAttr."""
        return to_param_attr(self.kwargs.get("param_attr"))

    @property
    def bias_attr(self) -> ParamAttr | None:
        """The layer's bias_attr as a ParamAttr; None for False."""
        return to_param_attr(self.kwargs.get("bias_attr"))

    def input(self, input_param_name: str = "input") -> Any:
        """The layer's only input."""
        inputs = self.multiple_input(input_param_name)
        if len(inputs) != 1:
            raise ConfigError(f"{self.layer_type}: {input_param_name} are {len(inputs)} Variables; give one")
        return inputs[0]

    def multiple_input(self, input_param_name: str = "input") -> list[Any]:
        """The layer's inputs."""
        inputs = self.kwargs.get(input_param_name, [])
        return list(inputs) if isinstance(inputs, list | tuple) else [inputs]

    def input_dtype(self, input_param_name: str = "input") -> Any:
        """The dtype of the inputs, which is the same for all."""
        dtypes = {variable.dtype for variable in self.multiple_input(input_param_name)}
        if len(dtypes) != 1:
            raise ConfigError(f"{self.layer_type}: {input_param_name} have dtypes {dtypes}; give one dtype")
        return dtypes.pop()

    def create_parameter(
        self,
        attr: Any,
        shape: Sequence[int],
        dtype: Any = None,
        is_bias: bool = False,
        default_initializer: Any = None,
    ) -> Any:
        """A parameter, or None if attr is False."""
        return self._builder.parameter(attr, shape, dtype or "float32", is_bias, default_initializer)

    def create_global_variable(self, persistable: bool = False, *args: Any, **kwargs: Any) -> Any:
        """Raises: a variable of the scope needs an initial value; use layers.create_global_var."""
        raise ConfigError(
            "LayerHelper.create_global_variable: a variable of the scope needs an initial value; use "
            "layers.create_global_var"
        )

    def create_or_get_global_variable(
        self, name: str, shape: Sequence[int], dtype: Any, initializer: Any
    ) -> Any:
        """The variable of the scope of this name, created with this initial value at the first call."""
        known = default_main_program().vars.get(name)
        return create_state(name, shape, dtype, initializer) if known is None else known

    def create_variable_for_type_inference(self, dtype: Any, stop_gradient: bool = False) -> Any:
        """A result for append_op, to which the op's result is bound."""
        return _Unwritten()

    def append_op(self, type: str, inputs: Any = None, outputs: Any = None, attrs: Any = None) -> Any:
        """Add one of the known ops; its result is returned, and bound to the variable in `outputs`."""
        given = [_single(type, value) for value in (inputs or {}).values()]
        function, count = _op(type)
        if len(given) != count:
            raise ConfigError(f"append_op({type!r}): {len(given)} inputs; give {count}")
        arguments = _arguments(type, attrs or {})
        result = function(*given, **arguments)
        targets = [_target(value) for value in (outputs or {}).values()]
        for target in targets:
            if isinstance(target, _Unwritten) and not vars(target):
                target.bind(result)
            else:
                assign(result, target)
        return result

    def append_bias_op(self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None) -> Any:
        """input_var plus a bias parameter of the sizes dim_start to dim_end; input_var itself without bias_attr."""
        size = list(input_var.shape[dim_start:dim_end])
        bias = self._builder.parameter(self.bias_attr or False, size, input_var.dtype, is_bias=True)
        return input_var if bias is None else layers.elementwise_add(input_var, bias, axis=dim_start)

    def append_activation(self, input_var: Variable) -> Any:
        """The layer's activation `act` of input_var."""
        return self._builder.activate(input_var, self.kwargs.get("act"))

    def is_instance(self, param_name: str, cls: type) -> None:
        """Raise unless this argument of the layer is of the class."""
        value = self.kwargs.get(param_name)
        if not isinstance(value, cls):
            raise TypeError(f"{self.layer_type}: {param_name} is {value!r}; give a {cls.__name__}")


def _op(type: str) -> tuple[Callable[..., Any], int]:
    if type in _ONE_INPUT:
        return _ONE_INPUT[type], 1
    if type in _TWO_INPUTS:
        return _TWO_INPUTS[type], 2
    known = [*_ONE_INPUT, *_TWO_INPUTS]
    near = closest(type, known)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ConfigError(
        f"append_op: the op {type!r} is not known{hint}; call a function of paddle, or a torch function or "
        "module, on the Variables"
    )


def _arguments(type: str, attrs: dict[str, Any]) -> dict[str, Any]:
    known = _ATTRS.get(type, {})
    for name in attrs:
        if name not in known:
            raise ConfigError(
                f"append_op({type!r}): the attribute {name!r} is not supported; use {list(known)}"
            )
    return {known[name]: value for name, value in attrs.items()}


def _single(type: str, value: Any) -> Any:
    values = value if isinstance(value, list | tuple) else [value]
    if len(values) != 1:
        raise ConfigError(f"append_op({type!r}): an input of {len(values)} Variables; give one for each name")
    return values[0]


def _target(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) else value


__getattr__ = missing(__name__, globals())
