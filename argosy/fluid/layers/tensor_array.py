"""Arrays of variables (LoDTensorArray): written and read by index, as in a decoding loop.

    ids = fluid.layers.array_write(first, i)            an array of one element
    fluid.layers.array_write(next, i, array=ids)        appends, or replaces
    fluid.layers.array_read(ids, i)

With indices that are known while the program is built, an array is a list of Variables, through which gradients flow.
In a branch or a loop, or with another index, it is a list of the step (ops/tensor_array.py): its elements have one
shape and dtype, and gradients cannot flow through it.
"""

# SPDX-License-Identifier: Apache-2.0
from contextlib import ExitStack
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.block_recorder import BlockRecorder, outside_of_block
from argosy.engine.ir.control_flow import check_same_type
from argosy.engine.ir.dtypes import to_dtype
from argosy.engine.ir.infer import value_of_constant
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.variable import Variable
from argosy.engine.ops.tensor_array import array_length as length_op
from argosy.engine.ops.tensor_array import array_new
from argosy.engine.ops.tensor_array import array_read as read_op
from argosy.engine.ops.tensor_array import array_write as write_op
from argosy.tensor import creation, manipulation


class _TensorArray:
    """The value of create_array."""

    def __init__(self, program: Program, dtype: torch.dtype) -> None:
        self.program = program
        self.recorder = program.recorder
        """That of the program or block that it was created in."""
        self.dtype = dtype
        self.items: list[Variable] = []
        self.variable: Variable | None = None
        """Once it is a list of the step: its variable, and the type of its elements."""
        self.element: torch.Tensor | None = None

    def to_step(self) -> Variable:
        """Make it a list of the step."""
        if self.variable is None:
            with ExitStack() as stack:
                while self.program.recorder is not self.recorder:
                    assert isinstance(self.program.recorder, BlockRecorder), "it was created in another block"
                    stack.enter_context(outside_of_block(self.program, self.program.recorder))
                self.variable = self.program.call(array_new, (), {}, "create_array")
                for index, item in enumerate(self.items):
                    self.write(creation.full([1], index, "int64"), item)
        return self.variable

    def write(self, index: Variable, x: Variable) -> None:
        variable = self.to_step()
        if self.element is None:
            self.element = x.value
        check_same_type("array_write: the element", self.element, x.value, "at first", "now")
        new = self.program.call(
            lambda a, i, v: write_op(a, i, v.detach()), (variable, index, x), {}, "array_write"
        )
        if x.requires_grad:
            new.node.meta["drops_gradient"] = True  # append_backward raises if the loss depends on it
        self.program.write(variable, new.value)

    def read(self, index: Variable) -> Any:
        variable = self.to_step()
        if self.element is None:
            raise ConfigError("array_read: nothing has been written to the array; write an element before")
        size, dtype = list(self.element.shape), self.element.dtype
        return self.program.call(lambda a, i: read_op(a, i, size, dtype), (variable, index), {}, "array_read")


def create_array(dtype: Any, initialized_list: Any = None) -> _TensorArray:
    """An empty array."""
    array = _TensorArray(default_main_program(), to_dtype(dtype))
    for number, item in enumerate(initialized_list or ()):
        array_write(item, creation.full([1], number, "int64"), array)
    return array


def array_write(x: Variable, i: Any, array: _TensorArray | None = None) -> _TensorArray:
    """Write x to index i of an array, by default a new one; returns the array."""
    target = create_array(x.dtype) if array is None else _checked("array_write", array)
    number = _known_index(target, i)
    if number is None:
        target.write(_variable(i), x)
    elif number > len(target.items):
        raise ConfigError(
            f"array_write: index {number} of an array of {len(target.items)}; append at its end"
        )
    else:
        target.items[number : number + 1] = [creation.assign(x)]
    return target


def array_read(array: _TensorArray, i: Any) -> Any:
    """The element at index i."""
    source = _checked("array_read", array)
    number = _known_index(source, i)
    if number is None:
        return source.read(_variable(i))
    if number >= len(source.items):
        raise ConfigError(f"array_read: index {number} of an array of {len(source.items)}")
    return source.items[number]


def array_length(array: _TensorArray) -> Any:
    """The number of elements, as an int64 Variable of shape [1]."""
    source = _checked("array_length", array)
    if _is_list(source):
        return creation.full([1], len(source.items), "int64")
    return source.program.call(length_op, (source.to_step(),), {}, "array_length")


def tensor_array_to_tensor(
    input: _TensorArray, axis: int = 1, name: str | None = None, use_stack: bool = False
) -> Any:
    """The elements concatenated (or stacked) along `axis`, and their sizes in that axis."""
    source = _checked("tensor_array_to_tensor", input)
    if not _is_list(source) or not source.items:
        raise ConfigError(
            "tensor_array_to_tensor needs an array whose length is known while the program is built; read the elements "
            "of an array of a loop with array_read"
        )
    sizes = [1 if use_stack else item.shape[axis] for item in source.items]
    if min(sizes) < 0:
        raise ConfigError(
            f"tensor_array_to_tensor: the size of axis {axis} is unknown; give it in static.data"
        )
    joined = (manipulation.stack if use_stack else manipulation.concat)(source.items, axis)
    return joined, creation.to_tensor(sizes, "int32")


def _checked(what: str, array: Any) -> _TensorArray:
    if not isinstance(array, _TensorArray):
        raise ConfigError(f"{what}: the array is {array!r}; use what create_array or array_write returns")
    return array


def _is_list(array: _TensorArray) -> bool:
    return array.variable is None and array.program.recorder is array.recorder


def _known_index(array: _TensorArray, index: Any) -> int | None:
    """The number, if the array is a list of Variables and the index is known while the program is built."""
    if not _is_list(array):
        return None
    if not isinstance(index, Variable):
        return int(index)
    value = value_of_constant(index.node, array.program.recorder.constants)
    return None if value is None else int(value)


def _variable(index: Any) -> Variable:
    variable: Variable = index if isinstance(index, Variable) else creation.full([1], int(index), "int64")
    return variable
