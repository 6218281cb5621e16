"""Layers that hold layers or parameters."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Iterator
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.nn.layer.layers import Layer


class Sequential(Layer):
    """Layers one after the other, given as layers or as (name, layer) pairs."""

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        for index, entry in enumerate(layers):
            name, layer = entry if isinstance(entry, tuple | list) else (str(index), entry)
            self.add_sublayer(name, layer)

    def __getitem__(self, name: int | slice | str) -> Any:
        if isinstance(name, slice):
            return Sequential(*list(self._sub_layers.items())[name])
        return self._sub_layers[name] if isinstance(name, str) else list(self._sub_layers.values())[name]

    def __setitem__(self, name: int | str, layer: Layer) -> None:
        self.add_sublayer(name if isinstance(name, str) else list(self._sub_layers)[name], layer)

    def __delitem__(self, name: int | str) -> None:
        del self._sub_layers[name if isinstance(name, str) else list(self._sub_layers)[name]]

    def __len__(self) -> int:
        return len(self._sub_layers)

    def forward(self, input: Any) -> Any:
        for layer in self._sub_layers.values():
            input = layer(input)
        return input


class LayerList(Layer):
    """A list of layers."""

    def __init__(self, sublayers: Iterable[Layer] | None = None) -> None:
        super().__init__()
        self.extend(sublayers or ())

    def __getitem__(self, index: int | slice) -> Any:
        selected = list(self._sub_layers.values())[index]
        return LayerList(selected) if isinstance(selected, list) else selected

    def __setitem__(self, index: int, layer: Layer) -> None:
        self.add_sublayer(str(_index("LayerList", index, len(self))), layer)

    def __delitem__(self, index: int | slice) -> None:
        left = list(self._sub_layers.values())
        del left[index]
        self._renumber(left)

    def __len__(self) -> int:
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(list(self._sub_layers.values()))

    def append(self, sublayer: Layer) -> "LayerList":
        """Add a layer at the end."""
        self.add_sublayer(str(len(self)), sublayer)
        return self

    def insert(self, index: int, sublayer: Layer) -> None:
        """Add a layer before the one at `index`."""
        entries = list(self._sub_layers.values())
        entries.insert(index, sublayer)
        self._renumber(entries)

    def extend(self, sublayers: Iterable[Layer]) -> "LayerList":
        """Add layers at the end."""
        for layer in sublayers:
            self.append(layer)
        return self

    def _renumber(self, layers: list[Layer]) -> None:
        self._sub_layers.clear()
        self.extend(layers)


class ParameterList(Layer):
    """A list of parameters."""

    def __init__(self, parameters: Iterable[Any] | None = None) -> None:
        super().__init__()
        for parameter in parameters or ():
            self.append(parameter)

    def __getitem__(self, index: int) -> Any:
        return list(self._parameters.values())[index]

    def __setitem__(self, index: int, parameter: Any) -> None:
        self.add_parameter(str(_index("ParameterList", index, len(self))), parameter)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._parameters.values()))

    def append(self, parameter: Any) -> "ParameterList":
        """Add a parameter at the end."""
        self.add_parameter(str(len(self)), parameter)
        return self


def _index(kind: str, index: int, length: int) -> int:
    if not -length <= index < length:
        raise ConfigError(
            f"{kind}: there is no entry {index} in a list of {length}; use append for a new one"
        )
    return index % length
