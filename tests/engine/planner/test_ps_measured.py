"""Measured small jobs: what follows for larger ones, and errors."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.engine.errors import ConfigError
from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.ps_measured import (
    PACKED_BYTES,
    Handled,
    MeasuredJob,
    MeasuredStep,
    Mode,
    Operation,
    PsMeasured,
    read_ps_measured,
    setup_of,
    trace_of,
)
from argosy.engine.planner.topology import HostKind, Link, Topology
from argosy.engine.ps.trainer.dense import _PACKED_BYTES

MB = 1_000_000


def measured(
    mode: Mode = "async",
    compute_ms: float = 10.0,
    nbytes: int = 4 * MB,
    message_ms: float = 0.1,
    byte_ms: float = 1.0,
    handler_ms: float = 2.0,
    step_ms: float = 0.0,
) -> PsMeasured:
    """A push and a pull of so many bytes; transport and dispatch take so much per message and for all bytes."""
    push, pull = (
        Operation("start", 0, "push", compute_ms, nbytes, 0),
        Operation("start", 1, "pull", 0.0, 0, nbytes),
    )
    acked, pulled = Operation("wait", 0, "push"), Operation("wait", 1, "pull")
    barrier = Operation("start", 2, "barrier")
    middle = (barrier, pull, acked) if mode == "sync" else (acked, pull)
    operations = (push, *middle, pulled, Operation("end", ms=1.0))
    count = 6 if mode == "sync" else 4

    def job(servers: int, workers: int) -> MeasuredJob:
        transport = servers * count * message_ms + byte_ms
        handlers = {
            "push": Handled(servers, handler_ms),
            "pull": Handled(servers, 0.1 * servers),
            **({"barrier": Handled(servers, 0.1 * servers)} if mode == "sync" else {}),
        }
        steps = (MeasuredStep(operations),)
        main_ms = compute_ms + 1.0
        return MeasuredJob(servers, workers, step_ms, steps, main_ms, transport, transport, handlers)

    return PsMeasured(mode, job(1, 1), job(2, 1), job(1, 2), examples=32)


def cluster(workers: int, gbit: float = 1e4) -> Topology:
    return Topology((HostKind("ethernet", workers, cores=4),), {"ethernet": Link(gbit)})


def test_costs_are_divided_into_messages_and_bytes() -> None:
    setup = setup_of(measured())
    assert setup.worker_message_us == setup.server_message_us == pytest.approx(100)
    assert setup.worker_s_per_gb == pytest.approx(1e-3 / (8 * MB / 1e9))
    push = trace_of(measured(), 1, 1).requests[0]
    assert push.service_us == pytest.approx(0.0)  # two servers take together what one takes
    assert push.service_s_per_gb == pytest.approx(2e-3 / (4 * MB / 1e9))


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_the_measured_step_of_one_worker_is_predicted_exactly(mode: Mode) -> None:
    """The time that threads take to wake up is what the core times leave of it."""
    one = measured(mode, step_ms=20.0)
    setup = setup_of(one, cores=1)
    topology = Topology((HostKind("loopback", 1),), {"loopback": Link(1e4)})
    assert setup.wake_us > 0
    assert predict(trace_of(one, 1, 1), topology, setup).step_ms == pytest.approx(20.0, rel=0.01)


def test_a_server_with_one_core_is_full_when_many_workers_send() -> None:
    """Its core time in a step of each worker is the closed form."""
    one = measured(handler_ms=5.0)
    prediction = predict(trace_of(one, 1, 12), cluster(12), setup_of(one, cores=1))
    core_ms = 4 * 0.1 + 1.0 + 5.0 + 0.1
    assert prediction.step_ms == pytest.approx(12 * core_ms, rel=0.02)


def test_workers_that_share_a_core_take_turns() -> None:
    one = measured(handler_ms=0.1, message_ms=0.05, byte_ms=0.1)
    topology = Topology((HostKind("loopback", 1, cores=1, ranks=4),), {"loopback": Link(1e4)})
    prediction = predict(trace_of(one, 1, 4), topology, setup_of(one, cores=4))
    assert prediction.step_ms == pytest.approx(4 * (11.0 + 4 * 0.05 + 0.1), rel=0.02)


@settings(max_examples=20)
@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.floats(0.1, 20),
    st.floats(0, 5),
    st.integers(MB, 50 * MB),
)
def test_more_servers_with_the_same_service_in_all_are_never_slower(
    workers: int, servers: int, compute_ms: float, handler_ms: float, nbytes: int
) -> None:
    one = measured("sync", compute_ms, nbytes, 0.0, 0.5, handler_ms)
    setup = replace(setup_of(one), cores=8)
    fewer = predict(trace_of(one, servers, workers), cluster(workers, 8.0), replace(setup, servers=servers))
    more = predict(
        trace_of(one, servers + 1, workers), cluster(workers, 8.0), replace(setup, servers=servers + 1)
    )
    assert more.step_ms <= fewer.step_ms * 1.01


@settings(max_examples=20)
@given(st.sampled_from(["sync", "async"]), st.integers(1, 6), st.floats(0.5, 20), st.floats(1, 4))
def test_more_bandwidth_is_never_slower(mode: Mode, workers: int, gbit: float, factor: float) -> None:
    """Asynchronous workers may get into step with each other, as on a real network: some percent of a step."""
    one = measured(mode)
    slow = predict(trace_of(one, 1, workers), cluster(workers, gbit), setup_of(one))
    fast = predict(trace_of(one, 1, workers), cluster(workers, gbit * factor), setup_of(one))
    assert fast.step_ms <= slow.step_ms * (1.01 if mode == "sync" else 1.1)


def test_more_rows_have_changed_with_more_workers() -> None:
    def geo(received: int) -> MeasuredJob:
        operations = (
            Operation("start", 0, "push", 5.0, MB, 0),
            Operation("wait", 0, "push"),
            Operation("start", 1, "pull_changes", 0.0, 0, received),
            Operation("wait", 1, "pull_changes"),
            Operation("end", ms=1.0),
        )
        steps = (MeasuredStep(operations, True), MeasuredStep((Operation("end", ms=6.0),)))
        return MeasuredJob(1, 1, 0.0, steps, 6.0, 0.1, 0.1, {})

    one = PsMeasured(
        "geo", geo(MB), replace(geo(MB), servers=2), replace(geo(MB * 3 // 2), workers=2), k_steps=4
    )
    trace = trace_of(one, 1, 3)
    assert [r.received_bytes for r in trace.requests] == [0, 2 * MB]
    assert trace.periods == {"synchronize": 4}
    assert one.bytes_per_step == pytest.approx(2 * MB / 4)
    assert predict(trace, cluster(1), setup_of(one)).step_ms == pytest.approx(6.0, rel=0.05)


def test_a_file_is_read_back_and_others_are_rejected(tmp_path: Path) -> None:
    measured().write(tmp_path / "async.json")
    assert read_ps_measured(tmp_path / "async.json") == measured()
    (tmp_path / "other.json").write_text('{"format": "argosy.step_trace"}')
    with pytest.raises(ConfigError, match="has no format 'argosy.ps_measured'"):
        read_ps_measured(tmp_path / "other.json")


def test_jobs_of_other_sizes_are_rejected() -> None:
    with pytest.raises(ConfigError, match="the job 'servers' has 1 servers, 1 workers; measure 2 and 1"):
        PsMeasured("async", measured().one, measured().one, measured().workers)


def test_small_parts_are_packed_as_the_trainer_packs_them() -> None:
    operations = (
        *(Operation("start", n, "push", 1.0, MB) for n in range(4)),
        *(Operation("wait", n, "push") for n in range(4)),
        Operation("end", ms=1.0),
    )
    one = measured()
    one = replace(one, one=replace(one.one, steps=(MeasuredStep(operations),)))
    assert PACKED_BYTES == _PACKED_BYTES
    for servers, sizes in ((1, [MB] * 4), (6, [2 * MB] * 2), (100, [4 * MB])):
        trace = trace_of(one, servers, 1)
        assert [r.sent_bytes for r in trace.requests] == sizes
        assert sum(len(node.actions) for node in trace.nodes) == len(sizes) + 4
        assert predict(trace, cluster(1), setup_of(one, servers)).step_ms > 5.0


def test_a_machine_that_was_busy_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"took 500.0 ms, of which core time explains .* measure again"):
        setup_of(measured(step_ms=500.0))
