"""Criteo's lines for the trainer: `cat part-0 | python reader.py` prints them in the MultiSlot format.

    label TAB 13 integers TAB 26 categories      ->      13 numbers | 26 ids | label

Numbers are scaled to about 0 … 1 by FleetX's bounds. A category becomes an id by a hash that is the same in
every process and on every machine (FleetX uses Python's, which is salted: workers disagree about the rows).
A missing number is 0; a missing category is a category like any other.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from argosy.distributed.fleet.data_generator import MultiSlotDataGenerator
from argosy.engine.errors import DataError

NUMBERS, CATEGORIES = 13, 26
FIELDS = 1 + NUMBERS + CATEGORIES
ROWS = 1_000_001
LEAST = (0, -3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
SPAN = (20, 603, 100, 50, 64000, 500, 100, 50, 500, 10, 10, 10, 50)
NAMES = ("dense_input", *(f"C{i + 1}" for i in range(CATEGORIES)), "label")


def parse(line: str, rows: int = ROWS) -> tuple[list[float], list[int], int]:
    """(numbers, ids, label) of a line; missing fields at its end are missing values."""
    fields = line.rstrip("\r\n").split("\t")
    if fields[0] not in ("0", "1") or len(fields) > FIELDS:
        raise DataError(
            f"a line with {len(fields)} fields and label {fields[0]!r}: {line[:60]!r}; a Criteo line has the "
            f"label 0 or 1, {NUMBERS} integers and {CATEGORIES} categories, with tabs between"
        )
    fields += [""] * (FIELDS - len(fields))
    numbers = [_scaled(i, text) for i, text in enumerate(fields[1 : 1 + NUMBERS])]
    ids = [
        zlib.crc32(f"{i}{text}".encode()) % rows for i, text in enumerate(fields[1 + NUMBERS :], 1 + NUMBERS)
    ]
    return numbers, ids, int(fields[0])


def _scaled(place: int, text: str) -> float:
    if not text:
        return 0.0
    try:
        return (int(text) - LEAST[place]) / SPAN[place]
    except ValueError as e:
        raise DataError(f"number {place + 1} of a line is {text!r}; use an integer, or nothing") from e


class CriteoReader(MultiSlotDataGenerator):
    """Lines of standard input to samples of 28 slots."""

    def __init__(self, rows: int = ROWS) -> None:
        super().__init__()
        self._rows = rows

    def generate_sample(self, line: str | None) -> Callable[[], Iterator[list[tuple[str, list[Any]]]]]:
        """The sample of a line, as a function that yields it."""

        def samples() -> Iterator[list[tuple[str, list[Any]]]]:
            numbers, ids, label = parse(line or "", self._rows)
            values: list[list[Any]] = [numbers, *([i] for i in ids), [label]]
            yield list(zip(NAMES, values, strict=True))

        return samples


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", type=int, default=ROWS, help="of the table: ids are 0 to rows - 1")
    CriteoReader(p.parse_args().rows).run_from_stdin()
