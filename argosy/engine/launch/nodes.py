"""The launchers of a job's nodes: they find each other through node 0, agree on a plan, and end together.

    node 1 ───offer──▶ node 0     address, free ports          when all have joined: ──plan──▶ every node
    node 1 ───result─▶ node 0     done, failed or signalled    when the cause is known, or all are done: ──verdict──▶
    node 1 ◀──beat───▶ node 0     every second; a lost node fails the job

An attempt is one round of offers, a plan, results and a verdict; a restart is the next round over the same connections.
Each group puts plans and verdicts into the launcher's queue of events, beside exits and signals.
"""

# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from typing import Any

from argosy.engine import open_files
from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.console import logger
from argosy.engine.launch.node_channel import LoopThread, Peer, Rejected
from argosy.engine.launch.node_messages import MAX_BYTES, Joined, Offer, Plan, Result, Verdict
from argosy.engine.launch.processes import Events
from argosy.engine.launch.record_forwarding import FORWARDED, Message, RecordFiles
from argosy.engine.net import Endpoint, is_loopback

JOIN_S = 300.0
"""How long nodes wait for each other at the start, unless --join_timeout is given."""
_REMIND_S = 10.0
"""While waiting for nodes: how often their numbers are logged."""
_COLLECT_S = 0.5
"""After a failure: how long to wait for an earlier one of another node."""
_COLLECT_CAUSE_S = 3.0
"""Replaces _COLLECT_S while all failed nodes only lost processes of other nodes."""
_PREEMPTED_S = 10.0
"""After a node was preempted and has saved its part of a checkpoint: how long the others may take."""
_END_S = 15.0
"""How long node 0 waits for the others to end."""
_LAST_RECORDS_S = 5.0
"""How long it waits for their last records before it writes the report."""
_RANK_VARIABLES = ("SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX")


def node_rank(config: Configuration, environ: Mapping[str, str]) -> int:
    """--node_rank, else the number that Slurm, MPI or Kubernetes gave this task; raises if there is none."""
    if config.node_rank is not None:
        return config.node_rank
    assert config.nodes is not None, "the caller checks"
    for name in _RANK_VARIABLES:
        if (text := environ.get(name, "")).isdecimal():
            if int(text) >= config.nodes:
                raise ConfigError(
                    f"{name}={text}, but the job has --nodes={config.nodes}; start one launcher per node"
                )
            return int(text)
    raise ConfigError(
        f"--nodes={config.nodes} without --node_rank, and none of {', '.join(_RANK_VARIABLES)} is set; "
        "add --node_rank=I, a different one on each node"
    )


def master(config: Configuration, environ: Mapping[str, str]) -> Endpoint:
    """--master; raises if it is missing, or may be reached by other hosts and there is no token."""
    if config.master is None:
        raise ConfigError(
            f"--nodes={config.nodes} without --master; add --master=HOST:PORT, an address of node 0 and a free port"
        )
    endpoint = Endpoint.parse(config.master, "--master")
    if not environ.get("ARGOSY_JOB_TOKEN") and not is_loopback(_resolve(endpoint)[0]):
        raise ConfigError(
            "ARGOSY_JOB_TOKEN is not set, and the launchers of several hosts need it to authenticate each other; "
            "export the same secret on each node, for example what `openssl rand -hex 16` prints"
        )
    return endpoint


def _resolve(endpoint: Endpoint) -> tuple[str, int]:
    try:
        addresses = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
        raise ConfigError(f"--master={endpoint}: {endpoint.host!r} has no address ({e}); correct it") from e
    return str(addresses[0][4][0]), endpoint.port


def join(config: Configuration, environ: Mapping[str, str], events: Events) -> "NodeGroup":
    """Listen as node 0, or connect to it; `Joined` follows as an event."""
    node = node_rank(config, environ)
    endpoint, token = master(config, environ), environ.get("ARGOSY_JOB_TOKEN", "")
    if node == 0 and config.nodes is not None:
        open_files.allow(
            config.nodes, f"the launcher of node 0 has a connection to each node: {config.nodes} nodes"
        )
    kind = _Hub if node == 0 else _Member
    return kind(node, config, endpoint, token, events)


class NodeGroup(ABC):
    """This node's part in the group; all methods are for the launcher's thread."""

    def __init__(
        self,
        node: int,
        config: Configuration,
        endpoint: Endpoint,
        token: str,
        events: Events,
    ) -> None:
        assert config.nodes is not None, "the caller checks"
        self.node, self.size = node, config.nodes
        self.records = RecordFiles(config.log_dir)
        """Node 0: what the other nodes send."""
        self._endpoint, self._token, self._events = endpoint, token, events
        self._max_restarts = config.max_restarts
        self._join_s = JOIN_S if config.join_timeout_s is None else config.join_timeout_s
        self._thread = LoopThread()
        self._thread.start(self._guarded())

    async def _guarded(self) -> None:
        """The channel's work; what it raises ends the job."""
        try:
            await self._run()
        except (OSError, Rejected) as e:
            self._events.put(
                Verdict(2, f"cannot join the other nodes at {self._endpoint}: {e}", is_local=True)
            )

    @abstractmethod
    async def _run(self) -> None:
        """In the loop's thread: connect, then handle messages until the end."""

    def offer(self, offer: Offer) -> None:
        """Join the next attempt with this offer; a Plan follows as an event."""
        self._thread.call(self._offer, offer)

    def report(self, result: Result) -> None:
        """How this node's processes ended; a Verdict follows as an event."""
        self._thread.call(self._result, result)

    def forward(self, message: Message) -> None:
        """Send what this node's processes do to node 0; see record_forwarding.py."""
        self._thread.call(self._forward, message)

    def wait_for_others(self) -> None:
        """Node 0, after the verdict: wait until the others have sent what they had, and have left; they do not wait."""
        with contextlib.suppress(FutureTimeoutError, OSError):
            self._thread.wait(self._others_left(_LAST_RECORDS_S), _LAST_RECORDS_S + 5.0)

    def close(self) -> None:
        """This node has ended: leave the group; node 0 waits for the others."""
        with contextlib.suppress(FutureTimeoutError, OSError):
            self._thread.wait(self._leave(), _END_S + 5.0)
        self._thread.stop()

    @abstractmethod
    def _offer(self, offer: Offer) -> None: ...

    @abstractmethod
    def _result(self, result: Result) -> None: ...

    @abstractmethod
    def _forward(self, message: Message) -> None: ...

    async def _others_left(self, timeout_s: float) -> None:
        return

    @abstractmethod
    async def _leave(self) -> None: ...


class _Member(NodeGroup):
    """A node other than the first."""

    _peer: Peer | None = None
    _has_left = False

    async def _run(self) -> None:
        peer = self._peer = await self._connect()
        self._events.put(Joined(peer.local_address))
        beats = asyncio.ensure_future(peer.beat())
        try:
            while True:
                self._handle(await peer.receive())
        except ConnectionError as e:
            if not self._has_left:
                self._events.put(
                    Verdict(1, f"NodeLost: node 0 ({self._endpoint}) was lost: {e}", is_local=True)
                )
        finally:
            beats.cancel()

    async def _connect(self) -> Peer:
        began = reminded = time.monotonic()
        while True:
            try:
                streams = await asyncio.open_connection(*self._endpoint, limit=MAX_BYTES)
                peer = Peer(*streams)
                await peer.join(self._token, self.node)
                return peer
            except OSError as e:  # it does not listen yet, or its name is not known yet
                now = time.monotonic()
                if now - began > self._join_s:
                    raise OSError(f"no launcher listened there within {self._join_s:g} s ({e})") from e
                if now - reminded > _REMIND_S:
                    reminded = now
                    logger.info("node %d waits for node 0 at %s (%s)", self.node, self._endpoint, e)
                await asyncio.sleep(0.1)

    def _handle(self, message: dict[str, Any]) -> None:
        if message.get("type") == "Plan":
            self._events.put(Plan.from_json(message))
        elif message.get("type") == "Verdict":
            self._events.put(Verdict.from_json(message))

    def _send(self, message: dict[str, Any]) -> None:
        if self._peer is not None:
            self._peer.send(message)

    def _offer(self, offer: Offer) -> None:
        self._send(offer.to_json())

    def _result(self, result: Result) -> None:
        self._send(result.to_json())

    def _forward(self, message: Message) -> None:
        self._send(message)

    async def _leave(self) -> None:
        self._has_left = True
        if self._peer is not None:
            self._peer.send({"type": "left"})
            await self._peer.close()


class _Hub(NodeGroup):
    """Node 0. Only the thread of the event loop reads and writes its state."""

    def __init__(self, *args: Any) -> None:
        self._peers: dict[int, Peer] = {}
        self._offers: dict[int, Offer] = {}
        self._names: dict[int, str] = {}
        """By node: its host, once known."""
        self._results: dict[int, Result] = {}
        self._attempt = 0
        self._verdict: Verdict | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._left: set[int] = set()
        self._never = asyncio.Event()
        """Never set; an attribute, because the event loop has only weak references to tasks."""
        super().__init__(*args)

    async def _run(self) -> None:
        host, port = _resolve(self._endpoint)
        is_name = self._endpoint.host not in (host, "localhost")
        # Debian's /etc/hosts maps the host's name to 127.0.1.1, which other hosts cannot reach.
        address = None if is_name and is_loopback(host) else host
        async with await asyncio.start_server(self._serve, address, port, limit=MAX_BYTES, backlog=1024):
            await self._wait_for_all()
            reached = [peer.local_address for peer in self._peers.values()]
            if reached:
                self._events.put(Joined(next((a for a in reached if not is_loopback(a)), reached[0])))
            await self._never.wait()  # until the thread ends

    async def _wait_for_all(self) -> None:
        began = reminded = time.monotonic()
        while missing := sorted({*range(1, self.size)} - {*self._peers} - self._left):
            await asyncio.sleep(0.02)
            now = time.monotonic()
            if now - began > self._join_s:
                nodes = ", ".join(map(str, missing))
                raise OSError(f"nodes {nodes} of {self.size} have not joined within {self._join_s:g} s")
            if now - reminded > _REMIND_S:
                reminded = now
                logger.info("node 0 waits for nodes %s to join at %s", missing, self._endpoint)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        try:
            await peer.accept(self._token, self._problem_of)
        except (ConnectionError, Rejected) as e:
            logger.warning("rejected a connection from %s: %s", peer.address, e)
            return
        self._peers[peer.node] = peer
        beats = asyncio.ensure_future(peer.beat())
        try:
            while peer.node not in self._left:
                self._handle(peer.node, await peer.receive())
        except (ConnectionError, ValueError) as e:
            self._lose(peer.node, str(e))
        finally:
            beats.cancel()
            await peer.close()

    def _forward(self, message: Message) -> None:
        self.records.add(self.node, message)

    def _problem_of(self, node: int) -> str:
        if not 0 < node < self.size:
            return f"it is node {node}, and the job has {self.size} nodes"
        return f"there is a node {node} already" if node in self._peers else ""

    def _handle(self, node: int, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "Offer":
            self._offer(replace(Offer.from_json(message), node=node))
        elif kind == "Result":
            self._result(replace(Result.from_json(message), node=node))
        elif kind in FORWARDED:
            self.records.add(node, message)
        elif kind == "left":
            self._lose(node, "its launcher has left the job")

    def _offer(self, offer: Offer) -> None:
        self._offers[offer.node] = offer
        self._names[offer.node] = offer.host
        if len(self._offers) < self.size:
            return
        offers = tuple(self._offers[node] for node in range(self.size))
        if problem := _mismatch(offers):
            self._result(Result(0, "failed", 2, problem))
            return
        plan = Plan(offers, self._token or secrets.token_hex(16), self._attempt)
        self._offers.clear()
        self._results.clear()
        self._verdict = None
        self._broadcast(plan.to_json())
        self._events.put(plan)

    @property
    def _has_ended(self) -> bool:
        return self._verdict is not None and not self._verdict.restarts

    def _result(self, result: Result) -> None:
        # Before a restart, the processes that were terminated for it may report failures.
        is_restarting = self._verdict is not None and self._verdict.restarts
        if self._has_ended or (is_restarting and result.kind != "signal"):
            return
        self._results[result.node] = result
        if result.kind == "failed":
            self._decide_in(_COLLECT_S if result.is_cause else _COLLECT_CAUSE_S)
        elif result.kind == "signal" or len(self._results) == self.size:
            self._decide_in(0.0)
        elif result.kind == "preempted":  # the others save the same checkpoint
            self._decide_in(_PREEMPTED_S)

    def _lose(self, node: int, why: str) -> None:
        self._left.add(node)
        self._peers.pop(node, None)
        known = self._results.get(node)
        if self._has_ended or (known is not None and known.kind not in ("done", "preempted")):
            return
        self._verdict = None
        self._result(Result(node, "failed", 1, f"NodeLost: {self._name(node)} was lost: {why}"))

    def _name(self, node: int) -> str:
        host = self._names.get(node)
        return f"node {node} of {self.size}" + (f" ({host})" if host else "")

    def _decide_in(self, seconds: float) -> None:
        """Decide then, or at an earlier time that was set before."""
        at = self._thread.loop.time() + seconds
        if self._timer is not None and self._timer.when() <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._thread.loop.call_at(at, self._decide)

    def _decide(self) -> None:
        """Send the verdict of this attempt."""
        self._timer = None
        results = list(self._results.values())  # in the order in which they came
        signals = [r for r in results if r.kind == "signal"]
        failures = sorted((r for r in results if r.kind == "failed"), key=lambda r: not r.is_cause)
        if signals and results[0].kind == "failed":
            # An engine that has noticed a failure may end the other nodes before they have reported it.
            verdict = Verdict(results[0].code, self._report([*failures, *signals]))
        elif signals:
            verdict = Verdict(signals[0].code, f"{self._name(signals[0].node)}: {signals[0].text}")
        elif failures:
            restarts = self._attempt < self._max_restarts and not self._left and failures[0].code != 2
            text = self._report(failures)
            verdict = Verdict(failures[0].code, text, restarts)
        else:
            verdict = Verdict(max(result.code for result in results), "")
        self._attempt += verdict.restarts
        self._verdict = verdict
        self._broadcast(verdict.to_json())
        self._events.put(verdict)

    def _report(self, failures: list[Result]) -> str:
        first, *rest = failures
        head = "" if first.text.startswith("NodeLost") else f"{self._name(first.node)}:\n"
        lines = [head + first.text]
        lines += [f"  also {self._name(r.node)}: {r.text.partition(chr(10))[0]}" for r in rest]
        return "\n".join(lines)

    def _broadcast(self, message: dict[str, Any]) -> None:
        for peer in self._peers.values():
            peer.send(message)

    async def _others_left(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while {*self._peers} - self._left and time.monotonic() < until:
            await asyncio.sleep(0.02)

    async def _leave(self) -> None:
        await self._others_left(_END_S)
        for node in sorted({*self._peers} - self._left):
            logger.warning("%s has not ended within %g s", self._name(node), _END_S)
        for peer in self._peers.values():
            await peer.close()


def _mismatch(offers: tuple[Offer, ...]) -> str:
    """Why these nodes cannot form a job, or ''."""
    for name in ("version", "mode"):
        values = {getattr(offer, name): f"node {offer.node} ({offer.host})" for offer in offers}
        if len(values) > 1:
            text = "; ".join(f"{node} has {value}" for value, node in values.items())
            return f"the nodes differ in {name}: {text}; start all with the same options and the same Argosy"
    roles = {offer.role for offer in offers}
    if roles not in ({""}, {"server", "worker"}):
        listed = "; ".join(f"node {offer.node} ({offer.host}) has {offer.role or 'none'}" for offer in offers)
        return f"--node_role: {listed}; give it on all nodes, on some server and on the others worker, or on none"
    return ""
