"""Readers as part of a program: py_reader, read_file, double_buffer.

reader = fluid.layers.py_reader(capacity=16, shapes=[(-1, 784), (-1, 1)], dtypes=["float32", "int64"])
image, label = fluid.layers.read_file(reader)
reader.decorate_paddle_reader(fluid.io.batch(samples, 32))
reader.start()                                   exe.run(program) without feed, until fluid.core.EOFException
reader.reset()
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.variable import Variable
from argosy.fluid.reader import PyReader


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> PyReader:
    """A reader that feeds new variables of these shapes and dtypes, which `read_file` returns.

    A shape has the batch size first, -1 for any. A variable with lod_level 1 is ragged: its samples are of any length.
    The queue of `capacity` batches is the double buffer.
    """
    levels = [0] * len(shapes) if lod_levels is None else list(lod_levels)
    if not len(shapes) == len(dtypes) == len(levels) or not shapes:
        raise ConfigError(
            f"py_reader: {len(shapes)} shapes, {len(dtypes)} dtypes, {len(levels)} lod_levels; give one of each for "
            "every variable"
        )
    prefix = name or names.generate("py_reader")
    program = default_main_program()
    variables = [
        program.data(f"{prefix}_data_{i}", shape, dtype, level)
        for i, (shape, dtype, level) in enumerate(zip(shapes, dtypes, levels, strict=True))
    ]
    return PyReader(variables, capacity, use_double_buffer, iterable=False)


def create_py_reader_by_data(
    capacity: int, feed_list: Sequence[Variable], name: str | None = None, use_double_buffer: bool = True
) -> PyReader:
    """A reader that feeds these variables."""
    return PyReader(feed_list, capacity, use_double_buffer, iterable=False)


def read_file(reader: PyReader) -> Any:
    """The variables that the reader feeds: a list, or the variable if there is only one."""
    if not isinstance(reader, PyReader):
        raise ConfigError(f"read_file: {type(reader).__name__} is not a reader; give the result of py_reader")
    return reader.variables[0] if len(reader.variables) == 1 else list(reader.variables)


def double_buffer(reader: PyReader, place: Any = None, name: str | None = None) -> PyReader:
    """The reader itself: every reader reads ahead in a thread, `capacity` batches."""
    return reader
