"""Messages as ZeroMQ frames: one header in msgpack, then the bytes of each tensor in a frame of its own.

    ┌────────┬──────────┬──────────┬─
    │ header │ tensor 0 │ tensor 1 │ …      a tensor's bytes are those of its memory: little-endian, row-major
    └────────┴──────────┴──────────┴─

Nothing is copied on either side: what is sent is read from the tensor's memory, what is received stays in the
frame. Whatever arrives is checked before it is used; what is wrong with it ends in `BadMessage`.
"""

# SPDX-License-Identifier: Apache-2.0
import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
import torch
import zmq
from torch import Tensor

from argosy.engine.errors import BadMessage, ConfigError

VERSION = 1
SMALL_BYTES = 1 << 13
"""Tensors below this are copied: ZeroMQ lays such frames side by side in one buffer, at odd addresses."""
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(
            torch.float64,
            torch.float32,
            torch.float16,
            torch.bfloat16,
            torch.float8_e4m3fn,
            torch.float8_e5m2,
        ),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.bool),
        *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Buffer: TypeAlias = bytes | bytearray | memoryview
Frames: TypeAlias = list[Buffer]
_Word = Annotated[str, msgspec.Meta(max_length=200)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Shape = Annotated[list[_Number], msgspec.Meta(max_length=64)]
Described: TypeAlias = list[tuple[_Word, _Shape]]
"""Of each tensor the name of its dtype, and its shape."""


class Header(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a message is, who sends it, and which tensors follow."""

    version: int
    kind: _Word
    id: _Number
    """The number of the request among those of this client to this server; an answer has its request's."""
    client: _Word
    """One life of a client: random, made when the client is."""
    who: _Word = ""
    """The sender, for people: "trainer 3"."""
    trainer: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)] = -1
    settled: _Number = 0
    """All requests below this number have been answered, and the client has the answers."""
    meta: dict[str, Any] = {}
    tensors: Described = []
    server: _Word = ""
    """In answers: one life of a server."""


@dataclass(frozen=True)
class Limits:
    """What may come in; more is refused."""

    message_bytes: int = 2048 << 20
    header_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Message:
    """A message that came in whole."""

    header: Header
    tensors: list[Tensor]
    """Writable, and nobody else's. Those of 8 KB and more lie in the received frames, smaller ones are copies."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Header)


def encode(header: Header, tensors: Sequence[Tensor] = (), limits: Limits | None = None) -> Frames:
    """The frames of a message; the tensors must stay as they are until they have been sent."""
    limits = limits or Limits()
    frames: Frames = [b""]
    if tensors:
        header.tensors, data = encode_tensors(tensors)
        frames.extend(data)
    try:
        if not all(isinstance(key, str) for key in header.meta):
            raise TypeError("keys must be strings")
        frames[0] = _encoder.encode(header)
    except (TypeError, OverflowError, RecursionError) as e:
        raise ConfigError(f"{header.kind}: msgpack has no form for its meta ({e}); use plain values") from e
    if len(frames[0]) > limits.header_bytes:
        raise ConfigError(
            f"{header.kind}: its header has {len(frames[0])} bytes, at most {limits.header_bytes} are allowed; "
            "send large data as tensors, and fewer of them at once"
        )
    size = sum(map(len, frames))
    if size > limits.message_bytes:
        raise ConfigError(
            f"{header.kind}: a message of {size >> 20} MB, at most {limits.message_bytes >> 20} MB are allowed; "
            "send it in parts, or raise ARGOSY_PS_MAX_MESSAGE_MB in all processes"
        )
    return frames


def encode_tensors(tensors: Sequence[Tensor]) -> tuple[Described, Frames]:
    """What the tensors are, and their bytes: small ones copied, large ones in place if they are contiguous."""
    described = [(_dtype_name(tensor), list(tensor.shape)) for tensor in tensors]
    return described, [_bytes_of(tensor) for tensor in tensors]


def decode(frames: Sequence[zmq.Frame | Buffer], limits: Limits) -> Message:
    """The message in these frames, or `BadMessage`; its `header` attribute tells who sent it, if that is known."""
    if not frames:
        raise BadMessage("a message without frames; the first one is the header; is the sender Argosy?")
    header = _header(frames[0], limits)
    try:
        if header.version != VERSION:
            raise BadMessage(
                f"a message of version {header.version}, this is version {VERSION}; "
                "use the same Argosy in all processes"
            )
        return Message(header, decode_tensors(header.tensors, frames[1:], limits))
    except BadMessage as e:
        e.header = header
        raise


def _header(frame: zmq.Frame | Buffer, limits: Limits) -> Header:
    if len(frame) > limits.header_bytes:
        raise BadMessage(
            f"a header of {len(frame)} bytes, at most {limits.header_bytes} are allowed; is the sender Argosy?"
        )
    try:
        return _decoder.decode(frame if isinstance(frame, Buffer) else frame.bytes)
    except Exception as e:  # whatever a decoder may raise on bytes that anybody may have sent
        raise BadMessage(
            f"this is no header: {e}; it must be msgpack of a Header; is the sender Argosy?"
        ) from e


def decode_tensors(
    described: Described, frames: Sequence[zmq.Frame | Buffer], limits: Limits | None = None
) -> list[Tensor]:
    """The tensors in these frames, or `BadMessage`."""
    limits = limits or Limits()
    if len(frames) != len(described):
        raise BadMessage(
            f"{len(frames)} tensors where the header names {len(described)}; "
            "the message was cut, or the sender is not Argosy"
        )
    if sum(map(len, frames)) > limits.message_bytes:
        raise BadMessage(
            f"more than {limits.message_bytes >> 20} MB in one message; send it in parts, "
            "or raise ARGOSY_PS_MAX_MESSAGE_MB in all processes"
        )
    return [_tensor(*what, frame, limits) for what, frame in zip(described, frames, strict=True)]


def _tensor(name: str, shape: list[int], frame: zmq.Frame | Buffer, limits: Limits) -> Tensor:
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise BadMessage(f"a tensor of dtype {name!r}; known are {', '.join(_DTYPES)}; is the sender Argosy?")
    size = math.prod(shape) * dtype.itemsize
    # A size of 0 in a shape must not hide others that no tensor can have.
    if size != len(frame) or math.prod(n or 1 for n in shape) > limits.message_bytes:
        raise BadMessage(
            f"{len(frame)} bytes for a tensor {name}{shape}, which has {size}; "
            "the message was cut, or the sender is not Argosy"
        )
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    data = memoryview(frame) if isinstance(frame, Buffer) else frame.buffer
    if size < SMALL_BYTES or data.readonly:
        tensor = torch.frombuffer(bytearray(data), dtype=dtype)
    else:
        tensor = torch.frombuffer(data, dtype=dtype)
        if tensor.data_ptr() % dtype.itemsize:
            tensor = tensor.clone()
    return tensor if len(shape) == 1 else tensor.view(shape)


def _dtype_name(tensor: Tensor) -> str:
    name = _NAMES.get(tensor.dtype)
    if name is None:
        raise ConfigError(f"a tensor of {tensor.dtype} cannot be sent; use one of {', '.join(_DTYPES)}")
    if not tensor.is_cpu or tensor.layout != torch.strided:
        raise ConfigError(
            f"a {tensor.layout} tensor on {tensor.device} cannot be sent; send a dense one on the CPU"
        )
    return name


def _bytes_of(tensor: Tensor) -> Buffer:
    if not tensor.is_contiguous() or tensor.is_neg():
        tensor = tensor.detach().resolve_neg().contiguous()
    if tensor.nbytes < SMALL_BYTES:  # one call instead of the four below, which cost more than the copy
        return ctypes.string_at(tensor.data_ptr(), tensor.nbytes)
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().data
