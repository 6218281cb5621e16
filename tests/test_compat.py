"""paddle.compat: text, bytes, and Python 2's rounding."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy import compat


def test_texts_and_bytes_in_containers() -> None:
    assert compat.to_text(b"a") == "a"
    assert compat.to_text([b"a", {b"b": [b"c"]}, 3]) == ["a", {"b": ["c"]}, 3]
    assert compat.to_bytes({"a"}) == {b"a"}
    names = [b"a", b"b"]
    assert compat.to_text(names, inplace=True) is names
    assert names == ["a", "b"]
    keys = {"k": "v"}
    assert compat.to_bytes(keys, inplace=True) is keys
    assert keys == {b"k": b"v"}


@pytest.mark.parametrize(
    ("x", "digits", "expected"), [(0.5, 0, 1.0), (-2.5, 0, -3.0), (1.25, 1, 1.3), (0.0, 2, 0.0)]
)
def test_a_half_goes_away_from_zero(x: float, digits: int, expected: float) -> None:
    assert compat.round(x, digits) == pytest.approx(expected)


def test_the_rest() -> None:
    assert compat.floor_division(7, 2) == 3
    assert compat.get_exception_message(ValueError("why")) == "why"
    assert compat.long_type is compat.int_type is int
