"""Messages as ZeroMQ frames: one header in msgpack, then the bytes of each tensor in frames of at most 1 MB.

    ┌────────┬──────────┬──────────┬─
    │ header │ tensor 0 │ tensor 1 │ …      a tensor's bytes are those of its memory: little-endian, row-major
    └────────┴──────────┴──────────┴─

Sending reads the tensor's memory, a received tensor stays in its frame. A tensor above 1 MB is split into several
frames and joined on arrival: before authentication a connection cannot make a process allocate more than one frame.
All received data is validated before it is used; malformed data raises `BadMessage`.
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
"""Tensors below this are copied: ZeroMQ packs such frames into one buffer, unaligned."""
FRAME_BYTES = 1 << 20
"""The largest frame."""
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
"""For each tensor, the name of its dtype, and its shape."""


class Header(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The kind of a message, its sender, and the tensors that follow."""

    version: int
    kind: _Word
    id: _Number
    """The sequence number of the request, per client and server; a reply has that of its request."""
    client: _Word
    """The incarnation of the client: a random id, new for each `Client`."""
    who: _Word = ""
    """The sender in log lines: "trainer 3"."""
    trainer: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)] = -1
    acked_below: _Number = 0
    """The client has the replies to all requests below this number."""
    meta: dict[str, Any] = {}
    tensors: Described = []
    server: _Word = ""
    """In replies: the incarnation of the server."""


@dataclass(frozen=True)
class Limits:
    """The largest message and header that are accepted."""

    message_bytes: int = 2048 << 20
    header_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class WireMessage:
    """A complete message."""

    header: Header
    tensors: list[Tensor]
    """Writable. Those of 8 KB and more are views of the received frames, smaller ones are copies."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Header)


def encode(header: Header, tensors: Sequence[Tensor] = (), limits: Limits | None = None) -> Frames:
    """The frames of a message; the tensors must not change until they have been sent."""
    limits = limits or Limits()
    frames: Frames = [b""]
    if tensors:
        header.tensors, data = encode_tensors(tensors)
        for part in data:
            frames += [part] if len(part) <= FRAME_BYTES else _split(part)
    try:
        if not all(isinstance(key, str) for key in header.meta):
            raise TypeError("keys must be strings")
        frames[0] = _encoder.encode(header)
    except (TypeError, OverflowError, RecursionError) as e:
        raise ConfigError(
            f"{header.kind}: its meta cannot be encoded as msgpack ({e}); use plain values"
        ) from e
    if len(frames[0]) > limits.header_bytes:
        raise ConfigError(
            f"{header.kind}: the header has {len(frames[0])} bytes, the limit is {limits.header_bytes}; "
            "send large data as tensors, and fewer of them at once"
        )
    size = sum(map(len, frames))
    if size > limits.message_bytes:
        raise ConfigError(
            f"{header.kind}: a message of {size >> 20} MB, the limit is {limits.message_bytes >> 20} MB; "
            "send it in parts, or raise ARGOSY_PS_MAX_MESSAGE_MB in all processes"
        )
    return frames


def encode_tensors(tensors: Sequence[Tensor]) -> tuple[Described, Frames]:
    """The descriptions of the tensors, and their bytes: small ones copied, large contiguous ones in place."""
    described = [(_dtype_name(tensor), list(tensor.shape)) for tensor in tensors]
    return described, [_bytes_of(tensor) for tensor in tensors]


def decode(frames: Sequence[zmq.Frame | Buffer], limits: Limits) -> WireMessage:
    """The message in these frames. Raises `BadMessage`; its `header` attribute is the header, if that is valid."""
    if not frames:
        raise BadMessage("a message without frames, not even a header; is the sender Argosy?")
    header = _header(frames[0], limits)
    try:
        if header.version != VERSION:
            raise BadMessage(
                f"a message of version {header.version}, this is version {VERSION}; "
                "use the same Argosy in all processes"
            )
        return WireMessage(
            header, decode_tensors(header.tensors, _joined(header, frames[1:], limits), limits)
        )
    except BadMessage as e:
        e.header = header
        raise


def _split(data: Buffer) -> list[memoryview]:
    view = memoryview(data)
    return [view[at : at + FRAME_BYTES] for at in range(0, len(view), FRAME_BYTES)]


def _joined(
    header: Header, frames: Sequence[zmq.Frame | Buffer], limits: Limits
) -> Sequence[zmq.Frame | Buffer]:
    """One buffer for each tensor; a tensor in one frame is not copied."""
    if len(frames) == len(header.tensors):
        return frames
    _check_size(frames, limits)
    rest, buffers = list(reversed(frames)), list[zmq.Frame | Buffer]()
    for name, shape in header.tensors:
        size = math.prod(shape) * (_DTYPES[name].itemsize if name in _DTYPES else 1)
        count = max(1, -(-size // FRAME_BYTES))
        if count > len(rest):
            break
        parts = [rest.pop() for _ in range(count)]
        buffers.append(parts[0] if count == 1 else _concatenated(parts))
    return [*buffers, *reversed(rest)]


def _concatenated(parts: Sequence[zmq.Frame | Buffer]) -> Buffer:
    joined = bytearray(sum(map(len, parts)))
    at = 0
    for part in parts:
        joined[at : at + len(part)] = _view(part)
        at += len(part)
    return joined


def _view(frame: zmq.Frame | Buffer) -> memoryview:
    return memoryview(frame) if isinstance(frame, Buffer) else frame.buffer


def _check_size(frames: Sequence[zmq.Frame | Buffer], limits: Limits) -> None:
    if sum(map(len, frames)) > limits.message_bytes:
        raise BadMessage(
            f"more than {limits.message_bytes >> 20} MB in one message; send it in parts, "
            "or raise ARGOSY_PS_MAX_MESSAGE_MB in all processes"
        )


def _header(frame: zmq.Frame | Buffer, limits: Limits) -> Header:
    if len(frame) > limits.header_bytes:
        raise BadMessage(
            f"a header of {len(frame)} bytes, the limit is {limits.header_bytes}; is the sender Argosy?"
        )
    try:
        return _decoder.decode(frame if isinstance(frame, Buffer) else frame.bytes)
    except Exception as e:  # any exception of the decoder: the bytes are untrusted
        raise BadMessage(f"malformed header: {e}; expected msgpack of a Header; is the sender Argosy?") from e


def decode_tensors(
    described: Described, frames: Sequence[zmq.Frame | Buffer], limits: Limits | None = None
) -> list[Tensor]:
    """The tensors in these frames, or `BadMessage`."""
    limits = limits or Limits()
    if len(frames) != len(described):
        raise BadMessage(
            f"{len(frames)} tensors where the header lists {len(described)}; "
            "the message is truncated, or the sender is not Argosy"
        )
    _check_size(frames, limits)
    return [_tensor(*what, frame, limits) for what, frame in zip(described, frames, strict=True)]


def _tensor(name: str, shape: list[int], frame: zmq.Frame | Buffer, limits: Limits) -> Tensor:
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise BadMessage(f"a tensor of dtype {name!r}; known are {', '.join(_DTYPES)}; is the sender Argosy?")
    size = math.prod(shape) * dtype.itemsize
    # A dimension of 0 must not hide others that are too large.
    if size != len(frame) or math.prod(n or 1 for n in shape) > limits.message_bytes:
        raise BadMessage(
            f"{len(frame)} bytes for a tensor {name}{shape}, which has {size}; "
            "the message is truncated, or the sender is not Argosy"
        )
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    data = _view(frame)
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
    if tensor.nbytes < SMALL_BYTES:  # one call: the four below cost more than the copy
        return ctypes.string_at(tensor.data_ptr(), tensor.nbytes)
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().data
