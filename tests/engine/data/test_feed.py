"""Feed conversion: dtypes, shapes, and messages that name the variable."""

import numpy as np
import pytest
import torch

from argosy.engine.data.feed import FeedSpec, check_places, fields_of, specs_of
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError, DataError

IMAGE = FeedSpec("x", (-1, 3, 4, 5), torch.float32)
LABEL = FeedSpec("y", (-1, 1), torch.int64)


def test_flat_samples_take_the_shape_and_dtype_of_the_variable() -> None:
    samples = [np.arange(60, dtype=np.float64), np.zeros(60)]
    fed = IMAGE.from_samples(samples)
    assert fed.shape == (2, 3, 4, 5)
    assert fed.dtype == torch.float32
    assert fed[0].flatten().tolist() == list(range(60))


@pytest.mark.parametrize("labels", [[3, 4], [[3], [4]], [np.int32(3), np.int32(4)], [3.0, 4.0]])
def test_labels_may_be_numbers_lists_or_scalars(labels: list[object]) -> None:
    fed = LABEL.from_samples(labels)
    assert fed.dtype == torch.int64
    assert fed.tolist() == [[3], [4]]


def test_tensors_are_taken_too() -> None:
    assert LABEL.from_samples([torch.tensor(1), torch.tensor([2])[0]]).tolist() == [[1], [2]]


def test_bfloat16_and_bool_variables_are_fed() -> None:
    assert FeedSpec("h", (-1,), torch.bfloat16).from_samples([0.5, 2.0]).dtype == torch.bfloat16
    assert FeedSpec("m", (-1,), torch.bool).from_samples([0, 1]).tolist() == [False, True]


def test_a_wrong_size_names_the_variable_and_both_shapes() -> None:
    with pytest.raises(DataError, match=r"'x'.*\(59,\).*\(-1, 3, 4, 5\) expects \(3, 4, 5\)"):
        IMAGE.from_samples([np.zeros(59)])


def test_swapped_dimensions_are_not_reshaped_in_silence() -> None:
    with pytest.raises(DataError, match=r"\(4, 5, 3\)"):
        IMAGE.from_samples([np.zeros((4, 5, 3))])


def test_unknown_dimensions_take_any_size() -> None:
    spec = FeedSpec("words", (-1, -1), torch.int64)
    assert spec.from_samples([[1, 2, 3], [4, 5, 6]]).shape == (2, 3)
    folded = FeedSpec("rows", (-1, -1, 2), torch.float32)
    assert folded.from_samples([np.zeros(6)]).shape == (1, 3, 2)
    with pytest.raises(DataError):
        folded.from_samples([np.zeros(7)])


def test_samples_of_different_lengths_are_rejected() -> None:
    spec = FeedSpec("words", (-1, -1), torch.int64)
    with pytest.raises(DataError, match=r"'words': sample 0 .* sample 1 .* pad"):
        spec.from_samples([[1, 2], [1, 2, 3]])


def test_a_batch_keeps_its_first_dimension() -> None:
    assert IMAGE.from_batch(np.zeros((7, 60))).shape == (7, 3, 4, 5)
    assert LABEL.from_batch(np.arange(7)).shape == (7, 1)


def test_a_fixed_batch_size_is_checked() -> None:
    with pytest.raises(DataError, match=r"3 samples.*expects 4"):
        FeedSpec("x", (4, 2), torch.float32).from_batch(np.zeros((3, 2)))


def test_a_number_is_no_batch() -> None:
    with pytest.raises(DataError, match="single number"):
        LABEL.from_batch(3)


def test_a_batch_is_a_copy_because_readers_reuse_their_arrays() -> None:
    array = np.zeros((1, 1), dtype=np.int64)
    fed = LABEL.from_batch(array)
    array[:] = 9
    assert fed.tolist() == [[0]]


@pytest.mark.parametrize("lossy", [0.5, float("nan")])
def test_an_integer_variable_rejects_values_that_are_no_integers(lossy: float) -> None:
    with pytest.raises(DataError, match=r"'y'.*do not fit into int64"):
        LABEL.from_samples([lossy])


def test_an_integer_out_of_range_is_rejected() -> None:
    with pytest.raises(DataError, match="out of range"):
        FeedSpec("b", (-1,), torch.uint8).from_samples([300])


@pytest.mark.parametrize("value", ["rose", None, {"a": 1}, object()])
def test_what_is_no_number_is_rejected_by_name(value: object) -> None:
    with pytest.raises(DataError, match="'y'"):
        LABEL.from_samples([value])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ma.masked_equal([1, 2], 2), "'y': 1 of 2 values are masked; fill them"),
        (np.ones(2, "longdouble"), "'y': torch cannot take an array of"),
        (2**70, "'y': there are integers beyond int64"),
        (2**63, "'y': there are integers beyond int64"),
        (np.array([2**63], "uint64"), "'y': values of uint64 do not fit into int64"),
        (1j, "'y': values of complex128 do not fit into int64"),
    ],
)
def test_what_torch_cannot_hold_is_rejected_by_name(value: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        LABEL.from_samples([value])


def test_fields_come_by_place_or_by_name() -> None:
    assert list(fields_of((1, 2), ["x", "y"])) == [1, 2]
    assert list(fields_of({"y": 2, "x": 1}, ["x", "y"])) == [1, 2]
    assert list(fields_of(7, ["x"])) == [7]


def test_a_wrong_number_of_fields_lists_the_feed_variables() -> None:
    with pytest.raises(DataError, match=r"3 fields, the feed list has 2 \(x, y\)"):
        fields_of((1, 2, 3), ["x", "y"])
    with pytest.raises(DataError, match=r"without \['y'\]"):
        fields_of({"x": 1}, ["x", "y"])


def test_a_variable_may_be_fed_once() -> None:
    with pytest.raises(ConfigError, match="more than once"):
        specs_of([LABEL, LABEL])


def test_none_in_a_shape_is_an_unknown_size() -> None:
    class Variable:
        name = "x"
        shape = (None, 3)
        dtype = torch.float32

    assert specs_of([Variable()])[0].shape == (-1, 3)


def test_one_process_feeds_one_place() -> None:
    check_places(None)
    check_places(["cpu"])
    with pytest.raises(ConfigError, match="2 places"):
        check_places(["cpu", "cpu"])


def test_samples_of_a_ragged_variable_are_lists_of_any_length() -> None:
    ids = FeedSpec("ids", (-1, 1), torch.int64, lod_level=1).from_samples([[1, 2], [], (3,)])
    assert isinstance(ids, LoDTensor)
    assert (ids.rows.tolist(), ids.recursive_sequence_lengths()) == ([[1], [2], [3]], [[2, 0, 1]])
    points = FeedSpec("p", (-1, 2), torch.float32, lod_level=2).from_samples([[[1, 2, 3, 4]], [[], [[5, 6]]]])
    assert isinstance(points, LoDTensor)
    assert points.recursive_sequence_lengths() == [[1, 2], [2, 0, 1]]
    assert points.rows.tolist() == [[1, 2], [3, 4], [5, 6]]
    with pytest.raises(DataError, match=r"sequence 1 of a batch has 3 values, and a row .* shape \[2\]"):
        FeedSpec("p", (-1, 2), torch.float32, lod_level=1).from_samples([[1, 2], [1, 2, 3]])


def test_a_lod_tensor_is_a_batch() -> None:
    batch = LoDTensor.of_lengths(np.ones((2, 1)), [[1, 1]])
    assert FeedSpec("x", (-1, 1), torch.float64, lod_level=1).from_batch(batch) is batch
