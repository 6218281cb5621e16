"""Parsing the text of slots, by the kernel and by Python."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.engine.data.slots.parse import _parse_in_kernel, _parse_in_python, parse
from argosy.engine.data.slots.records import Records
from argosy.engine.data.slots.slot import SlotSpec
from argosy.engine.errors import DataError
from argosy.engine.kernels import unavailable

SLOTS = (SlotSpec("ids", False, (-1, 1), True), SlotSpec("x", True, (-1, 2)))


def same(a: Records, b: Records) -> bool:
    """Bit for bit."""
    return a.counts.tolist() == b.counts.tolist() and a.to_bytes() == b.to_bytes()


def test_counts_and_values_are_ordered_by_record(kernels: str) -> None:
    parsed = parse(b"2 7 8 2 0.5 -1e3\n1 9 2 .25 4.\n", SLOTS, "part-0")
    assert parsed.counts.tolist() == [[2, 2], [1, 2]]
    assert parsed.ints.tolist() == [7, 8, 9]
    assert parsed.floats.tolist() == [0.5, -1000.0, 0.25, 4.0]


def test_tabs_several_blanks_and_a_line_end_of_windows_are_fine(kernels: str) -> None:
    parsed = parse(b" 1\t5  2 1 2 \r\n1 6 2 3 4", SLOTS, "part-0")
    assert (parsed.ints.tolist(), parsed.floats.tolist()) == ([5, 6], [1, 2, 3, 4])


def test_ids_of_the_upper_half_of_64_bits_keep_their_bits(kernels: str) -> None:
    parsed = parse(b"3 18446744073709551615 9223372036854775808 -5 1 0\n", SLOTS, "part-0")
    assert parsed.ints.view(np.uint64).tolist() == [2**64 - 1, 2**63, 2**64 - 5]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "line 2 ends before slot 'ids': it has 0 of 2 slots"),
        (b"1 5", "line 2 ends before slot 'x': it has 1 of 2 slots"),
        (b"1 5 3 1 2", "line 2 ends in slot 'x' after 2 of 3 values"),
        (b"0 1 5", "slot 'ids' begins with '0', which must be the number of its values"),
        (b"1 5 x 1", "slot 'x' begins with 'x', which must be the number of its values"),
        (b"1 5.5 1 1", "slot 'ids' is int64 and has '5.5'"),
        (b"1 18446744073709551616 1 1", "slot 'ids' is int64 and has '18446744073709551616'"),
        (b"1 5 1 one", "slot 'x' is float32 and has 'one'"),
        (b"1 5 1 0x10", "slot 'x' is float32 and has '0x10'"),
        (b"1 5 1 1e", "slot 'x' is float32 and has '1e'"),
        (b"1 5 1 1_0", "slot 'x' is float32 and has '1_0'"),
        (b"1 5 1 1 7", "continues with '7' after the last slot, 'x'"),
        (b"1 5 1 \xff", r"slot 'x' is float32 and has '\\\\xff'"),
    ],
)
def test_a_malformed_line_is_reported_with_its_file_and_number(
    line: bytes, message: str, kernels: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        parse(b"1 1 1 1\n" + line + b"\n1 1 1 1\n", SLOTS, "part-0")
    assert str(caught.value).startswith("part-0, line 2")


def test_line_numbers_continue_from_part_to_part(kernels: str) -> None:
    with pytest.raises(DataError, match="part-0, line 41 ends"):
        parse(b"1 1 1 1\n1\n", SLOTS, "part-0", first_line=40)


floats = st.one_of(
    st.floats(width=32).map(repr),
    st.floats().map(repr),
    st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)


@pytest.mark.skipif(unavailable() is not None, reason="there is no compiler")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1, max_size=3),
            st.lists(floats, min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_the_kernel_and_python_read_the_same_numbers(rows: list[tuple[list[int], list[str]]]) -> None:
    text = "".join(f"{len(i)} {' '.join(map(str, i))} {len(f)} {' '.join(f)}\n" for i, f in rows).encode()
    assert same(parse(text, SLOTS, "here"), _parse_in_python(text, SLOTS, "here", 1))


@pytest.mark.skipif(unavailable() is not None, reason="there is no compiler")
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([b"1", b"2", b" ", b"\n", b"-", b".", b"e", b"x", b"nan", b"\x00", b"\v", b"+"]))
)
def test_the_kernel_and_python_reject_the_same_lines(words: list[bytes]) -> None:
    text = b"".join(words).replace(b"\n", b" ") + b"\n"
    try:
        expected = _parse_in_python(text, SLOTS, "here", 1)
    except DataError:
        assert _parse_in_kernel(text, SLOTS, 1)[3] == 0
    else:
        assert same(parse(text, SLOTS, "here"), expected)
