"""The engine ray: restarts, preemption and the outcome of a job, from the results of its attempts."""

# SPDX-License-Identifier: Apache-2.0
import sys
from typing import Any

import pytest

from argosy.engine.cluster import ray as engine_ray
from argosy.engine.cluster import ray_cluster
from argosy.engine.cluster.engine import Outcome
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.ray import Ray, RayJob
from argosy.engine.cluster.ray_attempt import NotPlaced, RayAttempt, RayNode
from argosy.engine.cluster.ray_cluster import RayConnection
from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration

LOST = "its node has died"


def job(**options: Any) -> ClusterJob:
    return ClusterJob(Configuration("train.py", nodes=2, **options), "train", python="python", directory="/")


def outcome(monkeypatch: pytest.MonkeyPatch, attempts: list[Any], **options: Any) -> tuple[Outcome, int]:
    """How a job ends whose attempts end with these codes, or reasons of lost nodes, of each node; attempts left."""

    def run(attempt: RayAttempt) -> None:
        results = attempts.pop(0)
        if isinstance(results, Exception):
            raise results
        for rank, result in enumerate(results):
            is_lost = isinstance(result, str)
            attempt.nodes.append(
                RayNode(rank, None, code=None if is_lost else result, lost=result if is_lost else None)
            )

    monkeypatch.setattr(RayAttempt, "run", run)
    running = RayJob(job(**options), RayConnection(is_local=False, close=lambda: None))
    running.start()
    assert list(running.lines()) == []
    return running.wait(), len(attempts)


def test_a_lost_node_is_replaced_within_the_limit_of_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(monkeypatch, [[143, LOST], [0, 0]], max_restarts=1) == (
        Outcome(0, "all 2 nodes succeeded"),
        0,
    )
    ended, left = outcome(monkeypatch, [[143, LOST], [LOST, 1], [0, 0]], max_restarts=1)
    assert ended == Outcome(1, f"node 0 was lost: {LOST}; restarts: 1 of 1 (--max_restarts)")
    assert left == 1
    ended, _ = outcome(monkeypatch, [[1, LOST]])
    assert ended == Outcome(1, f"node 1 was lost: {LOST}; restarts: 0 of 0 (--max_restarts)")


def test_a_lost_node_that_cannot_be_replaced_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, _ = outcome(monkeypatch, [[143, LOST], NotPlaced("no room")], max_restarts=3)
    assert ended == Outcome(1, f"node 1 was lost: {LOST}, and no other node replaces it: no room")
    ended, _ = outcome(monkeypatch, [NotPlaced("no room")], max_restarts=3)
    assert ended == Outcome(1, "no room")


def test_a_failed_rank_is_not_restarted_by_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, left = outcome(monkeypatch, [[1, 1], [0, 0]], max_restarts=3)
    assert (ended.code, left) == (1, 1), "the launchers have restarted it, as often as they may"


def test_a_preempted_job_is_started_again_without_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(monkeypatch, [[75, 75], [75, LOST], [0, 0]], grace_s=5.0)[0].code == 0
    assert outcome(monkeypatch, [[75, 75], [0, 0]])[0].code == 75, "without --grace it is an ordinary failure"


def test_an_exception_of_ray_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, _ = outcome(monkeypatch, [OSError("the head node is gone")])
    assert ended == Outcome(1, "OSError: the head node is gone")


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"install torch first, then: pip install 'argosy\[ray\]'"):
        Ray().submit(job())


def test_what_the_engine_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "load_ray", lambda: None)
    with pytest.raises(ConfigError, match="Ray has no command of its own"):
        engine_ray.Ray().plan(ClusterJob(job().config, "train", arguments=("--exclusive",)))
    with pytest.raises(ConfigError, match="was not submitted by this process"):
        Ray().wait("01000000")
    with pytest.raises(ConfigError, match="client protocol is not supported"):
        ray_cluster.connect(ClusterJob(job().config, "train", {"address": "ray://host:10001"}))
