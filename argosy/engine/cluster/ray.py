"""`fleetrun --on ray`: one supervising actor per node of a placement group; lost nodes are replaced."""

# SPDX-License-Identifier: Apache-2.0
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from argosy.engine.cluster import ray_cluster
from argosy.engine.cluster.engine import Engine, Outcome
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.ray_attempt import NotPlaced, RayAttempt, RayNode
from argosy.engine.cluster.ray_node import Item
from argosy.engine.cluster.ray_request import plan, request
from argosy.engine.errors import ConfigError
from argosy.engine.launch.console import logger

Report = Callable[[int, dict[str, Any]], None]


@dataclass
class RayJob:
    """A job on Ray, run by a thread of this process (the driver)."""

    job: ClusterJob
    connection: ray_cluster.RayConnection
    function: bytes | None = None
    on_report: Report | None = None
    result: bytes | None = None
    nodes: tuple[RayNode, ...] = ()
    outcome: Outcome | None = None
    _lines: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._asked = request(self.job, self.connection.is_local)
        self._thread = threading.Thread(target=self._run, name="ray-job", daemon=True)

    def start(self) -> None:
        """Begin; `lines` and `wait` follow the job."""
        self._thread.start()

    def lines(self) -> Iterator[str]:
        """The output of the launchers, until the job has ended."""
        while (line := self._lines.get()) is not None:
            yield line

    def wait(self) -> Outcome:
        """Wait for the end of the job."""
        self._thread.join()
        assert self.outcome is not None, "the thread sets it"
        return self.outcome

    def cancel(self) -> None:
        """End the job; returns when nothing of it is left."""
        self._cancelled.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.outcome = self._run_with_restarts()
        except Exception as e:  # the user gets it as the outcome, and the connection is closed
            logger.debug("the Ray job ended with an exception", exc_info=True)
            self.outcome = Outcome(1, f"{type(e).__name__}: {e}")
        finally:
            try:
                self.connection.close()
            finally:
                self._lines.put(None)

    def _run_with_restarts(self) -> Outcome:
        restarts, lost = 0, ""
        limit = self.job.config.max_restarts
        while True:
            attempt = RayAttempt(self.job, self._asked, self.function, self._deliver, self._cancelled)
            try:
                attempt.run()
            except NotPlaced as e:
                return Outcome(1, f"{lost}, and no other node replaces it: {e}" if lost else str(e))
            finally:
                self.nodes = tuple(attempt.nodes)
            is_requeued = self._is_requeued(attempt)
            if self._cancelled.is_set():
                code = self.job.config.requeued_with if is_requeued else 143
                return Outcome(code, "cancelled" + "; a checkpoint was saved" * is_requeued)
            if is_requeued:
                logger.warning("the job was preempted, and is started again from its checkpoint")
                continue
            if any(
                node.code == 0 for node in attempt.nodes
            ):  # only if the launchers of all nodes have succeeded
                return Outcome(0, f"all {self.job.nodes} nodes succeeded")
            lost = "; ".join(f"{node.name} was lost: {node.lost}" for node in attempt.nodes if node.lost)
            if not lost:
                code = max(node.code or 0 for node in attempt.nodes)
                return Outcome(code, "the report of the failed rank is above")
            if restarts == limit:
                return Outcome(1, f"{lost}; restarts: {restarts} of {limit} (--max_restarts)")
            restarts += 1
            logger.warning(
                "restart %d of %d on other nodes: %s; the script resumes from its newest checkpoint, if it writes any",
                *(restarts, limit, lost),
            )

    def _is_requeued(self, attempt: RayAttempt) -> bool:
        """True if the launchers have ended the job with a checkpoint, to be started again (--grace)."""
        config = self.job.config
        return config.grace_s is not None and any(n.code == config.requeued_with for n in attempt.nodes)

    def _deliver(self, item: Item) -> None:
        if item.kind == "line":
            self._lines.put(item.value)
        elif item.kind == "result":
            self.result = item.value
        elif self.on_report is not None:
            self.on_report(item.rank, item.value)


class Ray(Engine):
    """Ray: an existing cluster, or a local one for the time of the job."""

    name: ClassVar[str] = "ray"
    settings: ClassVar[tuple[str, ...]] = ("address", "placement", "cpus", "memory", "wait")

    def __init__(self) -> None:
        self._jobs: dict[str, RayJob] = {}

    def plan(self, job: ClusterJob) -> str:
        _check(job)
        is_local = job.settings.get("address") == "local"
        return plan(job, request(job, is_local))

    def submit(self, job: ClusterJob) -> str:
        _check(job)
        request(job, is_local=False)
        ray = ray_cluster.load_ray()
        running = RayJob(job, ray_cluster.connect(job))
        job_id = str(ray.get_runtime_context().get_job_id())
        self._jobs[job_id] = running
        running.start()
        return job_id

    def nodes(self, job_id: str) -> tuple[str, ...]:
        return tuple(node.info.address for node in self._job(job_id).nodes if node.info)

    def logs(self, job_id: str) -> Iterator[str]:
        return self._job(job_id).lines()

    def wait(self, job_id: str) -> Outcome:
        return self._job(job_id).wait()

    def cancel(self, job_id: str) -> None:
        self._job(job_id).cancel()

    def _job(self, job_id: str) -> RayJob:
        if job_id not in self._jobs:
            raise ConfigError(
                f"job {job_id} was not submitted by this process; a job on Ray ends with its driver"
            )
        return self._jobs[job_id]


def _check(job: ClusterJob) -> None:
    if job.arguments:
        raise ConfigError(
            f"--engine_args={' '.join(job.arguments)}: Ray has no command of its own; leave it out"
        )
