"""Ranks that do not join, each for its reason: the others report which rank and why, and exit."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import torch

from argosy.engine import collective
from argosy.engine.collective import Group, World, rank_status
from tests.ranks import Ended, ForkServer, Job


def begin() -> tuple[World, Group, bool]:
    """Connected, three steps done, and whether this rank is the one that fails."""
    rank_status.MAX_DIRECT_RANKS = int(os.environ.get("MAX_DIRECT_RANKS", rank_status.MAX_DIRECT_RANKS))
    world = collective.connect()
    group = world.group("dp")
    for _ in range(3):
        group.all_reduce(torch.ones(4), what="w@GRAD")
        world.count_step()
    return world, group, str(world.rank) == os.environ.get("VICTIM")


def continue_training(group: Group) -> None:
    """The collective that the victim does not join; prints when it ended."""
    print("waits", flush=True)
    try:
        group.all_reduce(torch.ones(4), what="w@GRAD")
    finally:
        print(f"noticed at {time.monotonic()}", flush=True)


def stops() -> None:
    _, group, is_victim = begin()
    if is_victim:
        time.sleep(1.5)  # it has published its steps, and the others wait
        os.kill(os.getpid(), signal.SIGSTOP)
    continue_training(group)


def is_killed() -> None:
    _, group, is_victim = begin()
    if is_victim:
        time.sleep(1.5)  # the others have begun to wait, and have published so
        os.kill(os.getpid(), signal.SIGKILL)
    continue_training(group)


def raises() -> None:
    _, group, is_victim = begin()
    if is_victim:
        raise ValueError("a bad batch")
    continue_training(group)


def ends() -> None:
    world, group, is_victim = begin()
    if is_victim:
        return
    world.count_step()
    continue_training(group)


def leaves() -> None:
    _, group, is_victim = begin()
    if is_victim:
        sys.exit(3)
    continue_training(group)


def is_late() -> None:
    _, group, is_victim = begin()
    if is_victim:
        time.sleep(60)
    continue_training(group)


def joins_another_collective() -> None:
    world, group, is_victim = begin()
    world.group("util")
    if is_victim:
        world.group("util").barrier("before the evaluation")
    continue_training(group)


def stops_before_the_group() -> None:
    world, _, is_victim = begin()
    if is_victim:
        os.kill(os.getpid(), signal.SIGSTOP)
    world.group("util")


def busy_before_the_group() -> None:
    world, _, is_victim = begin()
    if is_victim:
        time.sleep(60)
    world.group("util")


def never_connects() -> None:
    if os.environ["PADDLE_TRAINER_ID"] == os.environ["VICTIM"]:
        time.sleep(60)
    collective.connect().group("util")


def with_victims(
    ranks: ForkServer,
    size: int,
    function: Callable[[], None],
    victims: tuple[int, ...] = (0, 1),
    **environ: str,
) -> list[dict[int, Ended]]:
    """Run a job for each victim, all at the same time; returns how the other ranks ended."""
    with ExitStack() as running:
        jobs: list[Job] = [
            running.enter_context(ranks.start(size, function, VICTIM=str(victim), **environ))
            for victim in victims
        ]
        ends = [
            {rank: job.end_of(rank) for rank in range(size) if rank != victim}
            for job, victim in zip(jobs, victims, strict=True)
        ]
    for others in ends:
        for end in others.values():
            assert end.code == 1, end
            noticed = end.said.partition("noticed at ")[2].split("\n")[0]
            # At most 3 s, to publish the outcome or to keep the store open; the rest is for a busy machine.
            assert not noticed or end.at - float(noticed) < 15, end
    return ends


def test_a_stopped_rank_is_reported_also_if_it_hosts_the_store(ranks: ForkServer) -> None:
    victim_0, victim_1 = with_victims(ranks, 2, stops, ARGOSY_HEARTBEAT_TIMEOUT_S="2")
    here = "CollectiveError: all_reduce of 'w@GRAD' (group 'dp', step 4): rank"
    assert f"{here} 0, which hosts the job's store, has not replied for " in victim_0[1].said
    assert f"{here} 1 has not joined and has sent no heartbeat for " in victim_1[0].said
    assert "(it had done 3 steps); it is stopped, or its host is unreachable" in victim_1[0].said
    assert "ARGOSY_HEARTBEAT_TIMEOUT_S gives it more time" in victim_1[0].said


def test_a_stopped_rank_is_reported_while_a_group_is_created(ranks: ForkServer) -> None:
    victim_0, victim_1 = with_victims(ranks, 2, stops_before_the_group, ARGOSY_HEARTBEAT_TIMEOUT_S="2")
    assert "group-util#1 (creating process group 'util')" in victim_0[1].said
    assert "rank 0, which hosts the job's store, has not replied for " in victim_0[1].said
    assert "rank 1 has not joined and has sent no heartbeat for " in victim_1[0].said


def test_a_killed_rank_is_reported_and_no_other(ranks: ForkServer) -> None:
    victim_0, victim_1 = with_victims(ranks, 3, is_killed)
    for rank in (1, 2):
        assert "PeerLostError: all_reduce of 'w@GRAD' (group 'dp', step 4): " in victim_0[rank].said
        assert "rank 0, which hosts the job's store, has exited; see its log" in victim_0[rank].said
    for rank in (0, 2):
        said = victim_1[rank].said
        assert "PeerLostError: all_reduce of 'w@GRAD' (group 'dp', step 4): " in said
        assert "lost the connection to rank 1 (" in said
        assert "it was killed, or its host is down; see its log" in said
        assert "rank 1 or" not in said
        assert "or rank 1" not in said


def test_the_exception_of_a_rank_is_reported_by_the_others(ranks: ForkServer) -> None:
    for victim, job in enumerate(with_victims(ranks, 2, raises)):
        cause = f"rank {victim} failed after 3 steps: ValueError: a bad batch"
        assert (
            f"PeerLostError: all_reduce of 'w@GRAD' (group 'dp', step 4): {cause}\n" in job[1 - victim].said
        )


def test_a_rank_that_exits_early_is_reported_with_both_steps(ranks: ForkServer) -> None:
    for victim, job in enumerate(with_victims(ranks, 2, ends)):
        said = job[1 - victim].said
        # Not a PeerLostError: that rank did not fail.
        assert "errors.CollectiveError: all_reduce of 'w@GRAD' (group 'dp', step 5): " in said
        assert f"rank {victim} exited without error after 3 steps, while this rank is in step 5: " in said
        assert (
            "it ran out of data, or this rank ran the program more often. Give every rank equally many batches"
            in said
        )


def test_the_exit_code_of_a_rank_is_reported_by_the_others(ranks: ForkServer) -> None:
    for victim, job in enumerate(with_victims(ranks, 2, leaves)):
        assert f"step 4): rank {victim} failed after 3 steps: SystemExit: 3\n" in job[1 - victim].said


def test_a_late_rank_is_reported_as_alive(ranks: ForkServer) -> None:
    for victim, job in enumerate(with_victims(ranks, 2, is_late, ARGOSY_COLLECTIVE_TIMEOUT_S="3")):
        said = job[1 - victim].said
        assert (
            f"CollectiveError: all_reduce of 'w@GRAD' (group 'dp', step 4): rank {victim} has not joined"
            in said
        )
        assert "it is alive and has done 3 steps" in said
        assert "ARGOSY_COLLECTIVE_TIMEOUT_S or fleetrun --timeout" in said


def test_ranks_in_different_collectives_detect_the_deadlock(ranks: ForkServer) -> None:
    first, second = ranks.run(2, joins_another_collective, VICTIM="1")
    assert (first.code, second.code) == (1, 1)
    both = first.said + second.said
    # The rank that polls first reports it; the other one then sees that this one has failed.
    assert "each waits for the other. All ranks must run the same steps" in both
    assert (
        "deadlock: rank 1 waits in util#1 barrier before the evaluation after 3 steps" in first.said
        or "deadlock: rank 0 waits in dp#4 all_reduce w@GRAD after 3 steps" in second.said
    )


def test_a_rank_that_does_not_join_a_new_group_is_reported(ranks: ForkServer) -> None:
    (busy,) = with_victims(ranks, 2, busy_before_the_group, (1,), ARGOSY_COLLECTIVE_TIMEOUT_S="3")
    assert "CollectiveError: group-util#1 (creating process group 'util'), with rank 1 (127" in busy[0].said
    assert "rank 1 has not joined after" in busy[0].said


def test_a_rank_that_never_connects_is_reported(ranks: ForkServer) -> None:
    (waiting,) = with_victims(ranks, 3, never_connects, (2,), ARGOSY_CONNECT_TIMEOUT_S="3")
    for rank in (0, 1):
        assert "rank 2 has not connected after" in waiting[rank].said or "rank 2" in waiting[rank].said
    assert any("check that its process was started, and see its log" in e.said for e in waiting.values())


@pytest.mark.slow
def test_the_reports_are_the_same_if_the_statuses_come_from_a_digest(ranks: ForkServer) -> None:
    digest = {"MAX_DIRECT_RANKS": "1"}
    for victim, job in zip((0, 2), with_victims(ranks, 3, raises, (0, 2), **digest), strict=True):
        assert f"rank {victim} failed after 3 steps: ValueError: a bad batch" in job[1].said
    (stopped,) = with_victims(ranks, 3, stops, (2,), ARGOSY_HEARTBEAT_TIMEOUT_S="2", **digest)
    assert all("rank 2 has not joined and has sent no heartbeat for " in end.said for end in stopped.values())
    (late,) = with_victims(ranks, 3, is_late, (2,), ARGOSY_COLLECTIVE_TIMEOUT_S="5", **digest)
    for end in late.values():
        assert "rank 2 has not joined after" in end.said or "rank 2 failed" in end.said or "lost" in end.said
    assert any("it is alive and has done 3 steps" in end.said for end in late.values())
    first, second = ranks.run(2, joins_another_collective, VICTIM="1", **digest)
    assert (first.code, second.code) == (1, 1)
    assert "each waits for the other. All ranks must run the same steps" in first.said + second.said
    # Without shared memory the other ranks see a closed connection, and rank 0 which heartbeat has stopped.
    (killed,) = with_victims(ranks, 3, is_killed, (2,), ARGOSY_SHM="0", **digest)
    assert all("lost the connection to rank 2 (" in end.said for end in killed.values())
