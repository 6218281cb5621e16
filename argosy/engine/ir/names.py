"""Unique names in Paddle's scheme: `fc_0`, `fc_0.w_0`, `fc_0.tmp_1`. Strategies refer to variables by them."""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import contextmanager

from torch import fx

from argosy.engine.ir.dtypes import dtype_name


class NameGenerator:
    """Numbers each key separately: fc_0, fc_1, conv2d_0."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._next: Counter[str] = Counter()

    def __call__(self, key: str) -> str:
        number = self._next[key]
        self._next[key] += 1
        return f"{self.prefix}{key}_{number}"


_current = NameGenerator()


def generate(key: str) -> str:
    """The next unused name for this key: `generate("fc")` is fc_0, then fc_1."""
    return _current(key)


def generate_unused(key: str, used: Container[str]) -> str:
    """The next name for this key that is not in `used`, as for a variable of a program that was built elsewhere."""
    while (name := generate(key)) in used:
        pass
    return name


def names_of_copies(graph: fx.Graph, named: dict[fx.Node, str]) -> dict[fx.Node, str]:
    """w@bfloat16: the names of the 16-bit copies of variables (passes/narrow_copies.py) in a compiled graph."""
    copies = [node for node in graph.find_nodes(op="placeholder") if "copy_of" in node.meta]
    return {n: f"{named[n.meta['copy_of']]}@{dtype_name(n.meta['val'].dtype)}" for n in copies}


def switch(new: NameGenerator | None = None) -> NameGenerator:
    """Replace the current generator and return the old one."""
    global _current
    old, _current = _current, new or NameGenerator()
    return old


@contextmanager
def guard(new_generator: NameGenerator | str | None = None) -> Iterator[None]:
    """Restart the numbering inside, with a prefix if a string is given.

    Two programs that are each built under a guard get the same names, so that a program for testing shares the
    parameters of the one for training.
    """
    generator = NameGenerator(new_generator) if isinstance(new_generator, str) else new_generator
    old = switch(generator)
    try:
        yield
    finally:
        switch(old)
