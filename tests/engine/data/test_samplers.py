"""Samplers: every sample once, batches of the right size, equal shards for all ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.engine import env
from argosy.engine.data.samplers import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    Sampler,
    SequenceSampler,
    WeightedRandomSampler,
)
from argosy.engine.errors import ConfigError

DATA = range(10)


def test_a_sequence_sampler_counts() -> None:
    assert list(SequenceSampler(DATA)) == list(range(10))
    assert len(SequenceSampler(DATA)) == 10


def test_a_random_sampler_is_a_permutation_that_numpys_seed_repeats() -> None:
    np.random.seed(5)
    first = list(RandomSampler(DATA))
    np.random.seed(5)
    assert list(RandomSampler(DATA)) == first != list(DATA)
    assert sorted(first) == list(DATA)


def test_the_order_is_drawn_when_the_epoch_starts() -> None:
    np.random.seed(5)
    expected = list(RandomSampler(DATA))
    np.random.seed(5)
    order = iter(BatchSampler(DATA, shuffle=True, batch_size=10))
    np.random.rand(100)
    assert next(order) == expected


def test_replacement_draws_as_many_as_asked() -> None:
    drawn = list(RandomSampler(DATA, replacement=True, num_samples=50))
    assert len(drawn) == 50
    assert set(drawn) <= set(DATA)
    with pytest.raises(ConfigError, match="needs replacement=True"):
        RandomSampler(DATA, num_samples=5)


def test_a_random_sampler_may_follow_a_generator_of_numbers() -> None:
    assert list(RandomSampler(DATA, replacement=True, num_samples=3, generator=iter([4, 4, 1, 0]))) == [
        4,
        4,
        1,
    ]


def test_a_sampler_without_iter_says_so() -> None:
    class Mine(Sampler):
        pass

    with pytest.raises(NotImplementedError, match="Mine does not define __iter__"):
        iter(Mine(DATA))


@given(st.integers(1, 40), st.integers(1, 9), st.booleans(), st.booleans())
def test_batches_cover_the_data_and_count_themselves(n: int, size: int, shuffle: bool, drop: bool) -> None:
    sampler = BatchSampler(range(n), shuffle=shuffle, batch_size=size, drop_last=drop)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    flat = [i for b in batches for i in b]
    assert len(set(flat)) == len(flat) == (n // size * size if drop else n)


def test_a_batch_sampler_takes_a_sampler_of_the_users() -> None:
    assert list(
        BatchSampler(sampler=RandomSampler(DATA, generator=iter(range(9, -1, -1))), batch_size=4)
    ) == [
        [9, 8, 7, 6],
        [5, 4, 3, 2],
        [1, 0],
    ]


def test_contradicting_arguments_are_rejected() -> None:
    with pytest.raises(ConfigError, match="either a dataset or a sampler"):
        BatchSampler()
    with pytest.raises(ConfigError, match="either a dataset or a sampler"):
        BatchSampler(DATA, SequenceSampler(DATA))
    with pytest.raises(ConfigError, match="shuffle=True"):
        BatchSampler(sampler=SequenceSampler(DATA), shuffle=True)
    with pytest.raises(ConfigError, match="batch_size"):
        BatchSampler(DATA, batch_size=0)


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 6), st.booleans(), st.booleans())
def test_ranks_get_equally_many_batches_and_lose_no_sample(
    n: int, size: int, ranks: int, shuffle: bool, drop: bool
) -> None:
    shares = []
    for rank in range(ranks):
        sampler = DistributedBatchSampler(range(n), size, ranks, rank, shuffle, drop)
        shares.append(list(sampler))
        assert len(shares[-1]) == len(sampler)
    assert len({tuple(map(len, share)) for share in shares}) == 1
    if not drop:
        assert {i for share in shares for b in share for i in b} == set(range(n))


def test_the_shards_are_those_of_the_docstring() -> None:
    shares = [list(DistributedBatchSampler(range(9), 3, 2, rank)) for rank in (0, 1)]
    assert shares == [[[0, 1, 2], [6, 7]], [[3, 4, 5], [8, 0]]]


def test_a_shuffled_order_is_paddles_and_changes_with_the_epoch() -> None:
    # numpy.random.RandomState(epoch).shuffle over list(range(8)), as in Paddle 2.0's batch_sampler.py
    sampler = DistributedBatchSampler(range(8), 8, 1, 0, shuffle=True)
    expected = list(range(8))
    np.random.RandomState(0).shuffle(expected)
    assert list(sampler) == [expected]
    second = list(sampler)
    assert second != [expected]
    sampler.set_epoch(1)
    assert list(sampler) == second


def test_less_data_than_ranks_is_repeated() -> None:
    assert [list(DistributedBatchSampler(range(2), 1, 5, rank)) for rank in range(5)] == [
        [[0]],
        [[1]],
        [[0]],
        [[1]],
        [[0]],
    ]


def test_rank_and_size_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    sampler = DistributedBatchSampler(range(4), 2)
    assert (sampler.local_rank, sampler.nranks, list(sampler)) == (1, 2, [[2, 3]])


def test_a_rank_outside_of_the_job_is_rejected() -> None:
    with pytest.raises(ConfigError, match="rank 2 of 2; use 0 to 1"):
        DistributedBatchSampler(range(4), 2, 2, 2)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4)),
        ({"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "2", "RANK": "3", "WORLD_SIZE": "4"}, (1, 2)),
    ],
)
def test_paddles_variables_count_before_torchs(environ: dict[str, str], expected: tuple[int, int]) -> None:
    assert env.rank_and_size(environ) == expected


@pytest.mark.parametrize(
    "environ", [{"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "1"}]
)
def test_an_environment_that_is_invalid_is_rejected(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="RANK="):
        env.rank_and_size(environ)


def test_a_weighted_sampler_draws_in_proportion_to_the_weights() -> None:
    np.random.seed(3)
    draws = np.array(list(WeightedRandomSampler([0.0, 1.0, 3.0], 4000)))
    shares = np.bincount(draws, minlength=3) / len(draws)
    np.testing.assert_allclose(shares, [0, 0.25, 0.75], atol=0.04)
    assert len(WeightedRandomSampler([1, 1], 5)) == 5
    assert sorted(WeightedRandomSampler([0.2, 0.1, 0.0, 0.7], 3, replacement=False)) == [0, 1, 3]
    with pytest.raises(ConfigError, match="2 positive weights"):
        WeightedRandomSampler([1, 2, 0], 3, replacement=False)
    with pytest.raises(ConfigError, match="not negative"):
        WeightedRandomSampler([1, -1], 1)
