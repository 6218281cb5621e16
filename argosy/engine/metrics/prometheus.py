"""Serve the state of a job to Prometheus (fleetrun --metrics_port P): http://127.0.0.1:P/metrics.

On other addresses than loopback a request needs the job's token: `Authorization: Bearer TOKEN`.
"""

# SPDX-License-Identifier: Apache-2.0
import hmac
import math
import socketserver
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from argosy.engine.errors import ConfigError
from argosy.engine.metrics.job_directory import Record
from argosy.engine.metrics.job_view import JobView, RankView, ServerView
from argosy.engine.net import Endpoint, family_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_REQUEST_S = 10.0
"""How long a client may take to send its request."""
_QUANTILES = {"0.5": "p50_ms", "0.9": "p90_ms", "0.99": "p99_ms"}
_STATES = ("running", "completed", "failed", "preempted", "terminated")
_DURATIONS = {
    "period_ms": ("step", "From the end of a training step to the end of the next one."),
    "busy_ms": ("busy", "Computation of a rank per training step."),
    "exposed_ms": ("exposed", "Time per training step in which a rank is blocked on others."),
    "input_ms": ("input", "Time per training step in which no batch was ready."),
}


class JobMetrics:
    """The state of a job as metrics: a collector of prometheus_client."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._job: dict[str, Any] = {}
        self._view = JobView()
        self._requests: dict[tuple[int, str], int] = defaultdict(int)
        """By server and kind of request: how many since the start."""

    def update(self, job: dict[str, Any], view: JobView, records: Sequence[Record]) -> None:
        """Take over the state, which `lock` guards; the metrics are computed when they are read."""
        self._job, self._view = job, view
        for record in records:
            if record.kind == "tables" and record.process.startswith("server"):
                for kind, stats in (record.get("requests") or {}).items():
                    self._requests[record.number, kind] += int(stats.get("count") or 0)

    def collect(self) -> Iterable["Metric"]:
        """Called for each scrape."""
        with self._lock:
            view = self._view
            families = [*_job(self._job, view), *_ranks(view), *_servers(view), *self._of_requests(view)]
        return [family for family in families if family.samples]

    def _of_requests(self, view: JobView) -> list["Metric"]:
        from prometheus_client.core import Metric

        family = Metric(
            "argosy_server_request_seconds",
            "Latency of requests to a parameter server; the quantiles are of the last second.",
            "summary",
        )
        for (server, kind), count in sorted(self._requests.items()):
            labels = {"server": str(server), "request": kind}
            tables = view.servers[server].tables or {}
            stats = (tables.get("requests") or {}).get(kind) or {}
            for quantile, key in _QUANTILES.items():
                value = stats.get(key)
                seconds = math.nan if value is None else value / 1000
                family.add_sample(family.name, {**labels, "quantile": quantile}, seconds)
            family.add_sample(f"{family.name}_count", labels, count)
        return [family]


def _gauge(name: str, text: str, labels: Sequence[str] = ()) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"argosy_{name}", text, labels=labels)


def _counter(name: str, text: str, labels: Sequence[str]) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(f"argosy_{name}", text, labels=labels)


def _job(job: dict[str, Any], view: JobView) -> Iterable["Metric"]:
    state = _gauge("job_state", "1 for the state that the job is in.", ["state"])
    for name in _STATES:
        state.add_metric([name], float(job.get("state") == name))
    yield state
    up = _gauge("processes_up", "Processes that run, by role.", ["role"])
    processes = job.get("processes") or []
    for role in sorted({str(p.get("role")) for p in processes}):
        up.add_metric([role], sum(p["role"] == role and p["state"] == "running" for p in processes))
    yield up
    restarts = _gauge("restarts", "How often the job, or one of its processes, was restarted.")
    restarts.add_metric([], float(job.get("restart") or 0))
    yield restarts
    values = _gauge("value", "The last watched value, reduced over the ranks.", ["name"])
    for name, series in sorted(view.values.items()):
        if series.values:
            values.add_metric([name], series.last)
    yield values
    rate = _gauge("examples_per_second", "Examples per second of all ranks.")
    if (total := view.total_per_s("examples")) is not None:
        rate.add_metric([], total)
    yield rate


def _ranks(view: JobView) -> Iterable["Metric"]:
    ranks = [(str(number), rank) for number, rank in sorted(view.ranks.items())]
    steps = _counter("steps", "Training steps that a rank has made.", ["rank"])
    examples = _counter("examples", "Examples that a rank has trained on.", ["rank"])
    sent = _counter("sent_bytes", "Payload of the collectives, or requests, of a rank.", ["rank"])
    memory = _gauge("resident_memory_bytes", "Resident memory of a rank.", ["rank"])
    exposed = _gauge("exposed_ratio", "Share of a step in which a rank is blocked on others.", ["rank"])
    for label, rank in ranks:
        steps.add_metric([label], rank.step)
        examples.add_metric([label], rank.examples)
        sent.add_metric([label], rank.sent_bytes)
        if rank.rss is not None:
            memory.add_metric([label], rank.rss)
        if rank.exposed_fraction is not None:
            exposed.add_metric([label], rank.exposed_fraction)
    return [steps, examples, sent, memory, exposed, *_durations(ranks)]


def _durations(ranks: Sequence[tuple[str, RankView]]) -> Iterable["Metric"]:
    for key, (name, text) in _DURATIONS.items():
        family = _gauge(f"{name}_seconds", text, ["rank"])
        for label, rank in ranks:
            if (mean := rank.mean_ms(key)) is not None:
                family.add_metric([label], mean / 1000)
        yield family


def _servers(view: JobView) -> Iterable["Metric"]:
    servers = [(str(n), s) for n, s in sorted(view.servers.items()) if s.tables]
    by_table = ["server", "table"]
    rows = _gauge("table_rows", "Rows of a table on a parameter server.", by_table)
    stored = _gauge("table_bytes", "Bytes of a table on a parameter server.", by_table)
    spilled = _gauge("table_spilled_ratio", "Share of the rows of a table that are on disk.", by_table)
    for label, server in servers:
        for table in _tables(server):
            labels = [label, str(table.get("name", ""))]
            for family, key in ((rows, "rows"), (stored, "bytes"), (spilled, "spilled_fraction")):
                if table.get(key) is not None:
                    family.add_metric(labels, table[key])
    return [rows, stored, spilled, *_server_gauges(servers)]


def _tables(server: ServerView) -> list[dict[str, Any]]:
    return (server.tables or {}).get("tables") or []


def _server_gauges(servers: Sequence[tuple[str, ServerView]]) -> Iterable["Metric"]:
    gauges = {
        "queue": _gauge("server_queue", "Requests that wait for a thread of a parameter server.", ["server"]),
        "trainers": _gauge("server_trainers", "Trainers that are connected to a server.", ["server"]),
        "rss": _gauge("server_resident_memory_bytes", "Resident memory of a server.", ["server"]),
        "staleness": _gauge(
            "server_staleness", "Updates since the pull that a push is based on, in the mean.", ["server"]
        ),
    }
    for label, server in servers:
        record = dict(server.tables or {})
        record["staleness"] = (record.get("staleness") or {}).get("mean")
        for key, gauge in gauges.items():
            if record.get(key) is not None:
                gauge.add_metric([label], record[key])
    return gauges.values()


class PrometheusSink:
    """The HTTP server of the metrics, in a thread."""

    def __init__(self, host: str, port: int, token: str | None, lock: "threading.Lock | None" = None) -> None:
        """`token`: what requests must carry; None: nothing, for loopback. `lock`: held while the view is changed."""
        try:
            from prometheus_client import CollectorRegistry
        except ImportError as e:
            raise ConfigError(
                f"--metrics_port={port} needs prometheus_client; install it: pip install 'argosy[metrics]'"
            ) from e
        self._metrics = JobMetrics(lock or threading.Lock())
        registry = CollectorRegistry()
        registry.register(self._metrics)
        try:
            self._server = _Server(host, port, registry, token)
        except OSError as e:
            raise ConfigError(
                f"--metrics_port={port}: cannot listen at {Endpoint(host, port)} ({e.strerror}); choose another port"
            ) from e
        threading.Thread(target=self._server.serve_forever, name="prometheus", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def update(self, job: dict[str, Any], view: JobView, records: Sequence[Record]) -> None:
        """Replace the metrics."""
        self._metrics.update(job, view, records)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, registry: Any, token: str | None) -> None:
        self.address_family = family_of(host)
        self.registry, self.token = registry, token
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind; that of HTTPServer looks up the name of the host, which may take seconds."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that closed its connection is no error of the job."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_S

    def do_GET(self) -> None:
        """/metrics, in the format that the client asks for."""
        from prometheus_client.exposition import choose_encoder

        if not self._is_allowed():
            self._reply(401, "text/plain", b"the token of the job is missing or wrong\n")
        elif self.path.partition("?")[0] != "/metrics":
            self._reply(404, "text/plain", b"see /metrics\n")
        else:
            encoder, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._reply(200, content_type, encoder(self.server.registry))

    def _is_allowed(self) -> bool:
        expected = self.server.token
        if expected is None:
            return True
        given = self.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {expected}".encode())

    def _reply(self, code: int, content_type: str, content: bytes) -> None:
        self.send_response(code)
        if code == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""
