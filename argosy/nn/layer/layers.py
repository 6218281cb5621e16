"""Layer: parameters, buffers and sublayers are its attributes; `forward` adds ops to a program.

    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(784, 10)         linear_0.w_0, linear_0.b_0 in the default main program

        def forward(self, x):
            return F.relu(self.fc(x))

Programs are static: the layer's constructor creates the parameters, the startup program their values.
"""

# SPDX-License-Identifier: Apache-2.0
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import torch

from argosy.engine.errors import ArgumentTypeError, ConfigError, UnknownNameError, UnsupportedError, nearest
from argosy.engine.ir import names
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.runtime.scope import global_scope
from argosy.framework.layer import LayerBuilder


class Layer:
    """The base class of all layers and models."""

    training = True
    """False after `eval()`: dropout and batch_norm are then built in inference mode."""

    def __init__(self, name_scope: str | None = None, dtype: Any = None) -> None:
        for registry in ("_parameters", "_buffers", "_sub_layers"):
            self.__dict__[registry] = {}
        self._dtype = dtype or torch.get_default_dtype()
        self._full_name = names.generate(name_scope or _snake_case(type(self).__name__))
        self._not_saved: set[str] = set()
        self._pre_hooks: dict[int, Callable[..., Any]] = {}
        self._post_hooks: dict[int, Callable[..., Any]] = {}

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Compute the layer; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(); define what it computes")

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        for hook in list(self._pre_hooks.values()):
            if (changed := hook(self, inputs)) is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
        out = self.forward(*inputs, **kwargs)
        for hook in list(self._post_hooks.values()):
            out = out if (changed := hook(self, inputs, out)) is None else changed
        return out

    def full_name(self) -> str:
        """The prefix of the names of the layer's parameters: linear_0."""
        return self._full_name

    # --- registering ----------------------------------------------------------------------------------

    def create_parameter(
        self,
        shape: Any,
        attr: Any = None,
        dtype: Any = None,
        is_bias: bool = False,
        default_initializer: Any = None,
    ) -> Any:
        """A parameter `full_name`.w_0 (.b_0 for a bias), or None if attr is False; set it as an attribute."""
        builder = LayerBuilder("layer", self._full_name)
        return builder.parameter(attr, list(shape), dtype or self._dtype, is_bias, default_initializer)

    def create_statistic(self, name: str | None, shape: Any, value: float) -> Variable:
        """A variable that is not trained, named like a parameter, for `register_buffer`."""
        return LayerBuilder("layer", self._full_name).statistic(name, list(shape), self._dtype, value)

    def add_parameter(self, name: str, parameter: Any) -> Any:
        """Register a parameter by name; None registers the name without a parameter."""
        if parameter is not None and not isinstance(parameter, Parameter):
            raise ArgumentTypeError(
                f"add_parameter({name!r}): a {type(parameter).__name__} is not a Parameter; use create_parameter"
            )
        return self._register(self._parameters, name, parameter)

    def add_sublayer(self, name: str, sublayer: "Layer") -> Any:
        """Register a sublayer by name."""
        if not isinstance(sublayer, Layer):
            raise ArgumentTypeError(
                f"add_sublayer({name!r}): a {type(sublayer).__name__} is not an nn.Layer; give a Layer"
            )
        return self._register(self._sub_layers, name, sublayer)

    def register_buffer(self, name: str, tensor: Any, persistable: bool = True) -> None:
        """Register a variable that is not trained; it is part of `state_dict` unless persistable=False."""
        if tensor is not None and not isinstance(tensor, Variable):
            raise ArgumentTypeError(
                f"register_buffer({name!r}): a {type(tensor).__name__} is not a Variable of a program"
            )
        self._register(self._buffers, name, tensor)
        if not persistable:
            self._not_saved.add(name)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> "HookRemoveHelper":
        """Call hook(layer, inputs) before `forward`; a result other than None replaces the inputs."""
        return HookRemoveHelper(self._pre_hooks, hook)

    def register_forward_post_hook(self, hook: Callable[..., Any]) -> "HookRemoveHelper":
        """Call hook(layer, inputs, output) after `forward`; a result other than None replaces the output."""
        return HookRemoveHelper(self._post_hooks, hook)

    def _register(self, registry: dict[str, Any], name: str, value: Any) -> Any:
        if not isinstance(name, str) or not name or "." in name:
            raise ArgumentTypeError(
                f"{name!r} cannot name a part of a layer; use a non-empty string without dots"
            )
        if name in self.__dict__ or hasattr(type(self), name):
            raise ConfigError(f"{type(self).__name__} has an attribute {name!r} already; choose another name")
        for other in (self._parameters, self._buffers, self._sub_layers):
            if other is not registry:  # a replaced entry keeps its position
                other.pop(name, None)
        registry[name] = value
        return value

    # --- attributes -----------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        kind = {Parameter: "_parameters", Layer: "_sub_layers"}
        for type_, registry in kind.items():
            if isinstance(value, type_):
                if registry not in self.__dict__:
                    raise ConfigError(
                        f"{type(self).__name__}.{name} is set before super().__init__(); call that first"
                    )
                self.__dict__.pop(name, None)
                self._register(self.__dict__[registry], name, value)
                return
        for registry in ("_parameters", "_buffers", "_sub_layers"):
            entries = self.__dict__.get(registry, {})
            if name in entries:
                if value is None or (registry == "_buffers" and isinstance(value, Variable)):
                    entries[name] = value
                    return
                del entries[name]
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        known: dict[str, Any] = {}
        for registry in ("_parameters", "_buffers", "_sub_layers"):
            known.update(self.__dict__.get(registry, {}))
        if name in known:
            return known[name]
        if name.startswith("__"):
            raise AttributeError(name)  # copy and pickle look up optional dunder names
        known.update(self.__dict__)
        raise UnknownNameError(f"{type(self).__name__} has no attribute {name!r}{nearest(name, known)}")

    def __delattr__(self, name: str) -> None:
        for registry in (self._parameters, self._buffers, self._sub_layers):
            if name in registry:
                del registry[name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._parameters, *self._buffers, *self._sub_layers]

    # --- queries --------------------------------------------------------------------------------------

    def children(self) -> Iterator["Layer"]:
        """The layers that are attributes of this one."""
        return (layer for _, layer in self.named_children())

    def named_children(self) -> Iterator[tuple[str, "Layer"]]:
        """(name, layer) of the layers that are attributes of this one, each layer once."""
        seen: list[Layer] = []
        for name, layer in self._sub_layers.items():
            if layer is not None and not any(layer is other for other in seen):
                seen.append(layer)
                yield name, layer

    def sublayers(self, include_self: bool = False) -> list["Layer"]:
        """All sublayers, recursively."""
        return [layer for _, layer in self.named_sublayers(include_self=include_self)]

    def named_sublayers(
        self, prefix: str = "", include_self: bool = False, layers_set: set[int] | None = None
    ) -> Iterator[tuple[str, "Layer"]]:
        """(dotted name, layer) of all sublayers, each once; `layers_set` contains the ids of visited layers."""
        seen = set() if layers_set is None else layers_set
        if id(self) in seen:
            return
        seen.add(id(self))
        if include_self:
            yield prefix, self
        for name, layer in self.named_children():
            yield from layer.named_sublayers(f"{prefix}.{name}" if prefix else name, True, seen)

    def parameters(self, include_sublayers: bool = True) -> list[Any]:
        """The parameters of this layer and its sublayers, each once."""
        return [p for _, p in self.named_parameters(include_sublayers=include_sublayers)]

    def named_parameters(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Any]]:
        """(dotted name, parameter), each parameter once."""
        return self._named("_parameters", prefix, include_sublayers)

    def buffers(self, include_sublayers: bool = True) -> list[Any]:
        """The buffers of this layer and its sublayers, such as the statistics of batch norms."""
        return [b for _, b in self.named_buffers(include_sublayers=include_sublayers)]

    def named_buffers(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Any]]:
        """(dotted name, buffer), each buffer once."""
        return self._named("_buffers", prefix, include_sublayers)

    def _named(self, registry: str, prefix: str, include_sublayers: bool) -> Iterator[tuple[str, Any]]:
        layers = self.named_sublayers(prefix, True) if include_sublayers else iter([(prefix, self)])
        seen: set[int] = set()
        for path, layer in layers:
            for name, value in layer.__dict__[registry].items():
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield f"{path}.{name}" if path else name, value

    # --- state ----------------------------------------------------------------------------------------

    def state_dict(self, include_sublayers: bool = True) -> dict[str, Any]:
        """The Variables of parameters and persistable buffers by dotted name; the scope has their values."""
        state = dict(self.named_parameters(include_sublayers=include_sublayers))
        layers = dict(self.named_sublayers(include_self=True)) if include_sublayers else {"": self}
        for path, layer in layers.items():
            for name, value in layer._buffers.items():
                if value is not None and name not in layer._not_saved:
                    state[f"{path}.{name}" if path else name] = value
        return state

    def set_state_dict(self, state_dict: Mapping[str, Any], use_structured_name: bool = True) -> None:
        """Copy arrays into the scope by dotted name, or by variable name if not use_structured_name."""
        state = self.state_dict()
        targets = state if use_structured_name else {v.name: v for v in state.values()}
        for name, value in state_dict.items():
            if name not in targets:
                raise ConfigError(f"{type(self).__name__} has no {name!r} to set{nearest(name, targets)}")
            array = _value_of(value)
            if tuple(array.shape) != targets[name].shape:
                raise ConfigError(
                    f"{name!r} has shape {list(targets[name].shape)} and cannot be set to {list(array.shape)}"
                )
            global_scope().var(targets[name].name).get_tensor().set(array)

    load_dict = set_dict = set_state_dict

    def clear_gradients(self) -> NoReturn:
        """Raises a ConfigError: a static program has no gradients between its runs."""
        raise UnsupportedError(
            "clear_gradients() is eager style; a static program computes new gradients in every Executor.run: "
            "leave the call out, and build the step with optimizer.minimize(loss)"
        )

    def train(self) -> None:
        """Set training mode for layers built from now on."""
        self._set_training(True)

    def eval(self) -> None:
        """Set inference mode for layers built from now on: no dropout, batch_norm uses its moving statistics."""
        self._set_training(False)

    def _set_training(self, training: bool) -> None:
        for layer in self.sublayers(include_self=True):
            layer.training = training

    def apply(self, fn: Callable[["Layer"], Any]) -> "Layer":
        """Call fn with every sublayer, and then with this layer."""
        for layer in self.children():
            layer.apply(fn)
        fn(self)
        return self

    def extra_repr(self) -> str:
        """The text between the parentheses of the layer's repr."""
        return ""

    def __repr__(self) -> str:
        inside = [f"({name}): {layer!r}".replace("\n", "\n  ") for name, layer in self._sub_layers.items()]
        if not inside:
            return f"{type(self).__name__}({self.extra_repr()})"
        return f"{type(self).__name__}({self.extra_repr()}\n  " + "\n  ".join(inside) + "\n)"


class HookRemoveHelper:
    """The handle of a registered hook."""

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks = hooks
        self._hooks[id(self)] = hook

    def remove(self) -> None:
        """Unregister the hook."""
        self._hooks.pop(id(self), None)


def _snake_case(name: str) -> str:
    """BatchNorm2D to batch_norm2d, as in Paddle."""
    parts = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", parts).lower()


def _value_of(value: Any) -> Any:
    """An array or tensor unchanged; for a Variable, its value in the scope."""
    if isinstance(value, Variable):
        return global_scope().peek(value.name).clone()
    return value if isinstance(value, torch.Tensor) else np.asarray(value)
