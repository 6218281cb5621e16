"""fleet.util: collectives between two real processes, and in a single process."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest

from argosy.distributed.fleet import metrics
from argosy.distributed.fleet.base.role_maker import UserDefinedRoleMaker
from argosy.distributed.fleet.base.util_factory import UtilBase
from argosy.engine import collective
from argosy.engine.errors import ConfigError
from tests.ranks import ForkServer


def worker(index: int, num: int) -> UtilBase:
    endpoints = [f"127.0.0.1:{6170 + i}" for i in range(num)]
    return UtilBase(UserDefinedRoleMaker(is_collective=True, current_id=index, worker_endpoints=endpoints))


def test_workers_that_the_user_defined_meet_after_init_worker() -> None:
    roles = UserDefinedRoleMaker(current_id=0, worker_num=2, server_endpoints=["127.0.0.1:6174"])
    with pytest.raises(
        ConfigError, match="the workers' collectives run through the servers; call fleet.init_worker"
    ):
        UtilBase(roles).barrier()


def reduces_and_gathers() -> None:
    rank, util = collective.connect().rank, UtilBase()
    for dtype in ("float16", "float32", "float64", "int8", "int32", "int64", "uint8"):
        mine = np.array([[1, 2], [3, 4]], dtype) * (rank + 1)
        for mode, wanted in (("sum", 3), ("max", 2), ("min", 1)):
            reduced = util.all_reduce(mine, mode)
            assert (reduced.dtype, reduced.shape) == (dtype, (2, 2))
            assert (reduced == np.array([[1, 2], [3, 4]]) * wanted).all(), (dtype, mode, reduced)
    assert util.all_reduce(rank + 1) == 3
    assert util.all_reduce([1.5, rank]).tolist() == [3.0, 1.0]
    assert util.all_reduce(np.array(rank == 1), "max")
    assert util.all_reduce(np.zeros((0, 3))).shape == (0, 3)
    view = np.arange(6.0).reshape(2, 3).T
    assert (util.all_reduce(view) == 2 * view).all()
    util.barrier()

    assert util.all_gather(rank * 10) == [0, 10]
    assert util.all_gather(0.1 + rank) == [0.1, 1.1]
    assert util.all_gather(f"file-{rank}-\u00e9") == ["file-0-\u00e9", "file-1-\u00e9"]
    assert util.all_gather([rank, 2.5, "a", None]) == [[0, 2.5, "a", None], [1, 2.5, "a", None]]
    assert util.all_gather({"loss": rank}) == [{"loss": 0}, {"loss": 1}]
    arrays = util.all_gather(np.full((rank + 1, 2), rank, "float32"))
    assert [a.shape for a in arrays] == [(1, 2), (2, 2)]
    assert arrays[1].dtype == "float32"
    gathered = util.all_gather(np.float64(rank))
    assert gathered == [0.0, 1.0]
    assert isinstance(gathered[0], np.float64)

    assert metrics.acc(np.array([1 + rank]), np.array([4 - 2 * rank])) == 0.5
    assert metrics.max(np.array([rank, -rank])).tolist() == [1, 0]
    positives, negatives = np.eye(2, dtype="int64")[[rank]], np.eye(2, dtype="int64")[[1 - rank]]
    assert metrics.auc(positives, negatives) == 0.5


def gives_other_arrays() -> None:
    rank, util = collective.connect().rank, UtilBase()
    util.print_on_rank("I am 1", 1)
    for bad in (np.zeros(2 + rank, "float32"), np.full(1, 100, "int8")):
        try:
            util.all_reduce(bad)
        except ConfigError as e:
            print(e)
    assert util.all_reduce(1) == 2  # and the group still works


def test_two_ranks_reduce_and_gather_by_rank(ranks: ForkServer) -> None:
    ranks.check(2, reduces_and_gathers)


def test_arrays_that_differ_between_the_ranks_are_refused_on_all_of_them(ranks: ForkServer) -> None:
    said = [text.splitlines() for text in ranks.check(2, gives_other_arrays)]
    assert said[1] == ["I am 1", *said[0]]
    assert said[0] == [
        "all_reduce: rank 0 gives float32 of shape [2], mode sum and rank 1 gives float32 of shape [3], mode sum; "
        "give the same on all ranks",
        "all_reduce: the sum over 2 workers does not fit int8 (largest 200); give an array of int64",
    ]


def test_alone_everything_gives_the_input_back() -> None:
    util = UtilBase()
    util.barrier()
    assert util.all_reduce(np.array([1, 2], np.int16)).tolist() == [1, 2]
    assert util.all_gather((1, "a")) == [[1, "a"]]


def test_all_reduce_does_not_change_its_input() -> None:
    mine = np.ones(2)
    UtilBase().all_reduce(mine)[0] = 7
    assert mine.tolist() == [1, 1]


def test_ranks_that_are_not_connected_get_an_error_that_names_init(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="fleet.init"):
        UtilBase().all_reduce(1)


@pytest.mark.parametrize(
    ("files", "num", "blocks"),
    [
        (["a", "b", "c", "d", "e"], 2, [["a", "b", "c"], ["d", "e"]]),
        (["a", "b"], 3, [["a"], ["b"], []]),
        ([], 2, [[], []]),
        (["a", "b", "c", "d"], 2, [["a", "b"], ["c", "d"]]),
    ],
)
def test_files_are_dealt_in_blocks(files: list[str], num: int, blocks: list[list[str]]) -> None:
    assert [worker(index, num).get_file_shard(files) for index in range(num)] == blocks


def test_a_heter_shard_is_for_heter_workers() -> None:
    with pytest.raises(ConfigError, match="use get_file_shard"):
        worker(0, 2).get_heter_file_shard(["a"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda u: u.all_reduce(1, "mean"), "mode is 'mean'; use one of sum, max, min"),
        (
            lambda u: u.all_reduce(1, "sum", "none"),
            "comm_world is 'none'; use one of worker, server, all",
        ),
        (
            lambda u: u.barrier("server"),
            "comm_world='server': servers take no part in collectives; use 'worker'",
        ),
        (
            lambda u: u.all_gather(1, "all"),
            "comm_world='all': servers take no part in collectives; use 'worker'",
        ),
        (lambda u: u.all_reduce("abc"), "give an array of numbers"),
        (lambda u: u.all_reduce(np.array([True])), "cannot take the sum of bool"),
        (lambda u: u.all_reduce(np.array([2**63], np.uint64)), "does not fit int64"),
        (lambda u: u.all_gather(object()), "cannot send a object"),
        (lambda u: u.all_gather({1: 2}), "cannot send a dict"),
        (lambda u: u.all_gather(np.array([object()])), "cannot send an array of object"),
        (lambda u: u.get_file_shard("a,b"), "files is 'a,b'; use a list"),
        (lambda u: u.print_on_rank("x", 1), "rank_id is 1, and there are 1 workers"),
    ],
)
def test_invalid_arguments_are_rejected(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call(UtilBase())


def test_a_sum_of_one_number_still_prints_as_a_number() -> None:
    total = UtilBase().all_reduce(np.array([1.5], "float32"))
    assert "%.2f" % (total / 2) == "0.75"
