"""Base classes of layers that a line describes: layers of a function, and layers that differ in their defaults.

class LeakyReLU(FunctionLayer, function=functional.leaky_relu): …    LeakyReLU(negative_slope=0.01, name=None)
class Conv1D(_Conv, data_format="NCL"): …                            the arguments of _Conv, with another default
"""

# SPDX-License-Identifier: Apache-2.0
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from argosy.framework.variant import arguments, declaration, signature_of, variant
from argosy.nn.layer.layers import Layer

_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)


class FunctionLayer(Layer):
    """forward(*inputs) is function(*inputs, **arguments); the constructor takes the arguments.

    The first `inputs` parameters of the function are those of `forward`, the others those of the constructor:
    `parameters` and defaults as in `framework.variant`.
    """

    if TYPE_CHECKING:

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __init_subclass__(
        cls,
        function: Callable[..., Any] | None = None,
        inputs: int = 1,
        parameters: str = "",
        **defaults: Any,
    ) -> None:
        super().__init_subclass__()
        if function is None:  # a subclass of a layer, such as a user's
            return
        constructor = signature_of(function, inputs, parameters, defaults)
        hidden = {name: value for name, value in defaults.items() if name not in constructor.parameters}
        own_name = cls.__name__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            Layer.__init__(self)
            self._arguments = arguments(own_name, constructor, args, kwargs)

        def forward(self: Any, *values: Any, **named: Any) -> Any:
            return function(*values, **named, **hidden, **self._arguments)

        taken = list(inspect.signature(function).parameters.values())
        own: Any
        for own, accepted in ((__init__, constructor.parameters.values()), (forward, taken[:inputs])):
            own.__qualname__, own.__module__ = f"{own_name}.{own.__name__}", cls.__module__
            own.__signature__ = inspect.Signature([_SELF, *accepted])
            setattr(cls, own.__name__, own)

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self._arguments.items() if value is not None)


class LayerFamily(Layer):
    """A base of layers that differ in the defaults of their constructor, such as data_format."""

    def __init_subclass__(cls, parameters: str = "", **defaults: Any) -> None:
        super().__init_subclass__()
        if defaults:
            inherited: Callable[..., None] = cls.__init__
            derive = variant(inherited, parameters=parameters and f"self {parameters}", **defaults)
            init = derive(declaration(f"{cls.__name__}.__init__", cls.__module__))
            setattr(cls, "__init__", init)  # noqa: B010  (mypy rejects an assignment to a method)
