"""The world of a process: connected once, a single rank without a launcher, disconnected with an outcome."""

# SPDX-License-Identifier: Apache-2.0
import gc
import os
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
import torch

from argosy import static
from argosy.distributed import fleet
from argosy.engine import collective
from argosy.engine.collective import Identity
from argosy.engine.errors import CollectiveError, ConfigError
from argosy.engine.ir import names
from argosy.optimizer import SGD
from tests.ranks import ForkServer


def one_world() -> None:
    world = collective.connect()
    assert collective.is_connected()
    assert collective.connect() is world
    assert collective.world() is world
    assert (world.rank, world.size) == (int(os.environ["PADDLE_TRAINER_ID"]), 3)
    with pytest.raises(ConfigError, match=f"this process is rank {world.rank} of 3 already"):
        collective.connect(Identity(rank=1, size=2))
    assert world.step == 0
    world.count_step()
    assert world.step == 1


def an_all_gather() -> None:
    world = collective.connect()
    time.sleep(0.1 * world.rank)
    assert world.all_gather_object("values#1 of a test", f"of rank {world.rank}") == [
        "of rank 0",
        "of rank 1",
        "of rank 2",
    ]
    assert world.all_gather_object("values#2 of a test") == [""] * 3
    assert world.monitor.local.waiting == ""


def a_long_all_gather() -> None:
    world = collective.connect()
    if world.rank == 2:
        time.sleep(4)  # longer than the others need to be sure of anything
    world.all_gather_object("values#1")
    world.group("dp").all_reduce(torch.ones(1))


def leaving() -> None:
    world = collective.connect()
    world.group("dp").barrier()
    if world.rank == 1:
        collective.disconnect()
        assert not collective.is_connected()
        assert collective.world().size == 1
        return
    until = time.monotonic() + 10
    while not world.monitor.poll()[1].outcome:
        assert time.monotonic() < until
    assert world.monitor.statuses[1].outcome == "done"


def no_threads_in_the_way() -> None:
    world = collective.connect()
    world.group("dp").barrier()
    assert [t.name for t in threading.enumerate() if not t.daemon] == ["MainThread"]


def test_a_process_has_one_world_and_one_rank(ranks: ForkServer) -> None:
    ranks.check(3, one_world)


def test_an_all_gather_returns_the_values_of_all_ranks(ranks: ForkServer) -> None:
    ranks.check(3, an_all_gather)


def test_ranks_that_wait_for_a_late_one_do_not_give_up_on_each_other(ranks: ForkServer) -> None:
    ranks.check(3, a_long_all_gather)


def test_a_rank_that_disconnects_publishes_it(ranks: ForkServer) -> None:
    ranks.check(2, leaving)


def test_only_the_main_thread_keeps_a_rank_alive(ranks: ForkServer) -> None:
    ranks.check(2, no_threads_in_the_way)


def test_without_others_the_world_is_of_one_rank() -> None:
    world = collective.world()
    assert not collective.is_connected()
    assert (world.rank, world.size, world.store) == (0, 1, None)
    assert world.name_of(0) == "rank 0"
    collective.compare_schedules(world, ["all_reduce dp w@GRAD"])


def test_a_job_of_one_rank_opens_no_store() -> None:
    try:
        world = collective.connect(Identity())
        assert collective.is_connected()
        assert world.store is None
        assert collective.connect(Identity()) is world
    finally:
        collective.disconnect()
    assert not collective.is_connected()


@pytest.mark.parametrize("value", ["0", "-1", "soon", "inf"])
def test_invalid_timeouts_are_rejected(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ARGOSY_CONNECT_TIMEOUT_S", value)
    with pytest.raises(ConfigError, match=f"ARGOSY_CONNECT_TIMEOUT_S='{value}' is not a time in seconds"):
        collective.connect(Identity(rank=1, size=2))


def continues_after_a_step_that_failed_halfway() -> None:
    world = collective.connect()
    group = world.group("dp")
    before = world.num_started()
    group.all_reduce(torch.ones(1))
    world.note_failed_step(before, ValueError("boom"))
    with pytest.raises(CollectiveError, match="a step of this rank failed halfway .ValueError: boom."):
        group.all_reduce(torch.ones(1), what="w@GRAD")


def forks_a_child_that_ends() -> None:
    world = collective.connect()
    group = world.group("dp")
    child = os.fork()
    if child == 0:
        sys.exit(0)  # with all that Python does at exit
    os.waitpid(child, 0)
    time.sleep(1.5)
    assert group.all_reduce(torch.ones(1)).item() == 2


def connects_again() -> None:
    collective.connect().group("util").barrier()
    collective.disconnect()
    with pytest.raises(ConfigError, match="has disconnected from its job and cannot rejoin"):
        collective.connect()


def test_after_a_step_that_failed_halfway_no_collective_starts(ranks: ForkServer) -> None:
    ranks.check(2, continues_after_a_step_that_failed_halfway)


def test_the_end_of_a_forked_child_is_not_that_of_its_rank(ranks: ForkServer) -> None:
    ranks.check(2, forks_a_child_that_ends)


def test_a_process_connects_once(ranks: ForkServer) -> None:
    ranks.check(2, connects_again)


# --- flat buffers -------------------------------------------------------------------------------------


def train_a_step(outputs: int) -> None:
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with static.program_guard(main, startup), names.guard(), static.scope_guard(scope):
        loss = static.nn.fc(static.data("x", [None, 64]), outputs).mean()
        fleet.distributed_optimizer(SGD(0.1)).minimize(loss)
        exe = static.Executor()
        exe.run(startup)
        exe.run(main, feed={"x": torch.ones(2, 64)})


def shared_segments() -> int:
    """How many segments of shared memory this process has mapped."""
    return Path("/proc/self/maps").read_text().count("argosy-shm")


def many_programs() -> None:
    """Of all but the last program, which fleet knows, nothing stays; also if the next one looks the same."""
    fleet.init(is_collective=True)
    counts = []
    for outputs in (4096, 2048, 1024, 1024, 512):
        train_a_step(outputs)
        gc.collect()
        counts.append(shared_segments())
    assert counts == [counts[0]] * len(counts), counts


def test_the_buffers_of_a_program_are_freed_with_it(ranks: ForkServer) -> None:
    ranks.check(2, many_programs)


def test_a_buffer_belongs_to_the_program_that_asked_for_it() -> None:
    class Owner:
        pass

    world = collective.world()
    first, second = Owner(), Owner()
    with world.buffers.owned_by(first):
        buffer = world.flat_buffer("test", 8, torch.float32, "dp")
        assert world.flat_buffer("test", 8, torch.float32, "dp") is buffer
        with world.buffers.owned_by(second):
            assert world.flat_buffer("test", 8, torch.float32, "dp") is not buffer
        assert world.flat_buffer("test", 8, torch.float32, "dp") is buffer
    freed = weakref.ref(buffer)
    del first, buffer
    gc.collect()
    assert freed() is None
