"""multiprocess_reader: samples of several processes, and their errors."""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Iterator

import pytest

from argosy.engine.data.process_readers import multiprocess_reader
from argosy.engine.errors import ConfigError


def test_every_reader_runs_in_a_process_and_errors_arrive() -> None:
    def pairs() -> Iterator[tuple[int, int]]:
        yield from ((i, os.getpid()) for i in range(3))

    def fails() -> Iterator[int]:
        yield 1
        raise KeyError("broken")

    samples = list(multiprocess_reader([pairs, pairs], queue_size=4)())
    assert sorted(i for i, _ in samples) == [0, 0, 1, 1, 2, 2]
    assert len({pid for _, pid in samples} | {os.getpid()}) == 3
    with pytest.raises(KeyError, match="broken"):
        list(multiprocess_reader([fails])())


def test_a_list_of_readers_is_needed() -> None:
    with pytest.raises(ConfigError, match="one or more"):
        multiprocess_reader([])
    with pytest.raises(ConfigError, match="without calling it"):
        multiprocess_reader([iter([1])])
