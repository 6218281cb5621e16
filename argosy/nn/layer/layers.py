"""Layer: parameters, buffers and sublayers, found by being attributes; `forward` adds to a program.

    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(784, 10)         linear_0.w_0, linear_0.b_0 in the default main program

        def forward(self, x):
            return F.relu(self.fc(x))

Programs are static here: parameters are made when the layer is, their values when the startup program runs.
"""

# SPDX-License-Identifier: Apache-2.0
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import torch

from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.engine.ir import names
from argosy.engine.ir.nearest import nearest
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.runtime.scope import global_scope
from argosy.framework.layer import LayerBuilder


class Layer:
    """The base of all layers and models."""

    training = True
    """False after `eval()`: dropout and batch_norm that are built from then on are those of inference."""

    def __init__(self, name_scope: str | None = None, dtype: Any = "float32") -> None:
        for kept in ("_parameters", "_buffers", "_sub_layers"):
            self.__dict__[kept] = {}
        self._dtype = dtype
        self._full_name = names.generate(name_scope or _snake_case(type(self).__name__))
        self._not_saved: set[str] = set()
        self._pre_hooks: dict[int, Callable[..., Any]] = {}
        self._post_hooks: dict[int, Callable[..., Any]] = {}

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the layer computes; to be written by subclasses."""
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
        """The name that the layer's parameters begin with: linear_0."""
        return self._full_name

    # --- adding ---------------------------------------------------------------------------------------

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
        """Enter a parameter under a name; None enters a name without a parameter."""
        if parameter is not None and not isinstance(parameter, Parameter):
            raise ConfigError(
                f"add_parameter({name!r}): a {type(parameter).__name__} is no Parameter; create one"
            )
        return self._enter(self._parameters, name, parameter)

    def add_sublayer(self, name: str, sublayer: "Layer") -> Any:
        """Enter a layer under a name."""
        if not isinstance(sublayer, Layer):
            raise ConfigError(
                f"add_sublayer({name!r}): a {type(sublayer).__name__} is no nn.Layer; give a Layer"
            )
        return self._enter(self._sub_layers, name, sublayer)

    def register_buffer(self, name: str, tensor: Any, persistable: bool = True) -> None:
        """Enter a variable that is not trained; it is part of `state_dict` unless persistable=False."""
        if tensor is not None and not isinstance(tensor, Variable):
            raise ConfigError(
                f"register_buffer({name!r}): a {type(tensor).__name__} is no Variable of a program"
            )
        self._enter(self._buffers, name, tensor)
        if not persistable:
            self._not_saved.add(name)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> "HookRemoveHelper":
        """Call hook(layer, inputs) before `forward`; if it returns something, those are the inputs."""
        return HookRemoveHelper(self._pre_hooks, hook)

    def register_forward_post_hook(self, hook: Callable[..., Any]) -> "HookRemoveHelper":
        """Call hook(layer, inputs, output) after `forward`; if it returns something, that is the output."""
        return HookRemoveHelper(self._post_hooks, hook)

    def _enter(self, kept: dict[str, Any], name: str, value: Any) -> Any:
        if not isinstance(name, str) or not name or "." in name:
            raise ConfigError(f"{name!r} cannot name a part of a layer; use a non-empty string without dots")
        if name in self.__dict__ or hasattr(type(self), name):
            raise ConfigError(f"{type(self).__name__} has an attribute {name!r} already; choose another name")
        for other in (self._parameters, self._buffers, self._sub_layers):
            if other is not kept:  # what is replaced keeps its place
                other.pop(name, None)
        kept[name] = value
        return value

    # --- attributes -----------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        kind = {Parameter: "_parameters", Layer: "_sub_layers"}
        for type_, kept in kind.items():
            if isinstance(value, type_):
                if kept not in self.__dict__:
                    raise ConfigError(
                        f"{type(self).__name__}.{name} is set before super().__init__(); call that first"
                    )
                self.__dict__.pop(name, None)
                self._enter(self.__dict__[kept], name, value)
                return
        for kept in ("_parameters", "_buffers", "_sub_layers"):
            held = self.__dict__.get(kept, {})
            if name in held:
                if value is None or (kept == "_buffers" and isinstance(value, Variable)):
                    held[name] = value
                    return
                del held[name]
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        known: dict[str, Any] = {}
        for kept in ("_parameters", "_buffers", "_sub_layers"):
            known.update(self.__dict__.get(kept, {}))
        if name in known:
            return known[name]
        if name.startswith("__"):
            raise AttributeError(name)  # Python's own questions
        known.update(self.__dict__)
        raise UnknownNameError(f"{type(self).__name__} has no attribute {name!r}{nearest(name, known)}")

    def __delattr__(self, name: str) -> None:
        for kept in (self._parameters, self._buffers, self._sub_layers):
            if name in kept:
                del kept[name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._parameters, *self._buffers, *self._sub_layers]

    # --- asking ---------------------------------------------------------------------------------------

    def children(self) -> Iterator["Layer"]:
        """The layers that are attributes of this one."""
        return (layer for _, layer in self.named_children())

    def named_children(self) -> Iterator[tuple[str, "Layer"]]:
        """(name, layer) of the layers that are attributes of this one, each layer once."""
        found: list[Layer] = []
        for name, layer in self._sub_layers.items():
            if layer is not None and not any(layer is other for other in found):
                found.append(layer)
                yield name, layer

    def sublayers(self, include_self: bool = False) -> list["Layer"]:
        """All layers inside, however deep."""
        return [layer for _, layer in self.named_sublayers(include_self=include_self)]

    def named_sublayers(
        self, prefix: str = "", include_self: bool = False, layers_set: set[int] | None = None
    ) -> Iterator[tuple[str, "Layer"]]:
        """(dotted name, layer) of all layers inside, each once; `layers_set` holds the ids of those seen."""
        seen = set() if layers_set is None else layers_set
        if id(self) in seen:
            return
        seen.add(id(self))
        if include_self:
            yield prefix, self
        for name, layer in self.named_children():
            yield from layer.named_sublayers(f"{prefix}.{name}" if prefix else name, True, seen)

    def parameters(self, include_sublayers: bool = True) -> list[Any]:
        """The parameters of this layer and of those inside, each once."""
        return [p for _, p in self.named_parameters(include_sublayers=include_sublayers)]

    def named_parameters(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Any]]:
        """(dotted name, parameter), each parameter once."""
        return self._named("_parameters", prefix, include_sublayers)

    def buffers(self, include_sublayers: bool = True) -> list[Any]:
        """The buffers of this layer and of those inside, such as the statistics of batch norms."""
        return [b for _, b in self.named_buffers(include_sublayers=include_sublayers)]

    def named_buffers(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Any]]:
        """(dotted name, buffer), each buffer once."""
        return self._named("_buffers", prefix, include_sublayers)

    def _named(self, kept: str, prefix: str, include_sublayers: bool) -> Iterator[tuple[str, Any]]:
        layers = self.named_sublayers(prefix, True) if include_sublayers else iter([(prefix, self)])
        seen: set[int] = set()
        for path, layer in layers:
            for name, value in layer.__dict__[kept].items():
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield f"{path}.{name}" if path else name, value

    # --- state ----------------------------------------------------------------------------------------

    def state_dict(self, include_sublayers: bool = True) -> dict[str, Any]:
        """The Variables of parameters and persistable buffers by dotted name; the scope has their values."""
        made = dict(self.named_parameters(include_sublayers=include_sublayers))
        layers = dict(self.named_sublayers(include_self=True)) if include_sublayers else {"": self}
        for path, layer in layers.items():
            for name, value in layer._buffers.items():
                if value is not None and name not in layer._not_saved:
                    made[f"{path}.{name}" if path else name] = value
        return made

    def set_state_dict(self, state_dict: Mapping[str, Any], use_structured_name: bool = True) -> None:
        """Put arrays into the scope by dotted name, or by variable's name if not use_structured_name."""
        own = self.state_dict()
        targets = own if use_structured_name else {v.name: v for v in own.values()}
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
        """Raises: a static program has no gradients between its runs."""
        raise ConfigError(
            "clear_gradients() is eager style; a static program computes new gradients in every Executor.run: "
            "leave the call out, and build the step with optimizer.minimize(loss)"
        )

    def train(self) -> None:
        """Build what trains, from now on."""
        self._set_training(True)

    def eval(self) -> None:
        """Build what infers, from now on: dropout lets all through, batch_norm uses its moving statistics."""
        self._set_training(False)

    def _set_training(self, training: bool) -> None:
        for layer in self.sublayers(include_self=True):
            layer.training = training

    def apply(self, fn: Callable[["Layer"], Any]) -> "Layer":
        """Call fn with every layer inside, and then with this one."""
        for layer in self.children():
            layer.apply(fn)
        fn(self)
        return self

    def extra_repr(self) -> str:
        """What stands between the parentheses when the layer is printed."""
        return ""

    def __repr__(self) -> str:
        inside = [f"({name}): {layer!r}".replace("\n", "\n  ") for name, layer in self._sub_layers.items()]
        if not inside:
            return f"{type(self).__name__}({self.extra_repr()})"
        return f"{type(self).__name__}({self.extra_repr()}\n  " + "\n  ".join(inside) + "\n)"


class HookRemoveHelper:
    """A hook that can be taken off again."""

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks = hooks
        self._hooks[id(self)] = hook

    def remove(self) -> None:
        """The hook is not called any more."""
        self._hooks.pop(id(self), None)


def _snake_case(name: str) -> str:
    """BatchNorm2D becomes batch_norm2d, as in Paddle."""
    parts = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", parts).lower()


def _value_of(value: Any) -> Any:
    """An array or a tensor as it is; of a Variable its value in the scope."""
    if isinstance(value, Variable):
        return global_scope().get(value.name).clone()
    return value if isinstance(value, torch.Tensor) else np.asarray(value)
