"""DatasetLoader: batches of data sets as lists and as feeds, in threads and in processes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from argosy.engine.data.dataset_loader import DatasetLoader
from argosy.engine.data.feed import FeedSpec
from argosy.engine.data.samplers import BatchSampler, DistributedBatchSampler
from argosy.engine.errors import ConfigError, DataError

FEEDS = [FeedSpec("x", (-1, 2, 3), torch.float32), FeedSpec("y", (-1, 1), torch.int64)]


class Rows(Dataset[tuple[Any, int]]):
    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.full(6, index, dtype=np.float64), index

    def __len__(self) -> int:
        return 10


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        mine = range(6) if info is None else range(info.id, 6, info.num_workers)
        return (np.array([i]) for i in mine)


def labels(loader: DatasetLoader) -> list[list[int]]:
    return [batch[1].flatten().tolist() for batch in loader]


@pytest.mark.parametrize("use_buffer_reader", [True, False])
def test_batches_are_lists_of_tensors(use_buffer_reader: bool) -> None:
    loader = DatasetLoader(Rows(), batch_size=4, use_buffer_reader=use_buffer_reader)
    assert labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(loader) == 3
    x, y = next(iter(loader))
    assert (x.shape, x.dtype, y.dtype) == ((4, 6), torch.float64, torch.int64)


def test_drop_last_drops() -> None:
    assert len(labels(DatasetLoader(Rows(), batch_size=4, drop_last=True))) == 2


def test_with_a_feed_list_a_batch_is_a_feed() -> None:
    [feed] = next(DatasetLoader(Rows(), FEEDS, batch_size=4)())
    assert (feed["x"].shape, feed["x"].dtype, feed["y"].shape) == ((4, 2, 3), torch.float32, (4, 1))


def test_return_list_gives_converted_tensors() -> None:
    x, y = next(iter(DatasetLoader(Rows(), FEEDS, return_list=True, batch_size=4)))
    assert (x.shape, y.tolist()) == ((4, 2, 3), [[0], [1], [2], [3]])


def test_a_shuffle_is_a_permutation_that_numpys_seed_repeats() -> None:
    loader = DatasetLoader(Rows(), batch_size=5, shuffle=True)
    np.random.seed(1)
    first = labels(loader)
    np.random.seed(1)
    assert labels(loader) == first
    assert sorted(i for batch in first for i in batch) == list(range(10))


def test_a_batch_sampler_sets_the_batches() -> None:
    assert labels(DatasetLoader(Rows(), batch_sampler=BatchSampler(Rows(), batch_size=6))) == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9],
    ]
    mine = DistributedBatchSampler(Rows(), 2, num_replicas=2, rank=1)
    assert labels(DatasetLoader(Rows(), batch_sampler=mine)) == [[2, 3], [6, 7], [9]]


def test_without_a_batch_size_samples_come_one_by_one() -> None:
    single = [sample[0].shape for sample in DatasetLoader(Rows(), batch_size=None)]
    assert single == [(6,)] * 10


def test_processes_read_the_same_batches() -> None:
    assert labels(DatasetLoader(Rows(), batch_size=4, num_workers=1)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_an_iterable_dataset_is_batched_in_its_order() -> None:
    loader = DatasetLoader(Stream(), batch_size=4)
    assert [batch[0].flatten().tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5]]


def test_a_collate_function_of_the_users_is_used() -> None:
    def collate(samples: list[Any]) -> Any:
        return np.stack([x for x, _ in samples]), [str(y) for _, y in samples]

    x, names = next(iter(DatasetLoader(Rows(), batch_size=2, collate_fn=collate)))
    assert isinstance(x, torch.Tensor)
    assert names == ["0", "1"]


def test_samples_with_names_stay_named_and_feed_by_name() -> None:
    class Named(Dataset[dict[str, Any]]):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"y": index, "x": np.zeros(6), "unused": 1}

        def __len__(self) -> int:
            return 4

    assert set(next(iter(DatasetLoader(Named(), batch_size=2)))) == {"x", "y", "unused"}
    [feed] = next(iter(DatasetLoader(Named(), FEEDS, batch_size=2)))
    assert list(feed) == ["x", "y"]


def test_an_error_of_the_dataset_reaches_the_loop() -> None:
    class Broken(Rows):
        def __getitem__(self, index: int) -> tuple[Any, int]:
            raise KeyError(f"row {index}")

    with pytest.raises(KeyError, match="row 0"):
        next(iter(DatasetLoader(Broken())))


def test_a_mismatch_names_the_variable() -> None:
    with pytest.raises(DataError, match="'x'"):
        next(iter(DatasetLoader(Rows(), [FeedSpec("x", (-1, 7), torch.float32), FEEDS[1]])))


def test_contradicting_arguments_are_rejected() -> None:
    with pytest.raises(ConfigError, match="batch_sampler sets the batches"):
        DatasetLoader(Rows(), batch_sampler=BatchSampler(Rows()), batch_size=4)
    with pytest.raises(ConfigError, match="sets its own order"):
        DatasetLoader(Stream(), shuffle=True)
    with pytest.raises(ConfigError, match="batch_size"):
        DatasetLoader(Rows(), batch_size=0)
    with pytest.raises(ConfigError, match="places"):
        DatasetLoader(Rows(), places=["cpu", "cpu"])
