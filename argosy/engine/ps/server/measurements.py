"""The measurements of a parameter server: a `tables` record per second (docs/reference/job-directory.md)."""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from typing import Any

from argosy.engine.log import logger
from argosy.engine.metrics.links import LinkMeter
from argosy.engine.metrics.metrics_recorder import MetricsRecorder
from argosy.engine.metrics.resources import usage
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.rpc.request_meter import RequestMeter
from argosy.engine.ps.rpc.server import RpcServer
from argosy.engine.ps.rpc.sockets import RpcSettings
from argosy.engine.ps.server.staleness import Staleness
from argosy.engine.ps.server.state import ServerState
from argosy.engine.ps.table.table import TableStats

_PERIOD_S = 1.0


class ServerMeasurements:
    """Writes what a server has done since the last record, from a thread of its own: a snapshot may take long."""

    def __init__(
        self,
        plan: JobPlan,
        number: int,
        state: ServerState,
        rpc: RpcServer,
        settings: RpcSettings,
        recorder: MetricsRecorder,
    ) -> None:
        self._state, self._rpc, self._settings, self._recorder = state, rpc, settings, recorder
        self._num_dense = len({variable.name for variable, _ in plan.blocks_of(number)})
        self._dense_bytes: int | None = None
        rpc.meter = RequestMeter()
        if plan.mode != "sync":
            state.staleness = Staleness()
        self._tables: dict[str, TableStats] = {}
        self._links = LinkMeter()
        self._written_at = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ps-metrics", daemon=True)

    def start(self) -> None:
        """Begin to write; the state is restored."""
        self._tables = {name: table.stats() for name, table in self._state.tables.items()}
        self._written_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Write the last record; called before the tables are closed."""
        self._stopped.set()
        self._thread.join()
        self._write()

    def _run(self) -> None:
        while not self._stopped.wait(_PERIOD_S):
            try:
                self._write()
            except Exception:  # measurements must not end a server
                logger.exception("the measurements of this server cannot be written")
                return

    def _write(self) -> None:
        now = time.monotonic()
        interval_s, self._written_at = now - self._written_at, now
        staleness = self._state.staleness
        last_seen_s = self._rpc.last_seen_s().values()
        self._recorder.write(
            "tables",
            interval_s=round(interval_s, 3),
            **self._rpc.take_measurements(),
            staleness=staleness.take() if staleness is not None else None,
            trainers=sum(seconds < self._settings.heartbeat_timeout_s for seconds in last_seen_s),
            tables=[self._table(name) for name in self._state.tables],
            dense={"variables": self._num_dense, "bytes": self._measured_dense_bytes()},
            rss=usage().rss,
            **({"links": links} if (links := self._links.take()) else {}),
        )

    def _table(self, name: str) -> dict[str, Any]:
        before, stats = self._tables[name], self._state.tables[name].stats()
        self._tables[name] = stats
        return {
            "name": name,
            "rows": stats.rows,
            "bytes": stats.nbytes,
            "pulled_rows": stats.pulled_rows - before.pulled_rows,
            "pushed_rows": stats.pushed_rows - before.pushed_rows,
            "spilled_fraction": round(stats.spilled_rows / stats.rows, 4) if stats.rows else 0.0,
        }

    def _measured_dense_bytes(self) -> int:
        """The bytes of blocks and optimizer state; they do not change."""
        if self._dense_bytes is None:
            self._dense_bytes = sum(value.nbytes for value in self._state.updater.state().values())
        return self._dense_bytes
