"""Ranks that do not come, each for its reason: the others name it, say why, and end."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import torch

from argosy.engine import collective
from argosy.engine.collective import Group, World
from tests.ranks import Ended, Job, Nursery


def begin() -> tuple[World, Group, bool]:
    """Connected, three steps done, and whether this rank is the one that fails."""
    world = collective.connect()
    group = world.group("dp")
    for _ in range(3):
        group.all_reduce(torch.ones(4), what="w@GRAD")
        world.count_step()
    return world, group, str(world.rank) == os.environ.get("VICTIM")


def go_on(group: Group) -> None:
    """The collective that the victim does not join; when it ends is noted."""
    print("waits", flush=True)
    try:
        group.all_reduce(torch.ones(4), what="w@GRAD")
    finally:
        print(f"noticed at {time.monotonic()}", flush=True)


def stops() -> None:
    _, group, is_victim = begin()
    if is_victim:
        time.sleep(1.5)  # it has told of its steps, and the others wait
        os.kill(os.getpid(), signal.SIGSTOP)
    go_on(group)


def is_killed() -> None:
    _, group, is_victim = begin()
    if is_victim:
        time.sleep(1.5)  # the others have begun to wait, and know that each of them has
        os.kill(os.getpid(), signal.SIGKILL)
    go_on(group)


def raises() -> None:
    _, group, is_victim = begin()
    if is_victim:
        raise ValueError("a bad batch")
    go_on(group)


def ends() -> None:
    world, group, is_victim = begin()
    if is_victim:
        return
    world.count_step()
    go_on(group)


def leaves() -> None:
    _, group, is_victim = begin()
    if is_victim:
        sys.exit(3)
    go_on(group)


def is_late() -> None:
    _, group, is_victim = begin()
    if is_victim:
        time.sleep(60)
    go_on(group)


def goes_elsewhere() -> None:
    world, group, is_victim = begin()
    world.group("util")
    if is_victim:
        world.group("util").barrier("before the evaluation")
    go_on(group)


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
    ranks: Nursery, size: int, function: Callable[[], None], victims: tuple[int, ...] = (0, 1), **environ: str
) -> list[dict[int, Ended]]:
    """Run a job for each victim, all at the same time; gives how the other ranks ended."""
    with ExitStack() as running:
        jobs: list[Job] = [
            running.enter_context(ranks.start(size, function, VICTIM=str(victim), **environ))
            for victim in victims
        ]
        found = [
            {rank: job.end_of(rank) for rank in range(size) if rank != victim}
            for job, victim in zip(jobs, victims, strict=True)
        ]
    for job in found:
        for end in job.values():
            assert end.code == 1, end
            noticed = end.said.partition("noticed at ")[2].split("\n")[0]
            # At most 3 s, to tell the others or to keep the store for them; the rest is for a busy machine.
            assert not noticed or end.at - float(noticed) < 15, end
    return found


def test_a_stopped_rank_is_named_also_if_it_holds_the_store(ranks: Nursery) -> None:
    zero, one = with_victims(ranks, 2, stops, ARGOSY_SILENT_S="2")
    here = "CollectiveError: all_reduce of 'w@GRAD' (group 'dp', step 4): rank"
    assert f"{here} 0, which holds the job's store, gives no sign of life since " in zero[1].said
    assert f"{here} 1 has not joined and gives no sign of life since " in one[0].said
    assert "(it had done 3 steps); it is stopped, or its host cannot be reached" in one[0].said
    assert "ARGOSY_SILENT_S gives it more time" in one[0].said


def test_a_stopped_rank_is_named_while_a_group_is_made(ranks: Nursery) -> None:
    zero, one = with_victims(ranks, 2, stops_before_the_group, ARGOSY_SILENT_S="2")
    assert "group-util#1 (the first exchange of all ranks in group 'util')" in zero[1].said
    assert "rank 0, which holds the job's store, gives no sign of life" in zero[1].said
    assert "rank 1 has not joined and gives no sign of life" in one[0].said


def test_a_killed_rank_is_named_and_no_other(ranks: Nursery) -> None:
    zero, one = with_victims(ranks, 3, is_killed)
    for rank in (1, 2):
        assert "PeerLostError: all_reduce of 'w@GRAD' (group 'dp', step 4): " in zero[rank].said
        assert "rank 0, which holds the job's store, is gone; see its log" in zero[rank].said
    for rank in (0, 2):
        said = one[rank].said
        assert "PeerLostError: all_reduce of 'w@GRAD' (group 'dp', step 4): " in said
        assert "the connection to rank 1 broke (" in said
        assert "it was killed, or its host is gone; see its log" in said
        assert "rank 1 or" not in said
        assert "or rank 1" not in said


def test_the_exception_of_a_rank_is_told_to_the_others(ranks: Nursery) -> None:
    for victim, job in enumerate(with_victims(ranks, 2, raises)):
        cause = f"rank {victim} failed after 3 steps: ValueError: a bad batch"
        assert (
            f"PeerLostError: all_reduce of 'w@GRAD' (group 'dp', step 4): {cause}\n" in job[1 - victim].said
        )


def test_a_rank_that_ends_early_is_named_with_both_steps(ranks: Nursery) -> None:
    for victim, job in enumerate(with_victims(ranks, 2, ends)):
        said = job[1 - victim].said
        # No PeerLostError: nothing failed over there.
        assert "errors.CollectiveError: all_reduce of 'w@GRAD' (group 'dp', step 5): " in said
        assert f"rank {victim} ended without error after 3 steps, while this rank is in step 5: " in said
        assert (
            "it ran out of data, or this rank ran the program more often. Give every rank equally many batches"
            in said
        )


def test_the_exit_code_of_a_rank_is_told_to_the_others(ranks: Nursery) -> None:
    for victim, job in enumerate(with_victims(ranks, 2, leaves)):
        assert f"step 4): rank {victim} failed after 3 steps: SystemExit: 3\n" in job[1 - victim].said


def test_a_late_rank_is_named_and_said_to_be_alive(ranks: Nursery) -> None:
    for victim, job in enumerate(with_victims(ranks, 2, is_late, ARGOSY_COLLECTIVE_TIMEOUT_S="3")):
        said = job[1 - victim].said
        assert (
            f"CollectiveError: all_reduce of 'w@GRAD' (group 'dp', step 4): rank {victim} has not joined"
            in said
        )
        assert "it is alive and has done 3 steps" in said
        assert "ARGOSY_COLLECTIVE_TIMEOUT_S or fleetrun --timeout" in said


def test_ranks_in_different_collectives_know_that_neither_goes_on(ranks: Nursery) -> None:
    first, second = ranks.run(2, goes_elsewhere, VICTIM="1")
    assert (first.code, second.code) == (1, 1)
    both = first.said + second.said
    # Whoever looks first says it; the other then learns that this one has failed.
    assert "each waits for the other. All ranks must run the same steps" in both
    assert (
        "rank 1 will not join, it waits in util#1 barrier before the evaluation after 3 steps" in first.said
        or "rank 0 will not join, it waits in dp#4 all_reduce w@GRAD after 3 steps" in second.said
    )


def test_a_rank_that_does_not_come_to_a_group_is_named(ranks: Nursery) -> None:
    (busy,) = with_victims(ranks, 2, busy_before_the_group, (1,), ARGOSY_COLLECTIVE_TIMEOUT_S="3")
    assert (
        "CollectiveError: group-util#1 (the first exchange of all ranks in group 'util'), with rank 1 (127"
        in busy[0].said
    )
    assert "rank 1 has not joined after" in busy[0].said


def test_a_rank_that_never_connects_is_named(ranks: Nursery) -> None:
    (absent,) = with_victims(ranks, 3, never_connects, (2,), ARGOSY_CONNECT_TIMEOUT_S="3")
    for rank in (0, 1):
        assert "rank 2 has not connected after" in absent[rank].said or "rank 2" in absent[rank].said
    assert any("check that its process was started, and see its log" in e.said for e in absent.values())
