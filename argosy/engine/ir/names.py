"""Names as Paddle makes them: `fc_0`, `fc_0.w_0`, `fc_0.tmp_1`. They matter: strategies name variables."""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class NameGenerator:
    """Counts each key apart: fc_0, fc_1, conv2d_0."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._next: Counter[str] = Counter()

    def __call__(self, key: str) -> str:
        number = self._next[key]
        self._next[key] += 1
        return f"{self.prefix}{key}_{number}"


_current = NameGenerator()


def generate(key: str) -> str:
    """The next unused name of this kind: `generate("fc")` is fc_0, then fc_1."""
    return _current(key)


def switch(new: NameGenerator | None = None) -> NameGenerator:
    """Put another generator in place and return the old one."""
    global _current
    old, _current = _current, new or NameGenerator()
    return old


@contextmanager
def guard(new_generator: NameGenerator | str | None = None) -> Iterator[None]:
    """Inside, names start from zero again, with a prefix if a string is given.

    Two programs that are built under a guard each get the same names, so that a program for testing
    shares the parameters of the one for training.
    """
    made = NameGenerator(new_generator) if isinstance(new_generator, str) else new_generator
    old = switch(made)
    try:
        yield
    finally:
        switch(old)
