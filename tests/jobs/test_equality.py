"""N ranks that share a batch end where one process with the whole batch ends."""

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
from tests.ranks import Nursery

Arrays = dict[str, np.ndarray[Any, Any]]
FEW = ("momentum with decay", "gradient that is read again")
SMALL = {2: tuple(equality_small.CASES), 4: FEW}
"""How many ranks train which programs; four with sync_nccl_allreduce=False."""


# --- on the ranks -------------------------------------------------------------------------------------


def strategy(sync_all_reduce: bool, sync_batch_norm: bool = False) -> fleet.DistributedStrategy:
    made = fleet.DistributedStrategy()
    made.sync_nccl_allreduce, made.sync_batch_norm = sync_all_reduce, sync_batch_norm
    return made


def train_shared() -> None:
    """The small programs, and ResNet with sync_batch_norm: what one process can do too."""
    fleet.init(is_collective=True)
    place = fleet.worker_index(), fleet.worker_num()
    fleet.init(is_collective=True, strategy=strategy(place[1] == 2))
    found = {case: equality_small.train(case, equality_small.with_fleet, *place) for case in SMALL[place[1]]}
    fleet.init(is_collective=True, strategy=strategy(place[1] == 2, sync_batch_norm=True))
    found["float64"] = equality_resnet.train("float64", fleet.distributed_optimizer, *place)
    write(found)


def train_resnets() -> None:
    """ResNet in single precision, with statistics of each rank by itself, and with DDP."""
    fleet.init(is_collective=True, strategy=strategy(True, sync_batch_norm=True))
    place, wrap = (fleet.worker_index(), fleet.worker_num()), fleet.distributed_optimizer
    found = {"float32": equality_resnet.train("float32", wrap, *place)}
    fleet.init(is_collective=True, strategy=strategy(False))
    found["by itself"] = equality_resnet.train("float64", wrap, *place)
    meeting = Path(os.environ["EQUALITY_FOLDER"]) / "meeting"
    found["DDP"] = equality_resnet.train_with_ddp("float64", *place, meeting)
    write(found)


def write(found: dict[str, Arrays]) -> None:
    flat = {f"{case}: {what}": value for case, made in found.items() for what, value in made.items()}
    np.savez(Path(os.environ["EQUALITY_FOLDER"]) / f"{fleet.worker_index()}.npz", **flat)


# --- in the test --------------------------------------------------------------------------------------


class Results:
    """What every rank found."""

    def __init__(self, ranks: Nursery, size: int, job: Callable[[], None], folder: Path) -> None:
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
        return first | {"losses": np.mean([found["losses"] for found in self.each(case)], 0)}


@cache
def alone(dtype: str) -> Arrays:
    """ResNet in one process with the whole batch, without fleet."""
    return equality_resnet.train(dtype, lambda optimizer: optimizer)


def distance(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    """How far apart, as a part of the wanted one's norm."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_that_share_a_batch_are_as_one_process(size: int, ranks: Nursery, tmp_path: Path) -> None:
    """Also in what they begin with: every rank drew its own before rank 0's was broadcast."""
    results = Results(ranks, size, train_shared, tmp_path)
    for case in SMALL[size]:
        wanted, found = equality_small.train(case, equality_small.plain), results.together(case)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-6, err_msg=f"{case}: {name}")
    wanted, found = alone("float64"), results.together("float64")
    far = {name: off for name, v in wanted.items() if (off := distance(found[name], v)) > 1e-9}
    assert not far


def test_two_resnets_are_as_near_as_rounding_allows_and_by_themselves_as_ddp(
    ranks: Nursery, tmp_path: Path
) -> None:
    """In float32, after a step, rounding has moved some activation across ReLU's corner: one process that sees
    the same batch in another order ends as far away."""
    results = Results(ranks, 2, train_resnets, tmp_path)
    wanted, found = alone("float32"), results.together("float32")
    assert found["losses"][0] == pytest.approx(wanted["losses"][0], rel=1e-5)
    for name, value in wanted.items():
        if name.startswith("grad "):
            assert distance(found[name], value) < 1e-4, name
        elif name.startswith("after ") and "velocity" not in name:
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-3, err_msg=name)
    for found, wanted in zip(results.each("by itself"), results.each("DDP"), strict=True):
        for name, value in wanted.items():
            assert distance(found[name].reshape(value.shape), value) < 1e-9, name
    first, second = (found["after bn_conv1_mean"] for found in results.each("by itself"))
    assert distance(first, second) > 0.1, "each rank has statistics of its own"
