"""Durable and atomic file operations, and file locks."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO


def sync(path: Path) -> None:
    """fsync a file, or the entries of a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file atomically: it replaces `path` once it is written and synced.

    For a path with one writer: its temporary file is `path` with the suffix .tmp, which a killed writer leaves behind.
    """
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@contextlib.contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """The path of a new file next to `path`, which replaces it atomically at the end, or is deleted if that fails.

    For a path that several processes may write at a time. The data need not be durable: it is not synced.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path`, which is created; other processes block until it is released.

    The kernel releases it when the process is killed. Raises OSError if the file cannot be created. `waiting` is called
    if another process holds the lock.
    """
    with path.open("w") as file:
        try:
            lock(file, blocks=False)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            lock(file)
        yield


def lock(file: IO[Any], blocks: bool = True) -> None:
    """Lock an open file until it is closed; raises OSError if it is locked and `blocks` is False."""
    fcntl.flock(file, fcntl.LOCK_EX | (0 if blocks else fcntl.LOCK_NB))
