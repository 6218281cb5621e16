"""Messages as frames: every dtype, no copies, and nothing but BadMessage for what is wrong."""

# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
import torch
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from argosy.engine.errors import BadMessage, ConfigError
from argosy.engine.ps.rpc.wire import (
    _DTYPES,
    VERSION,
    Header,
    Limits,
    decode,
    decode_tensors,
    encode,
    encode_tensors,
)

LIMITS = Limits(1 << 20, 1 << 12)


def header(**more: object) -> Header:
    return Header(VERSION, "push", 7, "ab12", "trainer 3", 3, 5, {"block": "w.block0"}, **more)


def sent(tensors: list[Tensor]) -> tuple[list[Tensor], list[zmq.Frame]]:
    """The tensors after a way through a real socket, and the frames they came in."""
    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        push.connect(f"tcp://127.0.0.1:{port}")
        push.send_multipart(encode(header(), tensors), copy=False)
        frames = pull.recv_multipart(copy=False)
    return decode(frames, Limits()).tensors, frames


def test_every_dtype_arrives_as_it_was_sent() -> None:
    tensors = [torch.arange(-4, 4).to(dtype) for dtype in _DTYPES.values()]
    for actual, tensor in zip(sent(tensors)[0], tensors, strict=True):
        assert actual.dtype == tensor.dtype
        assert torch.equal(actual.view(torch.uint8), tensor.view(torch.uint8))


def test_every_shape_arrives_as_it_was_sent() -> None:
    grad = torch.rand(3, requires_grad=True)
    tensors = [torch.tensor(3.5), torch.empty(0, 4), torch.rand(2, 3, 4), torch.rand(90, 80).t(), grad]
    for actual, tensor in zip(sent(tensors)[0], tensors, strict=True):
        assert actual.shape == tensor.shape
        assert torch.equal(actual, tensor)
        actual.zero_()  # writable


def test_nothing_large_is_copied_on_either_side() -> None:
    tensor = torch.rand(100_000)
    frame = encode_tensors([tensor])[1][0]
    assert torch.frombuffer(frame, dtype=torch.float32).data_ptr() == tensor.data_ptr()
    (received,), frames = sent([tensor])
    assert received.data_ptr() == torch.frombuffer(frames[1].buffer, dtype=torch.uint8).data_ptr()


def test_tensors_alone_make_the_way_too() -> None:
    tensors = [torch.arange(5), torch.rand(4000)]
    described, frames = encode_tensors(tensors)
    for actual, tensor in zip(decode_tensors(described, frames), tensors, strict=True):
        assert torch.equal(actual, tensor)


def test_what_cannot_be_sent_is_the_callers_to_fix() -> None:
    with pytest.raises(ConfigError, match="torch.complex64 cannot be sent"):
        encode(header(), [torch.zeros(2, dtype=torch.complex64)])
    with pytest.raises(ConfigError, match="send a dense one on the CPU"):
        encode(header(), [torch.zeros(2, device="meta")])
    with pytest.raises(ConfigError, match="raise ARGOSY_PS_MAX_MESSAGE_MB"):
        encode(header(), [torch.zeros(1 << 20)], LIMITS)
    with pytest.raises(ConfigError, match="cannot be encoded as msgpack"):
        encode(Header(VERSION, "push", 1, "ab", meta={"x": object()}))
    with pytest.raises(ConfigError, match="keys must be strings"):
        encode(Header(VERSION, "push", 1, "ab", meta={1: 2}))  # type: ignore[dict-item]  # on purpose
    with pytest.raises(ConfigError, match="send large data as tensors"):
        encode(Header(VERSION, "push", 1, "ab", meta={"x": "y" * 5000}), (), LIMITS)


@pytest.mark.parametrize(
    ("described", "sizes", "match"),
    [
        ([("float32", [4])], [15], "15 bytes for a tensor float32"),
        ([("float32", [4])], [], "0 tensors where the header lists 1"),
        ([], [4], "1 tensors where the header lists 0"),
        ([("complex64", [2])], [16], "dtype 'complex64'"),
        ([("float32", [1 << 61, 4])], [0], "0 bytes for a tensor"),
        ([("float32", [0, 1 << 61, 1 << 61])], [0], "0 bytes for a tensor"),
        ([("float32", [1 << 19])], [1 << 21], "more than 1 MB"),
    ],
)
def test_tensors_that_do_not_fit_their_header_are_rejected(
    described: list[tuple[str, list[int]]], sizes: list[int], match: str
) -> None:
    frames = [msgspec.msgpack.encode(header(tensors=described)), *map(bytearray, sizes)]
    with pytest.raises(BadMessage, match=match) as caught:
        decode(frames, LIMITS)
    assert caught.value.header.id == 7


@pytest.mark.parametrize(
    "change",
    [
        {"id": -1},
        {"tensors": [("float32", [-1])]},
        {"tensors": [("float32", [1] * 65)]},
        {"trainer": -2},
        {"meta": 3},
    ],
)
def test_headers_with_invalid_values_are_rejected(change: dict[str, object]) -> None:
    values = msgspec.structs.asdict(header()) | change
    with pytest.raises(BadMessage, match="malformed header"):
        decode([msgspec.msgpack.encode(list(values.values()))], LIMITS)


def test_another_version_and_large_headers_are_rejected() -> None:
    other = header()
    other.version = 9
    with pytest.raises(BadMessage, match="version 9, this is version 1; use the same Argosy"):
        decode([msgspec.msgpack.encode(other)], LIMITS)
    with pytest.raises(BadMessage, match="limit is 4096"):
        decode([bytes(5000)], LIMITS)
    with pytest.raises(BadMessage, match="without frames"):
        decode([], LIMITS)


def tolerant(frames: list[bytes]) -> None:
    """Decode; only BadMessage may come out."""
    try:
        decode(frames, LIMITS)
    except BadMessage:
        return


@settings(deadline=None, max_examples=300)
@given(st.lists(st.binary(max_size=200), max_size=4))
def test_random_frames_raise_nothing_but_bad_message(frames: list[bytes]) -> None:
    tolerant(frames)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_altered_messages_raise_nothing_but_bad_message(data: st.DataObject) -> None:
    frames = [bytearray(f) for f in encode(header(), [torch.arange(6).view(2, 3), torch.rand(3).bfloat16()])]
    for _ in range(data.draw(st.integers(1, 4))):
        frame = data.draw(st.sampled_from(frames))
        at = data.draw(st.integers(0, len(frame)))
        frame[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=6))
    tolerant([bytes(f) for f in frames])


nested = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(deadline=None, max_examples=150)
@given(st.lists(nested, max_size=12))
def test_any_msgpack_raises_nothing_but_bad_message(values: list[object]) -> None:
    tolerant([msgspec.msgpack.encode(values)])
    plain = list(msgspec.structs.asdict(header()).values())
    tolerant([msgspec.msgpack.encode([*plain[: len(values)], *values][:10])])


def test_deep_nesting_is_rejected() -> None:
    with pytest.raises(BadMessage):
        decode([b"\x9a\x01\xa1a\x01\xa1a\xa1a\x01\x01\x81\xa1a" + b"\x91" * 4000], LIMITS)


def test_a_large_tensor_goes_in_frames_of_a_megabyte_between_small_ones() -> None:
    tensors = [
        torch.arange(3.0),
        torch.rand(700_001),
        torch.empty(0, 2),
        torch.rand(1 << 18),
        torch.rand(600_000),
    ]
    actual, frames = sent(tensors)
    assert [len(frame) for frame in frames[1:]] == [
        *(12, 1 << 20, 1 << 20, 4 * 700_001 - (2 << 20), 0, 1 << 20),
        *(1 << 20, 1 << 20, 2_400_000 - (2 << 20)),
    ]
    for one, other in zip(actual, tensors, strict=True):
        assert torch.equal(one, other)
        one.zero_()  # writable


def test_frames_of_a_large_tensor_that_are_missing_or_too_many_are_rejected() -> None:
    frames = encode(header(), [torch.rand(700_001), torch.rand(3)])
    for wrong in (frames[:-1], frames[:2], [*frames, b"more"], [*frames[:2], *frames[3:]]):
        with pytest.raises(BadMessage, match="the message is truncated"):
            decode(wrong, Limits())
