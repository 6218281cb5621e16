"""Which ranks a group's name stands for.

    dp             all ranks                        dp.1           the same, a second communicator
    dp/inner2      this rank's block of two         (0 1) (2 3)
    dp/across2     its place in every block         (0 2) (1 3)
    dp/leaders2    the first of every block         (0 2), and nobody else

A communicator (what stands before the stroke) has its own connections and its own thread, so that exchanges on
two communicators run side by side, and those on one of them in turn.
"""

# SPDX-License-Identifier: Apache-2.0
import re

from argosy.engine.errors import ConfigError

_NAME = re.compile(r"[^/]+(?:/(inner|across|leaders)([1-9]\d*))?")


def communicator(base: str, number: int) -> str:
    """The name of a group's communicator: the first has the name of the group."""
    return f"{base}.{number}" if number else base


def members(name: str, rank: int, size: int) -> tuple[int, ...]:
    """The ranks of the group of this name that `rank` belongs to; itself alone if it belongs to none."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise ConfigError(
            f"{name!r} is no group; use names such as dp, dp.1, dp/inner2, dp/across2, dp/leaders2"
        )
    kind, text = found.groups()
    if kind is None:
        return tuple(range(size))
    block = int(text)
    if size % block:
        raise ConfigError(
            f"group {name!r}: {size} ranks are no whole blocks of {block}; use a divisor of {size}"
        )
    first = rank - rank % block
    if kind == "inner":
        return tuple(range(first, first + block))
    if kind == "leaders" and rank != first:
        return (rank,)
    return tuple(range(rank - first, size, block))
