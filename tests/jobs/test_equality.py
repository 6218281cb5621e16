"""N ranks with shards of a batch compute the same as one process with the whole batch."""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argosy.distributed import fleet
from tests.jobs.scripts import equality_resnet, equality_small
from tests.ranks import ForkServer

pytestmark = pytest.mark.slow

Arrays = dict[str, np.ndarray[Any, Any]]
FEW = ("momentum with decay", "gradient that is read again")
SMALL = {2: tuple(equality_small.CASES), 4: FEW}
"""How many ranks train which programs; four with sync_nccl_allreduce=False."""


# --- on the ranks -------------------------------------------------------------------------------------


def strategy(sync_all_reduce: bool, sync_batch_norm: bool = False) -> fleet.DistributedStrategy:
    chosen = fleet.DistributedStrategy()
    chosen.sync_nccl_allreduce, chosen.sync_batch_norm = sync_all_reduce, sync_batch_norm
    return chosen


def train_shared() -> None:
    """The small programs, and ResNet with sync_batch_norm: what one process can do too."""
    fleet.init(is_collective=True)
    rank_and_size = fleet.worker_index(), fleet.worker_num()
    fleet.init(is_collective=True, strategy=strategy(rank_and_size[1] == 2))
    trained = {
        case: equality_small.train(case, equality_small.with_fleet, *rank_and_size)
        for case in SMALL[rank_and_size[1]]
    }
    fleet.init(is_collective=True, strategy=strategy(rank_and_size[1] == 2, sync_batch_norm=True))
    trained["float64"] = equality_resnet.train("float64", fleet.distributed_optimizer, *rank_and_size)
    write(trained)


def train_resnets() -> None:
    """ResNet in single precision, with statistics of each rank by itself, and with DDP."""
    fleet.init(is_collective=True, strategy=strategy(True, sync_batch_norm=True))
    rank_and_size, wrap = (fleet.worker_index(), fleet.worker_num()), fleet.distributed_optimizer
    trained = {"float32": equality_resnet.train("float32", wrap, *rank_and_size)}
    fleet.init(is_collective=True, strategy=strategy(False))
    trained["by itself"] = equality_resnet.train("float64", wrap, *rank_and_size)
    store = Path(os.environ["EQUALITY_FOLDER"]) / "store"
    trained["DDP"] = equality_resnet.train_with_ddp("float64", *rank_and_size, store)
    write(trained)


def write(trained: dict[str, Arrays]) -> None:
    flat = {f"{case}: {what}": value for case, arrays in trained.items() for what, value in arrays.items()}
    np.savez(Path(os.environ["EQUALITY_FOLDER"]) / f"{fleet.worker_index()}.npz", **flat)


# --- in the test --------------------------------------------------------------------------------------


class Results:
    """The results of every rank."""

    def __init__(self, ranks: ForkServer, size: int, job: Callable[[], None], folder: Path) -> None:
        ends = ranks.run(size, job, 240.0, EQUALITY_FOLDER=str(folder))
        assert not any(end.code for end in ends), "\n".join(end.said for end in ends)
        self._files = [dict(np.load(folder / f"{rank}.npz")) for rank in range(size)]

    def each(self, case: str) -> list[Arrays]:
        """For every rank the values of this case by name."""
        head = f"{case}: "
        return [{k.removeprefix(head): v for k, v in f.items() if k.startswith(head)} for f in self._files]

    def together(self, case: str) -> Arrays:
        """The values of all ranks, which must be the same to the last bit; of the losses, the mean."""
        first, *others = self.each(case)
        for other in others:
            assert other.keys() == first.keys()
            for name in first.keys() - {"losses"}:
                np.testing.assert_array_equal(other[name], first[name], f"{case}: {name} differs")
        return first | {"losses": np.mean([trained["losses"] for trained in self.each(case)], 0)}


@cache
def alone(dtype: str) -> Arrays:
    """ResNet in one process with the whole batch, without fleet."""
    return equality_resnet.train(dtype, lambda optimizer: optimizer)


def distance(actual: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    """The distance, relative to the norm of `wanted`."""
    return float(np.linalg.norm(actual - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_that_share_a_batch_are_as_one_process(size: int, ranks: ForkServer, tmp_path: Path) -> None:
    """Also in what they begin with: every rank drew its own before rank 0's was broadcast."""
    results = Results(ranks, size, train_shared, tmp_path)
    for case in SMALL[size]:
        wanted, trained = equality_small.train(case, equality_small.plain), results.together(case)
        assert trained.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_allclose(trained[name], value, rtol=0, atol=1e-6, err_msg=f"{case}: {name}")
    wanted, trained = alone("float64"), results.together("float64")
    far = {name: off for name, v in wanted.items() if (off := distance(trained[name], v)) > 1e-9}
    assert not far


def test_two_resnets_are_as_near_as_rounding_allows_and_by_themselves_as_ddp(
    ranks: ForkServer, tmp_path: Path
) -> None:
    """In float32, after a step, rounding has moved some activation across ReLU's corner: one process that sees
    the same batch in another order ends as far away."""
    results = Results(ranks, 2, train_resnets, tmp_path)
    wanted, trained = alone("float32"), results.together("float32")
    assert trained["losses"][0] == pytest.approx(wanted["losses"][0], rel=1e-5)
    for name, value in wanted.items():
        if name.startswith("grad "):
            assert distance(trained[name], value) < 1e-4, name
        elif name.startswith("after ") and "velocity" not in name:
            np.testing.assert_allclose(trained[name], value, rtol=0, atol=1e-3, err_msg=name)
    for trained, wanted in zip(results.each("by itself"), results.each("DDP"), strict=True):
        for name, value in wanted.items():
            assert distance(trained[name].reshape(value.shape), value) < 1e-9, name
    first, second = (trained["after bn_conv1_mean"] for trained in results.each("by itself"))
    assert distance(first, second) > 0.1, "each rank has statistics of its own"
