"""Small jobs with parameter servers that were measured, and the step trace and servers of larger jobs that follow.

    one       1 server,  1 worker     the operations of a step, core time of threads, requests on the server
    servers   2 servers, 1 worker     what further messages cost: the difference to `one`
    workers   1 server,  2 workers    sync: what the mean costs; geo: how many more rows have changed

A cost is a part per message and a part per byte: with twice the servers a request is twice the messages and the same
bytes. What remains of the measured step of `one`, threads that wake up, is spread over its messages. Data only.
"""

# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from argosy.engine.errors import ConfigError
from argosy.engine.planner.data_files import check, from_data, read_json, to_data, write_text
from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.ps_setup import PsSetup
from argosy.engine.planner.step_trace import Node, RequestKind, ServerRequest, StepTrace
from argosy.engine.planner.topology import HostKind, Link, Topology

FORMAT, VERSION = "argosy.ps_measured", 1
Mode = Literal["sync", "half_async", "async", "geo"]
_KINDS: dict[str, RequestKind] = {
    "push": "push",
    "push_rows": "push",
    "barrier": "barrier",
    "pull": "pull",
    "pull_rows": "lookup",
    "pull_changes": "pull",
}
"""Requests of a step, as the protocol calls them, and as the simulation does."""
_IN_UPDATE = ("push", "push_rows", "barrier", "pull")
"""sync: their handlers only store the request; the thread of the last one updates, and replies to all."""
_MAX_WAKE_US = 3000.0
PACKED_BYTES = 1 << 18
"""ps/trainer/dense.py: small gradients for one server are packed into one push of up to this many bytes."""
_PERIOD = "synchronize"


@dataclass(frozen=True)
class Operation:
    """What the thread of a step does after some computation: it sends a request, or waits for the reply."""

    verb: Literal["start", "wait", "pack", "end"]
    number: int = 0
    """Of the request among those of its step, from 0; a wait before the start is for the request of the step before."""
    kind: str = ""
    ms: float = 0.0
    """Core time of the thread since the operation before."""
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(frozen=True)
class MeasuredStep:
    """The operations of steps of one sort: geo has steps with a synchronization, and others."""

    operations: tuple[Operation, ...]
    is_periodic: bool = False
    """geo: the step synchronizes."""

    @property
    def num_requests(self) -> int:
        return sum(operation.verb == "start" for operation in self.operations)

    @property
    def num_bytes(self) -> int:
        return sum(operation.sent_bytes + operation.received_bytes for operation in self.operations)


@dataclass(frozen=True)
class Handled:
    """Requests of one kind at the servers, in a step of one worker, on average."""

    count: float
    cpu_ms: float


@dataclass(frozen=True)
class MeasuredJob:
    """A job; core times are milliseconds in a step of one worker, on average."""

    servers: int
    workers: int
    step_ms: float
    """By the clock."""
    steps: tuple[MeasuredStep, ...]
    main_ms: float
    transport_ms: float
    """Of the worker's other threads."""
    server_ms: float
    """Of the servers' transport and dispatch threads; of all servers."""
    handlers: dict[str, Handled]

    @property
    def handlers_ms(self) -> float:
        return sum(handled.cpu_ms for handled in self.handlers.values())


@dataclass(frozen=True)
class PsMeasured:
    """A script in one mode."""

    mode: Mode
    one: MeasuredJob
    servers: MeasuredJob
    workers: MeasuredJob
    k_steps: int = 1
    examples: int = 0
    """The batch of a worker."""
    cores: int = 1
    """Of the workers while this was measured; the servers had one."""
    name: str = ""

    def __post_init__(self) -> None:
        for key, expected in (("one", (1, 1)), ("servers", (2, 1)), ("workers", (1, 2))):
            job: MeasuredJob = getattr(self, key)
            found = (job.servers, job.workers)
            check(
                found == expected,
                f"the job {key!r} has {found[0]} servers, {found[1]} workers; measure {expected[0]} and {expected[1]}",
            )

    def write(self, path: Path) -> None:
        """Write a file atomically."""
        write_text(path, json.dumps({"format": FORMAT, **to_data(self, VERSION)}, indent=1))

    # --- per step of one worker -----------------------------------------------------------------------

    @property
    def requests_per_step(self) -> float:
        return self._mean([step.num_requests for step in self.one.steps])

    @property
    def bytes_per_step(self) -> float:
        return self._mean([step.num_bytes for step in self.one.steps])

    def _mean(self, values: list[int]) -> float:
        """Over the steps of a cycle."""
        shares = {True: 1 / self.k_steps, False: 1 - 1 / self.k_steps}
        if len(self.one.steps) == 1:
            return float(values[0])
        return sum(v * shares[step.is_periodic] for v, step in zip(values, self.one.steps, strict=True))


def read_ps_measured(path: Path) -> PsMeasured:
    """Read a file that `PsMeasured.write` wrote."""
    content: Any = read_json(path, "measured job with parameter servers")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError(
            f"{path} has no format {FORMAT!r}; write it with python -m argosy.plan servers --write"
        )
    return from_data(PsMeasured, {k: v for k, v in content.items() if k != "format"}, str(path), VERSION)


# --- larger jobs ------------------------------------------------------------------------------------------


def setup_of(measured: PsMeasured, servers: int = 1, cores: int = 1, servers_per_host: int = 1) -> PsSetup:
    """So many servers of this job, on hosts with so many cores."""
    setup = _without_wake(measured, servers)
    return replace(
        setup,
        cores=cores,
        servers_per_host=servers_per_host,
        wake_us=_wake_us(measured, _without_wake(measured, 1)),
    )


def _without_wake(measured: PsMeasured, servers: int) -> PsSetup:
    one, two = measured.one, measured.servers
    worker = _split(
        one.transport_ms, two.transport_ms, 2 * measured.requests_per_step, measured.bytes_per_step
    )
    server = _split(one.server_ms, two.server_ms, 2 * measured.requests_per_step, measured.bytes_per_step)
    update_us, update, mean = _update(measured) if measured.mode == "sync" else (0.0, 0.0, 0.0)
    return PsSetup(
        mode=measured.mode,
        servers=servers,
        cores=1,
        threads=1,
        worker_message_us=worker[0],
        worker_s_per_gb=worker[1],
        server_message_us=server[0],
        server_s_per_gb=server[1],
        update_us=update_us,
        update_s_per_gb=update,
        mean_s_per_gb=mean,
        k_steps=measured.k_steps,
    )


def _split(one_ms: float, two_ms: float, count: float, nbytes: float) -> tuple[float, float]:
    """Microseconds per message and seconds per GB of a cost, with one server and with two."""
    if not count:
        return 0.0, 0.0
    per_message = min(max(two_ms - one_ms, 0.0), one_ms) if nbytes else one_ms
    rest = max(one_ms - per_message, 0.0)
    return per_message * 1e3 / count, rest / 1e3 / (nbytes / 1e9) if nbytes else 0.0


def _dispatch_ms(measured: PsMeasured) -> float:
    """sync: a request whose handler only stores it."""
    pull = measured.one.handlers.get("pull")
    others = [h for kind, h in measured.one.handlers.items() if kind in _IN_UPDATE and h.count]
    least = [h.cpu_ms / h.count for h in ([pull] if pull and pull.count else others)]
    return min(least, default=0.0)


def _update(measured: PsMeasured) -> tuple[float, float, float]:
    """sync: the update of a step: microseconds, seconds per GB of a worker's gradients, and of each further worker."""
    requests = [o for step in measured.one.steps for o in step.operations if o.verb == "start"]
    pushed = sum(o.sent_bytes for o in requests if _KINDS.get(o.kind) == "push") / 1e9
    stored = _dispatch_ms(measured) * sum(o.kind in _IN_UPDATE for o in requests)
    one, servers, workers = (
        sum(h.cpu_ms for kind, h in job.handlers.items() if kind in _IN_UPDATE)
        for job in (measured.one, measured.servers, measured.workers)
    )
    update = max(one - stored, 0.0)
    fixed = min(max(servers - one - stored, 0.0), update)
    # Of the job with two workers, handlers are in a step of one of them: half of those of the round.
    further = max(2 * workers - one - stored, 0.0)
    if not pushed:
        return update * 1e3, 0.0, 0.0
    return fixed * 1e3, (update - fixed) / 1e3 / pushed, further / 1e3 / pushed


def _wake_us(measured: PsMeasured, setup: PsSetup) -> float:
    """What threads take to wake up, per message, so that the simulated step of one worker is the measured one."""
    topology = Topology((HostKind("loopback", 1, cores=measured.cores),), {"loopback": Link(1e4)})
    trace = trace_of(measured, 1, 1)

    def step_ms(wake_us: float) -> float:
        return predict(trace, topology, replace(setup, wake_us=wake_us), repeats=1).step_ms

    wanted, low, high = measured.one.step_ms, 0.0, _MAX_WAKE_US
    at_low, at_high = step_ms(low), step_ms(high)
    if at_low >= wanted or at_high <= at_low:
        return low
    if at_high < wanted:
        raise ConfigError(
            f"the measured step of one worker took {wanted:.1f} ms, of which core time explains {at_low:.1f} ms: the "
            "machine was busy with other things; measure again on a quiet one"
        )
    for _ in range(8):  # almost a line
        middle = low + (high - low) * (wanted - at_low) / (at_high - at_low)
        at_middle = step_ms(middle)
        if abs(at_middle - wanted) < 1e-3 * wanted:
            return middle
        low, at_low, high, at_high = (
            (middle, at_middle, high, at_high) if at_middle < wanted else (low, at_low, middle, at_middle)
        )
    return low


def trace_of(measured: PsMeasured, servers: int, workers: int) -> StepTrace:
    """The step of a worker in a job with so many servers and workers."""
    extra = _per_request_ms(measured) * (servers - 1)
    growth = 1 + (workers - 1) * _growth(measured)
    costs = _services(measured)
    nodes: list[Node] = []
    requests: list[ServerRequest] = []
    is_split = len(measured.one.steps) > 1
    for place, step in enumerate(measured.one.steps):
        period = ("" if step.is_periodic else "!") + _PERIOD if is_split else ""
        for number, operation in enumerate(_packed(step.operations, servers)):
            name = f"r{place}.{operation.number}"
            if operation.verb == "start":
                requests.append(_request(name, operation, growth, costs))
            nodes.append(_node(name, number, operation, period, extra))
    periods = {_PERIOD: measured.k_steps} if is_split else None
    return StepTrace(
        tuple(nodes),
        requests=tuple(requests),
        periods=periods,
        examples=measured.examples,
        name=measured.name,
    )


def _packed(operations: tuple[Operation, ...], servers: int) -> list[Operation]:
    """Pushes of one step, packed as by the trainer: sent when a server's part is large enough, or with the last."""
    pushes = [o for o in operations if o.verb == "start" and o.kind == "push"]
    into: dict[int, int] = {}
    total: dict[int, int] = {}
    waiting: list[Operation] = []
    for push in pushes:
        waiting.append(push)
        nbytes = sum(one.sent_bytes for one in waiting)
        if nbytes / servers >= PACKED_BYTES or push is pushes[-1]:
            into.update({one.number: push.number for one in waiting})
            total[push.number] = nbytes
            waiting = []
    found = []
    for o in operations:
        if o.kind == "push" and o.verb == "start":
            sent = total.get(o.number)
            found.append(
                replace(o, sent_bytes=sent) if sent is not None else replace(o, verb="pack", sent_bytes=0)
            )
        elif o.kind == "push" and o.verb == "wait":
            found.append(replace(o, number=into.get(o.number, o.number)))
        else:
            found.append(o)
    return found


def _node(name: str, number: int, operation: Operation, period: str, extra_ms: float) -> Node:
    if operation.verb in ("end", "pack"):
        return Node(f"{number}: before {operation.verb} {period}".strip(), operation.ms, period=period)
    ms = operation.ms + (extra_ms if operation.verb == "start" else 0.0)
    label = f"{number}: before {operation.verb} of {operation.kind} {operation.number}"
    return Node(label, ms, actions=(f"{operation.verb} {name}",), lead_ms=ms, period=period)


def _request(
    name: str, operation: Operation, growth: float, costs: dict[str, tuple[float, float]]
) -> ServerRequest:
    received = operation.received_bytes * (growth if operation.kind == "pull_changes" else 1.0)
    service_us, per_gb = costs.get(operation.kind, (0.0, 0.0))
    kind = _KINDS.get(operation.kind, "lookup")
    return ServerRequest(
        name, kind, operation.sent_bytes, round(received), operation.kind, service_us, per_gb
    )


def _per_request_ms(measured: PsMeasured) -> float:
    """Core time of the worker's thread for a further message of a request."""
    more = measured.servers.main_ms - measured.one.main_ms
    return max(more, 0.0) / measured.requests_per_step if measured.requests_per_step else 0.0


def _growth(measured: PsMeasured) -> float:
    """geo: by how much a worker more increases the rows that a synchronization gets."""

    def received(job: MeasuredJob) -> int:
        return sum(
            o.received_bytes for step in job.steps for o in step.operations if o.kind == "pull_changes"
        )

    alone = received(measured.one)
    return max(received(measured.workers) / alone - 1, 0.0) if alone else 0.0


def _services(measured: PsMeasured) -> dict[str, tuple[float, float]]:
    """By kind: microseconds of a request in its thread, and seconds per GB."""
    sizes: dict[str, list[int]] = {}
    for step in measured.one.steps:
        for operation in step.operations:
            if operation.verb == "start":
                sizes.setdefault(operation.kind, []).append(operation.sent_bytes + operation.received_bytes)
    found = {}
    for kind, of_kind in sizes.items():
        one, two = measured.one.handlers.get(kind), measured.servers.handlers.get(kind)
        if measured.mode == "sync" and kind in _IN_UPDATE:
            found[kind] = (_dispatch_ms(measured) * 1e3, 0.0)
        elif one is not None and one.count:
            alone = one.cpu_ms / one.count
            halved = two.cpu_ms / two.count if two is not None and two.count else alone
            by_bytes = min(max(2 * (alone - halved), 0.0), alone)
            size = sum(of_kind) / len(of_kind) / 1e9
            found[kind] = ((alone - by_bytes) * 1e3, by_bytes / 1e3 / size if size else 0.0)
    return found
