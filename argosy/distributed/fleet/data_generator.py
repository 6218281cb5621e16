"""Data generators: programs for a pipe_command, which convert the lines of a file to lines of slots.

    class Reader(fleet.MultiSlotDataGenerator):
        def generate_sample(self, line):
            def samples():
                yield [("words", [1926, 8, 17]), ("label", [1])]
            return samples

    Reader().run_from_stdin()                          # writes: 3 1926 8 17 1 1

The dataset starts one such process for every file, so this module imports neither torch nor NumPy.
"""

# SPDX-License-Identifier: Apache-2.0
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any

from argosy.engine.errors import ConfigError, DataError

__all__ = ["DataGenerator", "MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]

Sample = Sequence[tuple[str, Sequence[Any]]]
"""A (name, values) pair for each slot."""


class DataGenerator:
    """Reads lines and writes samples; subclasses define how to parse a line and how to write a sample."""

    def __init__(self) -> None:
        self.batch_size_ = 32

    def set_batch(self, batch_size: int) -> None:
        """Set the number of samples that `generate_batch` gets at a time."""
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigError(f"set_batch({batch_size!r}): use an integer of 1 or more")
        self.batch_size_ = batch_size

    def generate_sample(self, line: str | None) -> Callable[[], Iterable[Any]]:
        """A function that yields the samples of a line, [(name, [values]), …] each; None is skipped."""
        raise NotImplementedError(
            f"{type(self).__name__}.generate_sample is missing; it takes a line and returns a function that yields "
            "[(name, [values]), …]"
        )

    def generate_batch(self, samples: list[Any]) -> Callable[[], Iterable[Any]]:
        """A function that yields the samples to write for a batch; override it to change them (default: all)."""

        def local_iter() -> Iterator[Any]:
            yield from samples

        return local_iter

    def run_from_stdin(self) -> None:
        """Write the samples of all lines of the standard input to the standard output."""
        self._write(sample for line in sys.stdin for sample in self.generate_sample(line)())

    def run_from_memory(self) -> None:
        """Write the samples that `generate_sample(None)` yields to the standard output."""
        self._write(self.generate_sample(None)())

    def _write(self, samples: Iterable[Any]) -> None:
        batch: list[Any] = []
        for sample in samples:
            if sample is None:
                continue
            batch.append(sample)
            if len(batch) == self.batch_size_:
                self._write_batch(batch)
                batch = []
        if batch:
            self._write_batch(batch)
        sys.stdout.flush()

    def _write_batch(self, batch: list[Any]) -> None:
        sys.stdout.writelines(self._gen_str(sample) for sample in self.generate_batch(batch)())

    def _gen_str(self, line: Any) -> str:
        raise NotImplementedError(
            "DataGenerator does not define how to write a sample; use MultiSlotDataGenerator or "
            "MultiSlotStringDataGenerator"
        )


class MultiSlotStringDataGenerator(DataGenerator):
    """Samples whose values are strings: written unchanged and unchecked, which is fast."""

    def _gen_str(self, line: Any) -> str:
        slots = _slots(line)
        return " ".join([f"{len(values)} {' '.join(values)}" for _, values in slots]) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """Samples of numbers; checks that every sample has the same slots in the same order, and that none is empty."""

    def __init__(self) -> None:
        super().__init__()
        self._proto_info: list[tuple[str, str]] | None = None
        """(name, "uint64" or "float") of each slot, over the samples so far."""

    def _gen_str(self, line: Any) -> str:
        slots = _slots(line)
        kinds = [(_name(name), _kind(name, values)) for name, values in slots]
        self._proto_info = kinds if self._proto_info is None else _merged(self._proto_info, kinds)
        return " ".join([f"{len(values)} {' '.join(map(str, values))}" for _, values in slots]) + "\n"


def _slots(sample: Any) -> Sample:
    """The sample as a list; Paddle's own examples give a zip object."""
    slots: Sample = list(sample) if isinstance(sample, zip) else sample
    if not isinstance(slots, list | tuple):
        raise DataError(f"a sample is a {type(sample).__name__}; yield a list of (name, [values])")
    return slots


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise DataError(
            f"the name of a slot is {name!r}; yield [(name, [values]), …] with a string for each name"
        )
    return name


def _kind(name: str, values: Any) -> str:
    if not isinstance(values, list) or not values:
        raise DataError(
            f"slot {name!r} has {values!r}; give a list of at least one number, and pad an empty slot"
        )
    if wrong := [v for v in values if not isinstance(v, Real) or isinstance(v, bool)]:
        raise DataError(f"slot {name!r} has {wrong[0]!r}; give numbers, or use MultiSlotStringDataGenerator")
    return "uint64" if all(isinstance(v, Integral) for v in values) else "float"


def _merged(known: list[tuple[str, str]], sample: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Merge the slot types of one more sample: a slot is "float" once it has held a float."""
    if [name for name, _ in known] != [name for name, _ in sample]:
        raise DataError(
            f"a sample has the slots {[name for name, _ in sample]}, earlier ones {[name for name, _ in known]}; "
            "yield the same slots in the same order"
        )
    return [(name, min(kind, new)) for (name, kind), (_, new) in zip(known, sample, strict=True)]
