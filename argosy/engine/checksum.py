"""Checksums of files and log records: XXH3, 64 bits; a push is checksummed before it is acknowledged."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import TypeAlias

import xxhash

Buffer: TypeAlias = bytes | bytearray | memoryview


def checksum(*parts: Buffer) -> int:
    """The checksum of the concatenated parts."""
    hasher = xxhash.xxh3_64()
    for part in parts:
        hasher.update(part)
    return hasher.intdigest()


def checksum_of(path: Path) -> int:
    """The checksum of a file."""
    hasher = xxhash.xxh3_64()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            hasher.update(data)
    return hasher.intdigest()
