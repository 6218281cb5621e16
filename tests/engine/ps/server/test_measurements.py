"""What a parameter server writes to the job directory."""

# SPDX-License-Identifier: Apache-2.0
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from argosy.engine.metrics import counters
from argosy.engine.metrics.job_directory import JobDirectory, records_file
from argosy.engine.metrics.job_view import JobView
from argosy.engine.metrics.metrics_recorder import JobProcess, MetricsRecorder
from argosy.engine.ps.trainer.trainer import Trainer
from tests.engine.ps.served import SETTINGS, served, step

ROWS = torch.ones(2, 1, 2)


def a_recorder(directory: Path) -> MetricsRecorder:
    return MetricsRecorder(records_file(directory, "server", 0), JobProcess("server", 0, 1, 0))


def total(directory: Path) -> dict[str, Any]:
    """The records of the server, added up."""
    lines = records_file(directory, "server", 0).read_text().splitlines()
    records = [record for line in lines if (record := json.loads(line))["kind"] == "tables"]
    requests: dict[str, int] = {}
    for record in records:
        for kind, fields in record["requests"].items():
            assert 0 < fields["p50_ms"] <= fields["p90_ms"] <= fields["p99_ms"]
            assert fields["bytes"] > 0
            requests[kind] = requests.get(kind, 0) + fields["count"]
    tables = [record["tables"][0] for record in records]
    return {
        "requests": requests,
        "pulled": sum(table["pulled_rows"] for table in tables),
        "pushed": sum(table["pushed_rows"] for table in tables),
        "last": records[-1],
        "staleness": [record["staleness"] for record in records if record["staleness"] is not None],
    }


def test_writes_requests_tables_and_dense_variables(tmp_path: Path) -> None:
    with (
        served(trainers=1, mode="async", recorder=a_recorder(tmp_path)) as (_, plan),
    ):
        trainer = Trainer(plan, 0, SETTINGS)
        trainer.blocks.initialise({"w": torch.zeros(3)})
        for _ in range(3):
            step(trainer, torch.ones(3), rows=ROWS)
        trainer.connection.wait_acked()
        trainer.close()
    written = total(tmp_path)
    assert {kind: written["requests"][kind] for kind in ("push", "pull", "pull_rows", "push_rows")} == {
        "push": 3, "pull": 3, "pull_rows": 3, "push_rows": 3,
    }  # fmt: skip
    assert (written["pulled"], written["pushed"]) == (6, 6)
    last = written["last"]
    assert last["tables"][0]["name"] == "table"
    assert last["tables"][0]["rows"] == 2
    assert last["tables"][0]["bytes"] > 0
    assert last["tables"][0]["spilled_fraction"] == 0
    assert last["dense"] == {"variables": 1, "bytes": 12}
    assert last["rss"] > 1 << 20
    assert last["queue"] == 0
    view = JobView()
    view.update(JobDirectory(tmp_path).poll())
    assert view.servers[0].tables is not None


def test_staleness_is_the_number_of_updates_of_the_other_trainer(tmp_path: Path) -> None:
    with served(trainers=2, mode="async", recorder=a_recorder(tmp_path)) as (_, plan):
        first, second = (Trainer(plan, number, SETTINGS) for number in (0, 1))
        first.blocks.initialise({"w": torch.zeros(3)})
        step(first, torch.ones(3))
        for _ in range(4):
            step(second, torch.ones(3))
        step(first, torch.ones(3))
        for trainer in (first, second):
            trainer.connection.wait_acked()
            trainer.close()
    assert max(staleness["max"] for staleness in total(tmp_path)["staleness"]) == 4


def test_synchronous_servers_have_no_staleness(tmp_path: Path) -> None:
    with served(trainers=1, mode="sync", recorder=a_recorder(tmp_path)) as (_, plan):
        trainer = Trainer(plan, 0, SETTINGS)
        trainer.blocks.initialise({"w": torch.zeros(3)})
        step(trainer, torch.ones(3), rows=ROWS)
        trainer.close()
    written = total(tmp_path)
    assert written["staleness"] == []
    assert written["requests"]["barrier"] == 1


def test_a_server_without_a_recorder_measures_nothing() -> None:
    with served(trainers=1) as (service, _):
        assert service.rpc.meter is None
        assert service.state.staleness is None
        assert not [thread for thread in threading.enumerate() if thread.name == "ps-metrics"]


def test_trainers_count_sent_bytes_waits_and_prefetched_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("exposed_ns", "sent_bytes", "prefetch_hits", "prefetch_misses"):
        monkeypatch.setattr(counters, name, 0)
    with served(trainers=1, mode="async") as (_, plan):
        trainer = Trainer(plan, 0, SETTINGS)
        trainer.blocks.initialise({"w": torch.zeros(3)})
        sent = counters.sent_bytes
        ids = torch.tensor([[5], [7]])
        trainer.lookups.prefetch("table", [ids])
        prefetched = trainer.lookups._state.value.ahead["table"][0].pending_rows
        assert prefetched is not None
        prefetched.wait()
        trainer.lookups.lookup("table", [ids])
        assert (counters.prefetch_hits, counters.prefetch_misses) == (2, 0)
        assert counters.sent_bytes - sent == 2 * 8  # two ids
        assert counters.exposed_ns > 0
        trainer.close()
