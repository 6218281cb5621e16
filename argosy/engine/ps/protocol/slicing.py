"""Sharding of variables: which block of a variable is on which server.

    w [2048, 102], three servers           rows        server
      ┌────────────┐  w.block0         0 …  682        0
      ├────────────┤  w.block1       683 … 1365        1
      └────────────┘  w.block2      1366 … 2047        2

A variable is split along its first dimension into at most as many blocks as there are servers, none smaller than
`min_block_size` elements. The blocks are placed on the servers round-robin or by a hash of their names, the same in
every process.
"""

# SPDX-License-Identifier: Apache-2.0
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from argosy.engine.net import Endpoint

MIN_BLOCK_SIZE = 8192


@dataclass(frozen=True)
class VariableBlock:
    """A range of rows of a variable, on one server."""

    variable: str
    number: int
    first: int
    """The first row."""
    shape: tuple[int, ...]
    is_whole: bool
    """True: the variable is one block."""
    server: int = -1

    @property
    def name(self) -> str:
        return self.variable if self.is_whole else f"{self.variable}.block{self.number}"

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def split_variable(
    variable: str, shape: Sequence[int], servers: int, min_block_size: int = MIN_BLOCK_SIZE
) -> list[VariableBlock]:
    """Split a variable into blocks that are not placed yet."""
    size = math.prod(shape)
    num_blocks = min(servers, max(1, size // min_block_size))
    row_size = math.prod(shape[1:])
    rows = -(-math.ceil(size / num_blocks) // row_size) if shape else 1
    height = shape[0] if shape else 1
    firsts = range(0, height, rows)
    is_whole = len(firsts) == 1
    return [
        VariableBlock(variable, n, first, (min(rows, height - first), *shape[1:]) if shape else (), is_whole)
        for n, first in enumerate(firsts)
    ]


def round_robin(blocks: Sequence[VariableBlock], servers: int) -> list[VariableBlock]:
    """Place the blocks on servers 0, 1, 2, …, 0, …"""
    return [replace(block, server=number % servers) for number, block in enumerate(blocks)]


def hash_name(blocks: Sequence[VariableBlock], servers: int) -> list[VariableBlock]:
    """Place each block by a hash of its name."""
    return [replace(block, server=zlib.crc32(block.name.encode()) % servers) for block in blocks]


def check_endpoint(text: str) -> str:
    """Return host:port without spaces; raises ConfigError if it is malformed."""
    return str(Endpoint.parse(text))
