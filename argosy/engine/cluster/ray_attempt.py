"""One attempt to run a job on Ray: a placement group, one actor per node, supervision until all launchers have ended.

place ──▶ start ──▶ poll every actor ──▶ all launchers have ended
                         ├──▶ an actor died: the node is lost; the other launchers end by themselves
                         ├──▶ an actor is unreachable: lost, unless it replies before the others have ended
                         ├──▶ a node is draining: SIGTERM to the launchers, which save a checkpoint (--grace)
                         └──▶ cancelled: SIGTERM to the launchers; after a while, the actors are killed
"""

# SPDX-License-Identifier: Apache-2.0
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from argosy.engine import env
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.ray_cluster import draining_nodes, load_ray, reason_of, resources
from argosy.engine.cluster.ray_node import Item, NodeInfo, NodeSupervisor, NodeTask
from argosy.engine.cluster.ray_request import RayRequest
from argosy.engine.errors import ArgosyError
from argosy.engine.launch.console import logger
from argosy.engine.net import Endpoint

POLL_S = 1.0
RETRY_S = 0.5
"""Between two calls of an actor that Ray cannot reach."""
START_S = 120.0
"""How long an actor may take to start, on a node that has the resources."""
LOST_S = 10.0
"""After the loss of a node, how long the launchers of the others may take to end by themselves."""
SILENT_S = 30.0
"""A node whose actor has not replied for so long is lost if other nodes have ended; it replies every second."""
STOP_S = 15.0
"""How long launchers may take to end after SIGTERM, besides --grace."""
DRAIN_S = 1.0
"""How often Ray is asked whether one of the nodes is about to be removed."""
_OF_RAY = ("OMP_NUM_THREADS",)
"""Variables that Ray sets for an actor, and that would change the ranks."""
_PASSED_ON = ("ARGOSY_", "FLAGS_", "OMP_NUM_THREADS")
"""Variables of the driver that every node gets, by prefix."""


class NotPlaced(ArgosyError):
    """The cluster does not have the resources that the job asks for."""


@dataclass
class RayNode:
    """One node of the attempt, as the driver sees it."""

    rank: int
    actor: Any
    info: NodeInfo | None = None
    received: int = 0
    code: int | None = None
    """The launcher's exit code, once it has ended."""
    lost: str | None = None
    """Why the node was lost."""
    retry_at: float = 0.0
    unreachable: str | None = None
    replied_at: float = field(default_factory=time.monotonic)

    @property
    def has_ended(self) -> bool:
        return self.code is not None or self.lost is not None

    @property
    def name(self) -> str:
        where = f" ({self.info.hostname}, {self.info.address})" if self.info else ""
        return f"node {self.rank}{where}"


@dataclass
class RayAttempt:
    """Runs the launchers of all nodes once; `nodes` has the results."""

    job: ClusterJob
    asked: RayRequest
    function: bytes | None
    deliver: Callable[[Item], None]
    cancelled: threading.Event
    nodes: list[RayNode] = field(default_factory=list)
    stop_at: float | None = None
    """When the launchers were sent SIGTERM."""
    lost_at: float | None = None
    drain_checked_at: float = 0.0
    is_preempted: bool = False
    """True once one of its nodes was seen to be draining."""

    def run(self) -> None:
        """Block until all launchers have ended, and everything on the cluster is removed.

        Raises NotPlaced if the cluster does not have the resources in time.
        """
        ray = load_ray()
        groups = import_module("ray.util.placement_group")
        group = groups.placement_group([self.asked.bundle] * self.asked.nodes, strategy=self.asked.placement)
        try:
            self._place(ray, group)
            if not self.cancelled.is_set():
                self._create_actors(ray, group)
                self._start_launchers(ray)
                self._supervise(ray)
        finally:
            for node in self.nodes:
                ray.kill(node.actor, no_restart=True)
            groups.remove_placement_group(group)

    def _place(self, ray: Any, group: Any) -> None:
        until = time.monotonic() + self.asked.wait_s
        while not group.wait(timeout_seconds=POLL_S) and not self.cancelled.is_set():
            if time.monotonic() > until:
                raise NotPlaced(
                    f"{self.asked.text} did not fit the Ray cluster for {self.asked.wait_s:g} s; "
                    f"it has {resources(ray)}"
                )

    def _create_actors(self, ray: Any, group: Any) -> None:
        strategies = import_module("ray.util.scheduling_strategies")
        supervisor = ray.remote(NodeSupervisor)
        token = self.job.environ["ARGOSY_JOB_TOKEN"]
        for rank in range(self.asked.nodes):
            actor = supervisor.options(
                num_cpus=self.asked.cpus,
                num_gpus=self.asked.gpus,
                memory=self.asked.memory,
                max_concurrency=8,
                scheduling_strategy=strategies.PlacementGroupSchedulingStrategy(
                    placement_group=group, placement_group_bundle_index=rank
                ),
            ).remote(token, self.function)
            self.nodes.append(RayNode(rank, actor))

    def _start_launchers(self, ray: Any) -> None:
        """Start the launcher of every node; none if one of the actors does not reply."""
        self._collect(ray, [node.actor.info.remote() for node in self.nodes], self._note_info)
        first = self.nodes[0].info
        if first is None or any(node.lost for node in self.nodes):
            for node in self.nodes:
                node.code = None if node.lost else 128 + signal.SIGTERM
            return
        master = str(Endpoint(first.address, first.free_port))
        started = [node.actor.start.remote(self._task(node.rank, master)) for node in self.nodes]
        self._collect(ray, started, self._note_start)

    def _collect(self, ray: Any, replies: list[Any], note: Callable[[RayNode, Any], None]) -> None:
        """Pass the replies of all actors to `note`; a node whose actor does not reply in time is lost."""
        waiting = dict(zip(replies, self.nodes, strict=True))
        until = time.monotonic() + START_S
        while waiting and not self.cancelled.is_set() and time.monotonic() < until:
            ready, _ = ray.wait(list(waiting), timeout=POLL_S)
            for reply in ready:
                node = waiting.pop(reply)
                self._call(ray, node, reply, note)
                if node.unreachable and not node.lost:
                    self._lose(node, node.unreachable)
        for node in waiting.values():
            self._lose(node, f"its actor did not reply within {START_S:g} s")

    @staticmethod
    def _note_info(node: RayNode, info: NodeInfo) -> None:
        node.info = info

    def _note_start(self, node: RayNode, reason: str | None) -> None:
        if reason is not None:
            self.deliver(Item("line", f"error: node {node.rank}: {reason}"))
            node.code = 2
            self.lost_at = time.monotonic() - LOST_S  # the others would wait for it

    def _task(self, rank: int, master: str) -> NodeTask:
        words = self.job.node_command(rank, master)
        if words[0] == sys.executable:
            words[0] = ""  # Ray's own Python on the node, whose path may differ
        passed_on = {n: v for n, v in env.variables().items() if n.startswith(_PASSED_ON)}
        return NodeTask(
            command=tuple(words),
            environ={**passed_on, **self.job.environ},
            remove=_OF_RAY,
            directory=self.job.directory,
            setup=self.job.setup,
        )

    def _supervise(self, ray: Any) -> None:
        polls: dict[Any, RayNode] = {}
        while running := [node for node in self.nodes if not node.has_ended]:
            now = time.monotonic()
            waiting = {node.rank for node in polls.values()}
            for node in running:
                if node.rank not in waiting and node.retry_at <= now:
                    polls[node.actor.poll.remote(node.received, POLL_S)] = node
            if polls:
                ready, _ = ray.wait(list(polls), timeout=POLL_S)
                for reply in ready:
                    self._call(ray, polls.pop(reply), reply, self._note_reply)
            else:
                time.sleep(RETRY_S)
            self._tick(ray)

    def _note_reply(self, node: RayNode, reply: tuple[list[Item], int | None]) -> None:
        items, code = reply
        node.received += len(items)
        node.unreachable, node.replied_at = None, time.monotonic()
        for item in items:
            self.deliver(item)
        if not items:  # all output has arrived
            node.code = code

    def _call(self, ray: Any, node: RayNode, reference: Any, note: Callable[[RayNode, Any], None]) -> None:
        """Pass the reply of an actor to `note`, or mark its node as unreachable or lost."""
        try:
            note(node, ray.get(reference))
        except ray.exceptions.ActorUnavailableError as e:
            if node.unreachable is None:
                logger.warning("%s is unreachable: %s", node.name, reason_of(e))
            node.unreachable = reason_of(e)
            node.retry_at = time.monotonic() + RETRY_S
        except ray.exceptions.RayActorError as e:
            self._lose(node, reason_of(e))

    def _lose(self, node: RayNode, reason: str) -> None:
        node.lost = reason
        self.lost_at = self.lost_at or time.monotonic()
        if not self.cancelled.is_set():
            logger.error("%s was lost: %s", node.name, reason)

    def _tick(self, ray: Any) -> None:
        now = time.monotonic()
        running = [node for node in self.nodes if not node.has_ended]
        if len(running) < len(self.nodes):  # the others have ended: so has this one, or it is lost
            for node in running:
                if node.unreachable or now > node.replied_at + SILENT_S:
                    self._lose(node, node.unreachable or f"its actor did not reply for {SILENT_S:g} s")
        is_late = self.lost_at is not None and now > self.lost_at + LOST_S
        if self.stop_at is None and (self.cancelled.is_set() or is_late):
            self._stop(running)
        limit_s = STOP_S + (self.job.config.grace_s or 0.0)
        if self.stop_at is not None and now > self.stop_at + limit_s:
            for node in running:
                ray.kill(node.actor, no_restart=True)
                self._lose(node, f"it did not end within {limit_s:g} s of SIGTERM")
        if self.stop_at is None and now > self.drain_checked_at + DRAIN_S:
            self.drain_checked_at = now
            self._check_draining(running)

    def _check_draining(self, running: list[RayNode]) -> None:
        """Preempt the job, once, if Ray is about to remove one of its nodes."""
        ids = draining_nodes()
        leaving = [node for node in running if node.info and node.info.ray_node in ids]
        if not leaving or self.is_preempted:
            return
        self.is_preempted = True
        names = ", ".join(node.name for node in leaving)
        if self.job.config.grace_s is None:
            logger.warning(
                "Ray is about to remove %s; with --grace=S the job would save a checkpoint and move", names
            )
            return
        logger.warning("Ray is about to remove %s: the job saves a checkpoint, and is started again", names)
        leaving[0].actor.signal.remote(int(signal.SIGTERM))  # its ranks stop those of the other nodes

    def _stop(self, running: list[RayNode]) -> None:
        self.stop_at = time.monotonic()
        for node in running:
            node.actor.signal.remote(int(signal.SIGTERM))
