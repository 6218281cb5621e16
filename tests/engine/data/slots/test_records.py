"""Records: take, concat, serialization, and batches."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from argosy.engine.data.slots.batches import batches_in_order, batches_of_stream
from argosy.engine.data.slots.parse import parse
from argosy.engine.data.slots.records import Records
from argosy.engine.data.slots.slot import SlotSpec, slots_of
from argosy.engine.errors import ConfigError, DataError

IDS, X, Y = SlotSpec("ids", False, (-1, -1)), SlotSpec("x", True, (-1, 2)), SlotSpec("y", False, (-1, 1))
SLOTS = (IDS, X, Y)


def records(sizes: Sequence[int]) -> Records:
    """Record i has so many ids i, i + 100, …, x = [i, i / 2] and y = i."""
    lines = [
        f"{n} {' '.join(str(i + 100 * k) for k in range(n))} 2 {i} {i / 2} 1 {i}\n"
        for i, n in enumerate(sizes)
    ]
    return parse("".join(lines).encode(), SLOTS, "here")


def check_record(result: Records, at: int, number: int, size: int) -> None:
    batch = result.batch(np.array([at]))
    assert batch["ids"].tolist() == [[number + 100 * k for k in range(size)]]
    assert batch["x"].tolist() == [[number, number / 2]]
    assert batch["y"].tolist() == [[number]]


@pytest.mark.parametrize("sizes", [[2, 2, 2, 2, 2], [1, 3, 2, 1, 4]])
def test_take_returns_complete_records_in_the_given_order(sizes: list[int]) -> None:
    result = records(sizes).take(np.array([3, 0, 3, 4]))
    assert len(result) == 4
    for at, number in enumerate([3, 0, 3, 4]):
        check_record(result, at, number, sizes[number])


@pytest.mark.parametrize("sizes", [[2, 2, 2, 2, 2], [1, 3, 2, 1, 4]])
def test_records_are_serialized(sizes: list[int]) -> None:
    result = Records.from_bytes(SLOTS, records(sizes).to_bytes())
    for number, size in enumerate(sizes):
        check_record(result, number, number, size)
    with pytest.raises(DataError, match="give all workers the same use_var"):
        Records.from_bytes(SLOTS[:2], records(sizes).to_bytes())
    assert len(Records.from_bytes(SLOTS, Records.empty(SLOTS).to_bytes())) == 0


def test_even_and_uneven_parts_are_concatenated() -> None:
    result = Records.concat(SLOTS, [records([2, 2]), Records.empty(SLOTS), records([1, 3, 2])])
    for at, (number, size) in enumerate([(0, 2), (1, 2), (0, 1), (1, 3), (2, 2)]):
        check_record(result, at, number, size)


@pytest.mark.parametrize("sizes", [[2, 2, 2], [1, 3, 2]])
def test_one_slot_is_permuted_and_the_others_stay(sizes: list[int]) -> None:
    rows = np.array([2, 0, 1])
    result = records(sizes).with_slot_from("ids", rows)
    for at, source in enumerate(rows.tolist()):
        batch = result.batch(np.array([at]))
        assert batch["ids"].tolist() == [[source + 100 * k for k in range(sizes[source])]]
        assert (batch["x"].tolist(), batch["y"].tolist()) == ([[at, at / 2]], [[at]])
    moved = records(sizes).with_slot_from("x", rows).batch(slice(1))
    assert (moved["x"].tolist(), moved["y"].tolist()) == ([[2, 1.0]], [[0]])


def test_arrays_of_a_batch_are_no_views_and_can_be_fed_without_a_copy() -> None:
    source = records([2, 2, 2])
    batch = source.batch(slice(0, 2))
    for array in batch.values():
        assert array.flags.c_contiguous
        assert array.flags.writeable
    batch["y"][:] = -1
    assert source.batch(slice(0, 2))["y"].tolist() == [[0], [1]]


def test_records_of_different_lengths_cannot_be_one_batch() -> None:
    with pytest.raises(DataError, match="slot 'ids': records of one batch have 1 to 3 values.*pad them"):
        records([1, 3]).batch(slice(None))


@pytest.mark.parametrize(
    ("shape", "count", "made"),
    [
        ((-1, 4), 4, (2, 4)),
        ((-1, 2, 2), 4, (2, 2, 2)),
        ((-1, -1), 4, (2, 4)),
        ((-1, 2, -1), 4, (2, 2, 2)),
        ((-1,), 1, (2,)),
    ],
)
def test_a_batch_has_the_shape_of_the_variable(
    shape: tuple[int, ...], count: int, made: tuple[int, ...]
) -> None:
    assert SlotSpec("s", True, shape).shaped(np.zeros(2 * count), 2).shape == made


@pytest.mark.parametrize("shape", [(-1, 4), (-1, 1)])
def test_values_that_do_not_fit_the_shape_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="a record has 3 values"):
        SlotSpec("s", True, shape).shaped(np.zeros(6), 2)


def test_a_slot_of_sequences_gives_a_lod_tensor() -> None:
    slots = (
        SlotSpec("ids", False, (-1, 1), is_sequence=True),
        SlotSpec("xy", True, (-1, 2), is_sequence=True),
    )
    counts = np.array([[1, 4], [3, 2]], np.int32)
    ragged = Records(slots, counts, np.arange(4), np.arange(6, dtype=np.float32))
    batch = ragged.batch(np.array([1, 0]))
    assert (batch["ids"].rows.tolist(), batch["ids"].lod()) == ([[1], [2], [3], [0]], [[0, 3, 4]])
    assert (batch["xy"].rows.tolist(), batch["xy"].lod()) == ([[4, 5], [0, 1], [2, 3]], [[0, 1, 3]])
    even = ragged.take(slice(0, 1)).batch(slice(None))
    assert (even["ids"].lod(), even["xy"].lod(), len(even["ids"])) == ([[0, 1]], [[0, 2]], 1)
    odd = Records(slots, np.array([[1, 3]], np.int32), np.arange(1), np.arange(3, dtype=np.float32))
    with pytest.raises(DataError, match="slot 'xy': a record has 3 values, the rows .* have 2"):
        odd.batch(slice(None))


def variable(
    name: str = "v", dtype: torch.dtype = torch.int64, shape: tuple[int, ...] = (-1, 1)
) -> SimpleNamespace:
    return SimpleNamespace(name=name, dtype=dtype, shape=shape, lod_level=0)


def test_variables_that_cannot_be_slots_are_rejected() -> None:
    with pytest.raises(ConfigError, match="a slot is float32 or int64"):
        slots_of([variable(dtype=torch.float64)])
    with pytest.raises(ConfigError, match="at most one other unknown size"):
        slots_of([variable(shape=(-1, -1, -1))])
    with pytest.raises(ConfigError, match=r"has \['v'\] more than once"):
        slots_of([variable(), variable()])
    with pytest.raises(ConfigError, match="give the list of variables"):
        slots_of([])


@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_batches_of_a_stream_are_those_of_the_whole(size: int) -> None:
    whole = records([2] * 11)
    parts = [whole.take(slice(a, b)) for a, b in ((0, 1), (1, 8), (8, 8), (8, 11))]
    streamed = [b["y"].ravel().tolist() for b in batches_of_stream(SLOTS, parts, size)]
    ordered = [b["y"].ravel().tolist() for b in batches_in_order(whole, np.arange(11), size)]
    assert streamed == ordered == [list(range(a, min(a + size, 11))) for a in range(0, 11, size)]
