"""Parse the text of slots into Records: `<count> v1 v2 …` for each slot, one record per line.

A C++ kernel parses it, or Python if there is no compiler; Python also explains the error in a malformed line.
"""

# SPDX-License-Identifier: Apache-2.0
import re
from ctypes import c_char_p, c_int64, c_void_p

import numpy as np

from argosy.engine.data.slots.records import Records
from argosy.engine.data.slots.slot import Array, SlotSpec
from argosy.engine.errors import DataError
from argosy.engine.kernels import library, unavailable

_BLANKS = re.compile(rb"[ \t\r]+")
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_FLOAT = re.compile(rb"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE)
_COUNT = re.compile(rb"[0-9]{1,10}")
_SHOWN = 60


def parse(text: bytes, slots: tuple[SlotSpec, ...], where: str, first_line: int = 1) -> Records:
    """Parse a text of complete lines; an error contains `where` the text is from and the line number."""
    lines = text.count(b"\n")
    if not text.endswith(b"\n"):
        text, lines = text + b"\n", lines + 1
    if unavailable() is not None:
        return _parse_in_python(text, slots, where, first_line)
    counts, ints, floats, num_valid = _parse_in_kernel(text, slots, lines)
    if num_valid != lines:
        _parse_line(text.split(b"\n")[num_valid], slots, f"{where}, line {first_line + num_valid}")
        raise AssertionError(
            f"{where}: line {first_line + num_valid} is valid for Python and not for the kernel"
        )
    return Records(slots, counts, ints, floats)


def _parse_in_kernel(text: bytes, slots: tuple[SlotSpec, ...], lines: int) -> tuple[Array, Array, Array, int]:
    capacity = len(text) // 2 + 2  # a value takes at least a digit and a blank
    counts = np.empty((lines, len(slots)), np.int32)
    ints, floats = np.empty(capacity, np.int64), np.empty(capacity, np.float32)
    kinds = np.array([slot.is_float for slot in slots], np.uint8)
    used = np.zeros(2, np.int64)
    call = library().argosy_parse_slots
    call.restype = c_int64
    arrays = [c_void_p(a.ctypes.data) for a in (kinds, counts, ints, floats, used)]
    num_valid = call(c_char_p(text), c_int64(lines), c_int64(len(slots)), *arrays)
    return counts, ints[: used[0]].copy(), floats[: used[1]].copy(), num_valid


def _parse_in_python(text: bytes, slots: tuple[SlotSpec, ...], where: str, first_line: int) -> Records:
    rows = [
        _parse_line(line, slots, f"{where}, line {first_line + i}")
        for i, line in enumerate(text[:-1].split(b"\n"))
    ]
    ints, floats = (
        [
            number
            for row in rows
            for slot, values in zip(slots, row, strict=True)
            if slot.is_float is kind
            for number in values
        ]
        for kind in (False, True)
    )
    with np.errstate(over="ignore"):  # 1e39 becomes inf, as in the kernel
        narrow = np.array(floats, np.float64).astype(np.float32)
    counts = np.array([[len(values) for values in row] for row in rows], np.int32)
    return Records(slots, counts, np.array(ints, np.int64), narrow)


def _parse_line(line: bytes, slots: tuple[SlotSpec, ...], where: str) -> list[list[int] | list[float]]:
    """The values of each slot, or a DataError."""
    words = [word for word in _BLANKS.split(line) if word]
    record: list[list[int] | list[float]] = []
    at = 0
    for slot in slots:
        if at == len(words):
            raise DataError(
                f"{where} ends before slot {slot.name!r}: it has {len(record)} of {len(slots)} slots; {_advice(slots)}"
            )
        count = int(words[at]) if _COUNT.fullmatch(words[at]) else 0
        if not 1 <= count < 2**31:
            raise DataError(
                f"{where}: slot {slot.name!r} begins with {_shown(words[at])}, which must be the number of its values, "
                f"1 or more; pad an empty slot, and {_advice(slots)}"
            )
        values = words[at + 1 : at + 1 + count]
        if len(values) < count:
            raise DataError(
                f"{where} ends in slot {slot.name!r} after {len(values)} of {count} values; {_advice(slots)}"
            )
        record.append(_floats(values, slot, where) if slot.is_float else _ints(values, slot, where))
        at += 1 + count
    if at < len(words):
        raise DataError(
            f"{where} continues with {_shown(words[at])} after the last slot, {slots[-1].name!r}; {_advice(slots)}"
        )
    return record


def _ints(words: list[bytes], slot: SlotSpec, where: str) -> list[int]:
    numbers = []
    for word in words:
        number = int(word) if _INTEGER.fullmatch(word) and len(word) <= 4000 else 2**64
        if not -(2**63) <= number < 2**64:
            raise DataError(
                f"{where}: slot {slot.name!r} is int64 and has {_shown(word)}; "
                "give an integer of 64 bits, or declare the variable as float32"
            )
        numbers.append(number - 2**64 if number >= 2**63 else number)  # as in Paddle, bit for bit
    return numbers


def _floats(words: list[bytes], slot: SlotSpec, where: str) -> list[float]:
    if malformed := [word for word in words if not _FLOAT.fullmatch(word)]:
        raise DataError(
            f"{where}: slot {slot.name!r} is float32 and has {_shown(malformed[0])}; give a number"
        )
    return [float(word) for word in words]


def _advice(slots: tuple[SlotSpec, ...]) -> str:
    return f"write `<count> v1 v2 …` for each of the {len(slots)} variables of use_var, in their order"


def _shown(word: bytes) -> str:
    text = word.decode(errors="backslashreplace")
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
