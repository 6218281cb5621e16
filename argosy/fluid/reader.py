"""fluid.io.PyReader and the reader of fluid.layers.py_reader: the loader of argosy.io with the method names of 1.x."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from argosy.engine.data.generator_loader import GeneratorLoader
from argosy.engine.ir.variable import Variable
from argosy.framework.missing import missing
from argosy.io import DataLoader

__all__ = ["DataLoader", "PyReader"]


class PyReader(GeneratorLoader):
    """A loader over a Python generator; see `argosy.io.DataLoader.from_generator`.

    Iterable, it yields feeds for the executor. Not iterable, it belongs to the program of its feed variables: after
    `start()` the executor takes a batch per run, until it raises `fluid.core.EOFException`; then `reset()`. The queue
    of `capacity` batches is the double buffer.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        super().__init__(feed_list, capacity, iterable, return_list)
        self.variables = list(feed_list or ())
        """The feed variables, which `fluid.layers.read_file` returns."""
        if not iterable:
            self.variables[0].block.program.attach_reader(self)

    def decorate_sample_generator(
        self,
        sample_generator: Callable[[], Iterable[Any]],
        batch_size: int,
        drop_last: bool = True,
        places: Any = None,
    ) -> None:
        """Take single samples from the reader and make batches of them."""
        self.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(
        self, reader: Callable[[], Iterable[Sequence[Any]]], places: Any = None
    ) -> None:
        """Take lists of samples from the reader, as `fluid.io.batch` makes them."""
        self.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: Callable[[], Iterable[Any]], places: Any = None) -> None:
        """Take whole batches from the reader: one array per variable."""
        self.set_batch_generator(reader, places)

    def decorate_paddle_reader(
        self, reader: Callable[[], Iterable[Sequence[Any]]], places: Any = None
    ) -> None:
        """The name of `decorate_sample_list_generator` for `fluid.layers.py_reader`."""
        self.set_sample_list_generator(reader, places)

    def decorate_tensor_provider(self, reader: Callable[[], Iterable[Any]], places: Any = None) -> None:
        """The name of `decorate_batch_generator` for `fluid.layers.py_reader`."""
        self.set_batch_generator(reader, places)


__getattr__ = missing(__name__, globals())
