"""strategy.sharding between hosts: all-gathers that overlap with the next forward change no result.

Two ranks without shared memory are two hosts. One of them starts its all-gathers late, so that the other one would read
rows of the step before if it did not wait.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.collective import Group, world
from argosy.engine.errors import CollectiveError, PeerLostError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import scope_guard
from argosy.static import load_program_state
from tests.distributed.fleet.test_sharding import CASES, Training, batch, by_torch, close, equal
from tests.jobs.test_lab import a_lab
from tests.ranks import ForkServer

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from lab import setns

SMALL_BUCKETS = {"segment_broadcast_MB": 1e-6}
Values = list[tuple[str, Any]]


def start_gathers_late(seconds: float) -> None:
    """Let this rank start its all-gathers of parameters so much later."""
    start = Group.start_broadcast_coalesced

    def start_late(self: Group, tensors: Any, sources: Any, what: str = "") -> Any:
        time.sleep(seconds)
        return start(self, tensors, sources, what)

    Group.start_broadcast_coalesced = start_late  # type: ignore[method-assign]


class Reads:
    """A training whose variables are read in many ways, and what was read."""

    def __init__(self, overlaps: bool) -> None:
        self.training = Training(CASES["momentum"](), SMALL_BUCKETS)
        self.training.scope.exposed.clear()  # `Training` has read the initial values by `Scope.get`
        self.overlaps = overlaps
        self.values: Values = []
        self.second = self._second_program()

    def _second_program(self) -> Program:
        """Another program that trains two of the parameters, and reads others."""
        second, strategy = Program("second"), fleet.DistributedStrategy()
        strategy.sharding, strategy.sharding_configs = True, SMALL_BUCKETS
        with program_guard(second, Program()), names.guard():  # the learning rate is that of the first
            x = paddle.static.data("x", [None, 384], "float32")
            w, b = (paddle.static.create_parameter(s, "float32", name=n) for n, s in PARAMETERS.items())
            last = paddle.static.create_parameter([5, 4], "float32", name="fc_1.w_0")
            last.stop_gradient = True
            loss = (paddle.tanh(paddle.matmul(x, w) + b) @ last).square().mean()
            fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy).minimize(loss)
        return second

    def step(self, number: int, *fetches: str) -> None:
        self.values += [("fetch", value) for value in self.training.step(number, fetches=fetches)]
        assert len(world().gathers) == (3 if not fetches else 1) or self.training.scope.exposed
        if not self.overlaps:
            self.training.scope.values_of()
            assert len(world().gathers) == 0

    def read(self, name: str) -> None:
        variable = self.training.scope.find_var(name)
        assert variable is not None
        self.values.append((name, variable.get_tensor().numpy()))

    def run(self, directory: str) -> Values:
        training, exe, scope = self.training, self.training.exe, self.training.scope
        images, labels = batch(9)
        test = training.main.clone(for_test=True)
        with scope_guard(scope):
            self.step(0)
            self.step(1)
            self.step(2, "fc_0.w_0", "conv2d_0.w_0")
            self.read("fc_0.w_0")
            self.step(3)
            self.values += [("test", exe.run(test, {"x": images, "y": labels}, [training.loss.name])[0])]
            self.step(4)
            fleet.Checkpoint(f"{directory}/checkpoints").save(4, exe, training.main, scope=scope)
            self.step(5)
            for number in range(3):
                x = np.random.default_rng(number).standard_normal((2, 384)).astype("float32")
                exe.run(self.second, {"x": x})
                self.step(6 + number)
            exposed = scope.get("fc_0.w_0")
            self.step(9)
            self.values.append(("exposed", exposed.numpy().copy()))
            self.step(10)
            if fleet.worker_index() == 0:
                paddle.static.save(test, f"{directory}/params")
            fleet.barrier_worker()
            self.step(11)
            scope.find_var("fc_1.b_0").get_tensor().set(np.full(4, 0.5, "float32"))  # type: ignore[union-attr]
            self.step(12)
            self.values += list(training.parameters().items())
        return self.values


PARAMETERS = {"fc_0.w_0": [384, 5], "fc_0.b_0": [5]}


def reads_in_many_ways() -> None:
    fleet.init(is_collective=True)
    if fleet.worker_index() == 1:
        start_gathers_late(0.02)
    directory = os.environ["SAVED"]
    overlapped, waited = (Reads(overlaps).run(f"{directory}/{overlaps}") for overlaps in (True, False))
    assert len(overlapped) == len(waited)
    for (what, value), (_, expected) in zip(overlapped, waited, strict=True):
        np.testing.assert_array_equal(value, expected, err_msg=what)
    saved = [load_program_state(f"{directory}/{overlaps}/params") for overlaps in (True, False)]
    assert len(saved[0]) == 6
    equal(saved[0], saved[1], "files")
    training = Training(CASES["adam"](), SMALL_BUCKETS)
    training.scope.exposed.clear()
    close(training.run().parameters(), by_torch(training.initial, "adam"), "overlapped all-gathers")
    averaged = Training(CASES["adam"](), SMALL_BUCKETS, has_average=True)
    averaged.scope.exposed.clear()
    averaged.run()
    assert len(world().gathers) == 0, "the averages read the parameters in the step"
    close(averaged.parameters(), training.parameters(), "averages")


def ends_without_reading() -> None:
    """One rank exits after its last step, and the other one reads its parameters later."""
    fleet.init(is_collective=True)
    training = Training(CASES["sgd"](), SMALL_BUCKETS)
    training.scope.exposed.clear()
    if fleet.worker_index() == 1:
        start_gathers_late(0.05)
    training.run()
    assert len(world().gathers) > 0
    if fleet.worker_index() == 1:
        time.sleep(0.3)
        close(training.parameters(), by_torch(training.initial, "sgd"), "the other rank has exited")


def loses_a_rank() -> None:
    """Rank 1 is killed before it starts the all-gathers of its second step."""
    fleet.init(is_collective=True)
    training = Training(CASES["sgd"](), SMALL_BUCKETS)
    training.scope.exposed.clear()
    training.run(0, 1)
    training.scope.values_of()
    if fleet.worker_index() == 1:
        Group.start_broadcast_coalesced = lambda *_: os._exit(9)  # type: ignore[method-assign]
    training.run(1, 2)
    for _ in range(2):
        with pytest.raises(PeerLostError, match=r"broadcast of .* step 2.*lost the connection to rank 1"):
            training.scope.values_of()
    with pytest.raises(CollectiveError, match=r"lost the connection to rank 1"):
        training.run(2, 3)


def on_two_hosts() -> None:
    """On a rank of the fork server: move to a host of the lab."""
    rank, addresses = int(os.environ["PADDLE_TRAINER_ID"]), os.environ["ADDRESSES"].split(",")
    for name in [n for n in os.environ if n.startswith(("PADDLE_", "ARGOSY_STORE_FD", "LOCAL_"))]:
        del os.environ[name]
    setns(os.environ["NAMES"].split(",")[rank])
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": addresses[0], "MASTER_PORT": "6170"}
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    reads_in_many_ways()
    assert len(set(world().hosts())) == 2


def test_overlapped_all_gathers_change_no_value_that_anyone_reads(ranks: ForkServer, tmp_path: Path) -> None:
    ranks.check(2, reads_in_many_ways, SAVED=str(tmp_path), ARGOSY_SHM="0")


@pytest.mark.slow
def test_the_same_on_two_hosts(ranks: ForkServer, tmp_path: Path) -> None:
    with a_lab(rate=None) as lab:
        names, addresses = ",".join(lab.names), ",".join(lab.addresses)
        ranks.check(2, on_two_hosts, SAVED=str(tmp_path), NAMES=names, ADDRESSES=addresses)


def test_a_rank_that_exits_sends_its_shards_before(ranks: ForkServer) -> None:
    ranks.check(2, ends_without_reading, ARGOSY_SHM="0")


def test_a_rank_that_is_lost_is_reported_when_its_rows_are_read(ranks: ForkServer) -> None:
    ended = ranks.run(2, loses_a_rank, ARGOSY_SHM="0")
    assert [rank.code for rank in ended] == [0, 9], "\n".join(rank.said for rank in ended)
