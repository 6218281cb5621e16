"""argosy.io: Paddle's names and signatures, and the tie between a loader and its program."""

import inspect
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from argosy import io, static
from argosy.distributed.fleet.dataset import InMemoryDataset
from argosy.engine.errors import ConfigError, EOFException


class Program:
    """Stands where a program would: takes note of the loader that is attached."""

    def __init__(self) -> None:
        self.readers: list[Any] = []

    def attach_reader(self, loader: Any) -> None:
        self.readers.append(loader)


def variables(program: Program) -> list[Any]:
    block = SimpleNamespace(program=program)
    x = SimpleNamespace(name="x", shape=(-1, 3), dtype=torch.float32, block=block)
    y = SimpleNamespace(name="y", shape=(-1, 1), dtype=torch.int64, block=block)
    return [x, y]


def samples() -> Iterator[Any]:
    for i in range(4):
        yield np.full(3, i), i


def test_a_loader_that_is_not_iterable_is_attached_to_its_program() -> None:
    program = Program()
    loader = io.DataLoader.from_generator(variables(program), capacity=2, iterable=False)
    assert program.readers == [loader]
    assert loader.feed_names == ("x", "y")
    loader.set_sample_generator(samples, batch_size=2, drop_last=True, places=None)
    loader.start()
    assert loader.next_feed()["x"].tolist() == [[0, 0, 0], [1, 1, 1]]
    loader.next_feed()
    with pytest.raises(EOFException):
        loader.next_feed()
    loader.reset()


def test_an_iterable_loader_is_not_attached() -> None:
    program = Program()
    loader = io.DataLoader.from_generator(feed_list=variables(program), capacity=2, use_double_buffer=True)
    loader.set_sample_list_generator(lambda: iter([list(samples())]), "cpu")
    feeds: list[Any] = list(loader())
    assert feeds[0][0]["y"].tolist() == [[0], [1], [2], [3]]
    assert program.readers == []


def test_reading_in_a_thread_instead_of_a_process_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="argosy"):
        io.DataLoader.from_generator(capacity=2, return_list=True, use_multiprocess=True)
    assert "num_workers" in caplog.text


def test_a_dataset_of_tensors_feeds_a_program() -> None:
    data = io.TensorDataset([torch.arange(12.0).reshape(4, 3), torch.arange(4)])
    loader = io.DataLoader(
        data, variables(Program()), places=[None], batch_size=2, shuffle=True, drop_last=True
    )
    batches = list(loader)
    assert len(batches) == len(loader) == 2
    assert batches[0][0]["y"].shape == (2, 1)


def test_a_rank_reads_its_share() -> None:
    data = io.TensorDataset([torch.arange(8)])
    sampler = io.DistributedBatchSampler(data, batch_size=2, num_replicas=2, rank=1)
    assert [b[0].tolist() for b in io.DataLoader(data, batch_sampler=sampler)] == [[2, 3], [6, 7]]


# The lists of Paddle 2.0.0's python/paddle/fluid/reader.py and dataloader/batch_sampler.py.
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (
            io.DataLoader.__init__,
            "self dataset feed_list places return_list batch_sampler batch_size shuffle drop_last collate_fn"
            " num_workers use_buffer_reader use_shared_memory timeout worker_init_fn",
        ),
        (
            io.DataLoader.from_generator,
            "feed_list capacity use_double_buffer iterable return_list use_multiprocess drop_last",
        ),
        (io.BatchSampler.__init__, "self dataset sampler shuffle batch_size drop_last"),
        (io.DistributedBatchSampler.__init__, "self dataset batch_size num_replicas rank shuffle drop_last"),
        (io.RandomSampler.__init__, "self data_source replacement num_samples generator"),
        (io.random_split, "dataset lengths generator"),
    ],
)
def test_the_arguments_are_paddles(function: Any, arguments: str) -> None:
    assert list(inspect.signature(function).parameters) == arguments.split()


def test_every_promised_name_is_there() -> None:
    assert all(hasattr(io, name) for name in io.__all__)
    assert issubclass(io.IterableDataset, io.Dataset)
    assert io.get_worker_info() is None


def test_a_loader_over_a_dataset_of_slots_yields_feeds(tmp_path: Path) -> None:
    (tmp_path / "part").write_text("".join(f"2 {i} {i} 1 {i}\n" for i in range(5)))
    dataset = InMemoryDataset()
    x, y = static.data("x", [None, 2], "int64"), static.data("y", [None, 1], "int64")
    dataset.init(batch_size=2, use_var=[x, y])
    dataset.set_filelist([str(tmp_path / "part")])
    dataset.load_into_memory()
    loader = io.DataLoader.from_dataset(dataset, "cpu")
    assert [feed[0]["y"].flatten().tolist() for feed in loader()] == [[0, 1], [2, 3]]
    whole = io.DataLoader.from_dataset(dataset, None, drop_last=False)
    assert [feed[0]["x"].tolist() for feed in whole][-1] == [[4, 4]]
    with pytest.raises(ConfigError, match="list is not a QueueDataset"):
        io.DataLoader.from_dataset([], None)
