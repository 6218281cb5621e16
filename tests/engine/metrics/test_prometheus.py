"""Metrics for Prometheus: names, labels and values, read by the parser of its client; who may read them."""

# SPDX-License-Identifier: Apache-2.0
import math
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.metrics.job_directory import Record
from argosy.engine.metrics.job_view import JobView

pytest.importorskip("prometheus_client")

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from argosy.engine.metrics.prometheus import PrometheusSink

JOB = {
    "state": "running",
    "restart": 1,
    "processes": [
        {"role": "worker", "rank": 0, "state": "running"},
        {"role": "worker", "rank": 1, "state": "failed"},
        {"role": "server", "rank": 0, "state": "running"},
    ],
}


def records(time: float = 1.0) -> list[Record]:
    lists = {"period_ms": [100.0], "busy_ms": [75.0], "exposed_ms": [25.0], "input_ms": [5.0]}
    steps = {
        "step": 10,
        "steps": 10,
        "group": 10,
        "examples": 160,
        "wall_s": 1.0,
        "sent_bytes": 5000,
        "rss": 10**8,
    }
    requests = {"Pull": {"count": 50, "p50_ms": 0.5, "p90_ms": 0.8, "p99_ms": 1.5, "bytes": 1000}}
    table = {"name": 'emb"ed\n', "rows": 1234, "bytes": 5000, "spilled_fraction": 0.25}
    tables = {
        "interval_s": 1.0,
        "requests": requests,
        "queue": 3,
        "trainers": 2,
        "tables": [table],
        "rss": 10**7,
    }
    tables["staleness"] = {"mean": 1.5, "max": 4}
    return [
        Record("rank0", "steps", time, {**steps, **lists}),
        Record("rank0", "values", time, {"step": 10, "values": {"loss": "nan", "lr": 0.5}, "reduce": {}}),
        Record("server0", "tables", time, tables),
    ]


@contextmanager
def serving(token: str | None = None) -> Iterator[PrometheusSink]:
    sink, view = PrometheusSink("127.0.0.1", 0, token), JobView()
    try:
        for batch in (records(1.0), records(2.0)):
            view.update(batch)
            sink.update(JOB, view, batch)
        yield sink
    finally:
        sink.close()


def get(sink: PrometheusSink, path: str = "/metrics", **headers: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{sink.port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as reply:
        return str(reply.read().decode())


def samples(text: str, parser: Any = parse) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = list(parser(text))
    assert all(family.documentation and family.type != "unknown" for family in families)
    assert len({family.name for family in families}) == len(families)
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


@pytest.mark.parametrize(
    ("accept", "parser"), [("text/plain", parse), ("application/openmetrics-text", parse_openmetrics)]
)
def test_all_metrics_have_their_values(accept: str, parser: Any) -> None:
    with serving() as sink:
        exported = samples(get(sink, Accept=accept), parser)

    def value(name: str, /, **labels: str) -> float:
        return exported[f"argosy_{name}", frozenset(labels.items())]

    assert value("job_state", state="running") == 1
    assert value("job_state", state="failed") == 0
    assert value("processes_up", role="worker") == 1
    assert value("steps_total", rank="0") == 10
    assert value("examples_total", rank="0") == 320
    assert value("sent_bytes_total", rank="0") == 10_000
    assert value("step_seconds", rank="0") == 0.1
    assert value("exposed_ratio", rank="0") == 0.25
    assert math.isnan(value("value", name="loss"))
    assert value("value", name="lr") == 0.5
    assert value("table_rows", server="0", table='emb"ed\n') == 1234
    assert value("table_spilled_ratio", server="0", table='emb"ed\n') == 0.25
    assert value("server_queue", server="0") == 3
    assert value("server_staleness", server="0") == 1.5
    assert value("server_request_seconds", server="0", request="Pull", quantile="0.99") == 0.0015
    assert value("server_request_seconds_count", server="0", request="Pull") == 100


def test_nothing_else_is_served() -> None:
    with serving() as sink, pytest.raises(urllib.error.HTTPError, match="404"):
        get(sink, "/")


def test_on_other_addresses_the_token_is_needed() -> None:
    with serving("secret") as sink:
        for wrong in ({}, {"Authorization": "Bearer secreT"}, {"Authorization": "secret"}):
            with pytest.raises(urllib.error.HTTPError, match="401") as raised:
                get(sink, **wrong)
            raised.value.close()
        assert "argosy_steps_total" in get(sink, Authorization="Bearer secret")


def test_a_port_in_use_is_rejected() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match="cannot listen at 127.0.0.1:.*; choose another port"),
    ):
        PrometheusSink("127.0.0.1", taken.getsockname()[1], None)
