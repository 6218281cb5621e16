"""Signatures of the C functions: arguments are checked before every call, because the functions access raw memory.

    ACT_BACKWARD = Kernel("argosy_act_backward", "dy: dense, more: dense?, ref: dense, dx: dense! over dy more ref")
    ACT_BACKWARD((dy, more, ref, dx), c_int64(dx.numel()), …)      checks the tensors, then calls with their pointers

A description names the tensors in the order of the C function, each with its kind, relative to the first one:

    dense       the shape and strides of the first; without gaps or overlapping elements
    image       the same, but [N, C, …] with at least one element, contiguous or channels_last
    channels    [C], contiguous
    filters     [C, 1, height, width], contiguous, not empty
    output      [N, C, height, width] in the memory format of the first
    weights     [O, C, 3, 3] in channels_last, multiples of 32; C or O is the number of channels of the first
    pixels      [N, any, height, width] in channels_last, not empty, with the N of the first
    repeated    the shape and strides of the first; or its trailing dimensions, both contiguous
    vector      [n], contiguous
    ?           may be None
    !           is written: new memory, or exactly the memory of an argument after `over`, which overlaps no other one

The first tensor decides the type of the elements: float32, or bfloat16 if the function has a variant for it. `channels`
are float32 in both.

An invalid argument raises ValueError, to which the executor adds the node and its source line. Valid combinations of
shapes, strides and dtypes are cached; overlaps are checked in every call. Ops call the functions only through this
class: they never pass pointers.
"""

# SPDX-License-Identifier: Apache-2.0
import re
from collections.abc import Sequence
from ctypes import c_void_p
from typing import Any, NamedTuple

import torch
from torch import Tensor

from argosy.engine.kernels.shared_library import library

_ARGUMENT = re.compile(r"(\w+): (\w+)(\??)(!?)((?: over)?)((?: \w+)*)")
_MAX_SEEN = 4096
_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
_WORDS = {
    "dense": "of the shape and the strides of the first argument, without gaps",
    "image": "of the shape of the first argument, [N, C, …], not empty, contiguous or channels_last like it",
    "channels": "a contiguous [C] for a first argument of [N, C, …]",
    "filters": "a contiguous, not empty [C, 1, height, width] for a first argument of [N, C, height, width]",
    "output": "[N, C, height, width] in the memory format of the first argument",
    "weights": "[O, C, 3, 3] in channels_last, multiples of 32, C or O as many as the first argument has channels",
    "pixels": "[N, any, height, width] in channels_last, not empty, with the N of the first argument",
    "repeated": "of the trailing dimensions of the first argument, both contiguous, or of its shape and strides",
    "vector": "contiguous and of one dimension",
}


class _Argument(NamedTuple):
    place: int
    name: str
    kind: str
    is_optional: bool


class Kernel:
    """One C function on tensors, and their required kinds."""

    def __init__(
        self, name: str, arguments: str, dtype: torch.dtype = torch.float32, has_bf16: bool = False
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.has_bf16 = has_bf16
        """True: there is a function `name`_bf16 for bfloat16 elements."""
        matches = [_ARGUMENT.fullmatch(text) for text in arguments.split(", ")]
        parts = [match.groups() for match in matches if match is not None]
        assert len(parts) == len(matches), arguments
        names = [part[0] for part in parts]
        self.arguments = tuple(_Argument(i, p[0], p[1], bool(p[2])) for i, p in enumerate(parts))
        self._pairs = tuple((i, names.index(name)) for i, p in enumerate(parts) for name in p[5].split())
        """A written argument, and one whose memory it may be."""
        self._seen: set[Any] = set()
        self._alike = tuple(a for a in self.arguments if a.kind in ("dense", "image"))
        self._others = tuple(a for a in self.arguments if a.kind not in ("dense", "image"))

    def __call__(self, tensors: Sequence[Tensor | None], *numbers: Any) -> Any:
        """Check the tensors and call the function with their pointers, and then the numbers."""
        pointers = self.check(tensors)
        first = tensors[0]
        suffix = "_bf16" if first is not None and first.dtype is torch.bfloat16 else ""
        return getattr(library(), self.name + suffix)(*map(c_void_p, pointers), *numbers)

    def check(self, tensors: Sequence[Tensor | None]) -> list[int | None]:
        """The tensors' addresses; raises ValueError unless every tensor is of the required kind."""
        facts: list[Any] = []
        pointers: list[int | None] = []
        for tensor in tensors:
            if tensor is None:
                facts.append(None)
                pointers.append(None)
            else:
                facts += (tensor.shape, tensor.stride(), tensor.dtype, tensor.is_cpu)
                pointers.append(tensor.data_ptr())
        key = tuple(facts)
        if key not in self._seen:
            self._check_kinds(tensors)
            if len(self._seen) == _MAX_SEEN:
                self._seen.clear()
            self._seen.add(key)
        for target, source in self._pairs:
            if pointers[target] == pointers[source]:
                self._check_overlap(target, tensors)
        return pointers

    def _check_kinds(self, tensors: Sequence[Tensor | None]) -> None:
        first = tensors[0]
        if first is None or len(tensors) != len(self.arguments):
            raise ValueError(f"{self.name} got {len(tensors)} tensors and takes {len(self.arguments)}")
        dtype = first.dtype if self.has_bf16 and first.dtype is torch.bfloat16 else self.dtype
        shape, strides = first.shape, first.stride()
        memory_format = memory_format_of(first)
        for argument in self._alike:
            tensor = tensors[argument.place]
            if tensor is None:
                if argument.is_optional:
                    continue
            elif (
                tensor.shape == shape
                and tensor.dtype is dtype
                and tensor.is_cpu
                and (tensor.stride() == strides or _has_format(tensor, memory_format))
            ):
                continue
            self._reject(argument, tensor, first)
        if memory_format is None and (self.arguments[0].kind == "image" or not is_dense(first)):
            self._reject(self.arguments[0], first, first)
        for argument in self._others:
            tensor = tensors[argument.place]
            if tensor is None:
                if argument.is_optional:
                    continue
            elif (
                tensor.dtype is (self.dtype if argument.kind == "channels" else dtype)
                and tensor.is_cpu
                and _fits(argument.kind, tensor, first, memory_format)
            ):
                continue
            self._reject(argument, tensor, first)
        if self.arguments[0].kind == "image" and (len(shape) < 2 or 0 in shape):
            self._reject(self.arguments[0], first, first)

    def _check_overlap(self, written: int, tensors: Sequence[Tensor | None]) -> None:
        target = tensors[written]
        if target is None:
            return
        begin, size = target.data_ptr(), target.nbytes
        for place, tensor in enumerate(tensors):
            if tensor is None or place == written:
                continue
            at = tensor.data_ptr()
            if at < begin + size and begin < at + tensor.nbytes:
                if at == begin and (written, place) in self._pairs and tensor.nbytes == size:
                    continue
                names = self.arguments[written].name, self.arguments[place].name
                raise ValueError(
                    f"{self.name} writes {names[0]}, {_text(target)}, which overlaps {names[1]}, {_text(tensor)}, in "
                    "memory; give it a copy of one of them"
                )

    def _reject(self, argument: _Argument, value: Tensor | None, first: Tensor) -> None:
        kind = str(self.dtype).removeprefix("torch.")
        if self.has_bf16 and argument.kind != "channels":
            kind = f"{kind}, or bfloat16 as {self.arguments[0].name},"
        raise ValueError(
            f"{self.name}: {argument.name} is {_text(value)}; it must be {kind} on the CPU, {_WORDS[argument.kind]} "
            f"({self.arguments[0].name} is {_text(first)})"
        )


def _fits(kind: str, tensor: Tensor, first: Tensor, memory_format: torch.memory_format | None) -> bool:
    shape, of_first = tensor.shape, first.shape
    if kind == "channels":
        return shape == of_first[1:2] and tensor.is_contiguous()
    if kind == "repeated":
        is_tail = len(shape) < len(of_first) and shape == of_first[len(of_first) - len(shape) :]
        is_repeated = is_tail and tensor.is_contiguous() and memory_format is torch.contiguous_format
        return is_repeated or (shape == of_first and tensor.stride() == first.stride())
    if kind == "filters":
        return (
            len(shape) == 4
            and shape[:2] == (of_first[1], 1)
            and tensor.numel() > 0
            and tensor.is_contiguous()
        )
    if kind == "weights":
        is_kernel = len(shape) == 4 and shape[2:] == (3, 3) and of_first[1] in shape[:2]
        is_whole = is_kernel and shape[0] % 32 == shape[1] % 32 == 0
        return is_whole and tensor.is_contiguous(memory_format=torch.channels_last)
    if kind in ("output", "pixels"):
        num_equal, wanted = (2, memory_format) if kind == "output" else (1, torch.channels_last)
        is_image = len(shape) == 4 and shape[:num_equal] == of_first[:num_equal]
        return is_image and _has_format(tensor, wanted) and (kind == "output" or tensor.numel() > 0)
    return len(shape) == 1 and tensor.is_contiguous()


def _has_format(value: Tensor, memory_format: torch.memory_format | None) -> bool:
    return memory_format is not None and value.is_contiguous(memory_format=memory_format)


def memory_format_of(value: Tensor) -> torch.memory_format | None:
    """The memory format of a dense tensor; None if it is none of torch's."""
    if value.is_contiguous():
        return torch.contiguous_format
    return next((f for f in _FORMATS[1:] if value.is_contiguous(memory_format=f)), None)


def is_dense(value: Tensor) -> bool:
    """True if the elements fill a span of memory, in any order, without gaps or overlap."""
    if not value.numel():
        return True
    expected = 1
    for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _text(value: Tensor | None) -> str:
    if value is None:
        return "None"
    kind = str(value.dtype).removeprefix("torch.")
    return f"{kind}{list(value.shape)} of strides {list(value.stride())} on {value.device.type}"


# --- the functions ------------------------------------------------------------------------------------

ADD_ACT = Kernel("argosy_add_act", "a: dense, b: repeated, y: dense! over a b, s: dense?!", has_bf16=True)
ACT_BACKWARD = Kernel(
    "argosy_act_backward", "dy: dense, more: dense?, ref: dense, dx: dense! over dy more ref", has_bf16=True
)
_NORM = "x: image, other: image?, weight: channels?, bias: channels?, y: image!"
BN_ACT_FORWARD = Kernel(
    "argosy_bn_act_forward", f"{_NORM}, mean: channels!, invstd: channels!", has_bf16=True
)
BN_ACT_RECOMPUTE = Kernel(
    "argosy_bn_act_recompute", f"{_NORM}, mean: channels, invstd: channels", has_bf16=True
)
BN_ACT_BACKWARD = Kernel(
    "argosy_bn_act_backward",
    "dy: image, more: image?, x: image, y: image?, weight: channels?, bias: channels?, mean: channels, "
    "invstd: channels, dx: image?! over dy, dother: image?! over dy, dweight: channels?!, dbias: channels?!",
    has_bf16=True,
)
DEPTHWISE = Kernel("argosy_depthwise", "x: image, weight: filters, y: output!", has_bf16=True)
DEPTHWISE_BACKWARD = Kernel(
    "argosy_depthwise_backward",
    "x: image, dy: output, weight: filters, dx: image?!, sums: filters!",
    has_bf16=True,
)
WINOGRAD = Kernel("argosy_winograd", "x: pixels, weight: weights, points: vector!, y: pixels!")
WINOGRAD_OF_WEIGHT = Kernel(
    "argosy_winograd_of_weight", "x: pixels, dy: pixels, sums: vector!, dweight: weights!"
)
INDEX_FIND = Kernel("argosy_index_find", "ids: vector, slots: dense!", torch.int64)
INDEX_INSERT = Kernel("argosy_index_insert", "ids: vector, slots: dense!, fresh: dense!", torch.int64)
INDEX_ERASE = Kernel("argosy_index_erase", "ids: vector", torch.int64)
