"""timeline: which steps are recorded, what the file holds, and that a recording changes nothing."""

# SPDX-License-Identifier: Apache-2.0
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.collective import trace as collective_trace
from argosy.engine.collective.trace import TracedCollective
from argosy.engine.errors import ConfigError, FeedError, ProgramError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime import timeline
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from tests.ranks import ForkServer


def train(num_steps: int, exe: Executor, loss: Any) -> None:
    """So many steps of `net`."""
    feed = {"x": np.ones((4, 8), "float32"), "y": np.zeros((4, 1), "int64")}
    for _ in range(num_steps):
        exe.run(default_main_program(), feed=feed, fetch_list=[loss])


def net() -> tuple[Executor, Any]:
    x, y = paddle.static.data("x", [None, 8]), paddle.static.data("y", [None, 1], "int64")
    hidden = paddle.static.nn.fc(x, 16, activation="relu")
    loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 3), y)
    optimizer = paddle.optimizer.SGD(0.1)
    (
        optimizer if paddle.distributed.get_world_size() == 1 else fleet.distributed_optimizer(optimizer)
    ).minimize(loss)
    exe = Executor()
    exe.run(default_startup_program())
    return exe, loss


def loaded(path: Path) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads(path.read_bytes())
    return trace


def tracks(trace: dict[str, Any]) -> list[str]:
    return [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]


def of_kind(trace: dict[str, Any], *kinds: str) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e.get("cat") in kinds]


def test_the_steps_asked_for_are_recorded_with_every_node_and_its_source(tmp_path: Path) -> None:
    exe, loss = net()
    with paddle.timeline.record(tmp_path, steps="2-3"):
        train(5, exe, loss)
        assert (tmp_path / "rank0.json").exists()  # as soon as the last of them is done
    trace = loaded(tmp_path / "rank0.json")
    assert tracks(trace) == ["step", "compute", "blocked"]
    assert [e["name"] for e in of_kind(trace, "step")] == ["step 2", "step 3"]
    nodes = of_kind(trace, "forward", "backward", "optimize")
    assert {e["args"]["op"] for e in nodes} >= {"addmm", "relu_", "fused_sgd"}
    relu = next(e for e in nodes if e["args"]["op"] == "relu_")
    assert f" {relu['name']} = relu(" in str(default_main_program())
    assert relu["cat"] == "forward"
    assert relu["args"]["type"] == "float32[N, 16]"
    assert relu["args"]["source"].startswith("test_timeline.py:")
    step = of_kind(trace, "step")[0]
    inside = [e for e in nodes if step["ts"] <= e["ts"] and e["ts"] + e["dur"] <= step["ts"] + step["dur"]]
    assert 2 * len(inside) == len(nodes)
    about = trace["otherData"]
    assert (about["rank"], about["size"], about["format"]) == (0, 1, "argosy.timeline")
    assert about["network"] == os.readlink("/proc/self/ns/net")
    assert len(about["anchors"]) == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "rank0.json"]


def test_recording_changes_no_result(tmp_path: Path) -> None:
    exe, loss = net()
    first = {v.name: torch.clone(global_scope().get(v.name)) for v in default_main_program().all_parameters()}

    def trained() -> dict[str, torch.Tensor]:
        for name, value in first.items():
            global_scope().get(name).copy_(value)
        train(4, exe, loss)
        return {name: torch.clone(global_scope().get(name)) for name in first}

    plain = trained()
    with paddle.timeline.record(tmp_path, steps="1-4"):
        recorded = trained()
    assert plain.keys() == recorded.keys()
    assert all(torch.equal(plain[name], recorded[name]) for name in plain)


def test_the_end_of_the_block_writes_what_there_is_and_only_training_counts(tmp_path: Path) -> None:
    exe, loss = net()
    test_program = default_main_program().clone(for_test=True)
    feed = {"x": np.ones((4, 8), "float32"), "y": np.zeros((4, 1), "int64")}
    with paddle.timeline.record(tmp_path):
        train(2, exe, loss)
        exe.run(test_program, feed=feed, fetch_list=[loss.name])
        train(2, exe, loss)
        assert not list(tmp_path.iterdir())
    trace = loaded(tmp_path / "rank0.json")
    assert [e["args"]["number"] for e in of_kind(trace, "step")] == [3, 4]
    assert collective_trace.recording is None


def test_an_error_in_a_recorded_step_names_its_node_and_the_other_steps_are_kept(tmp_path: Path) -> None:
    program = default_main_program()
    x = program.data("x", [None], "int64")
    table = paddle.static.create_parameter([3, 2], "float32")
    loss = paddle.mean(torch.nn.functional.embedding(x, table))
    paddle.optimizer.SGD(0.1).minimize(loss)
    exe = Executor()
    exe.run(default_startup_program())
    with paddle.timeline.record(tmp_path, steps="1-9"):
        exe.run(program, feed={"x": np.array([1])})
        with pytest.raises(ProgramError, match="embedding"):
            exe.run(program, feed={"x": np.array([7])}, fetch_list=[loss])
        exe.run(program, feed={"x": np.array([2])}, fetch_list=[loss])
    assert [e["name"] for e in of_kind(loaded(tmp_path / "rank0.json"), "step")] == ["step 1", "step 3"]


def test_a_last_step_that_fails_does_not_keep_the_recording_on(tmp_path: Path) -> None:
    exe, loss = net()
    with paddle.timeline.record(tmp_path, steps="1-2"):
        train(1, exe, loss)
        with pytest.raises(FeedError):
            exe.run(default_main_program(), feed={})
        train(1, exe, loss)
        assert collective_trace.recording is None
        assert [e["name"] for e in of_kind(loaded(tmp_path / "rank0.json"), "step")] == ["step 1"]


def test_a_timeline_without_a_step_is_reported_and_leaves_no_old_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exe, loss = net()
    (tmp_path / "rank0.json").write_text("old")
    logging.getLogger("argosy").addHandler(caplog.handler)
    try:
        with paddle.timeline.record(tmp_path):
            train(2, exe, loss)
    finally:
        logging.getLogger("argosy").removeHandler(caplog.handler)
    assert "steps 3 to 12 were requested, and 2 were trained; train longer" in caplog.text
    assert not list(tmp_path.iterdir())


def test_invalid_arguments_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="steps='12-3' are not steps; use the first and the last"):
        paddle.timeline.record(tmp_path, steps="12-3")
    (tmp_path / "file").touch()
    refused = pytest.raises(
        ConfigError, match="no timeline can be written to .*file: File exists; give a writable dir"
    )
    with refused, paddle.timeline.record(tmp_path / "file"):
        pass
    refused = pytest.raises(
        ConfigError, match="recorded to .*one already .of steps 1 to 2.; there can be one"
    )
    with paddle.timeline.record(tmp_path / "one", steps="1-2"):
        train(1, *net())
        with refused, paddle.timeline.record(tmp_path / "two"):
            pass
    assert (tmp_path / "one" / "rank0.json").exists()


def test_collectives_get_their_tracks_queue_and_waits(tmp_path: Path) -> None:
    recorder = timeline.Timeline(tmp_path, (1, 1))
    recorder.collectives = [
        TracedCollective("all_reduce", "a", "dp", 1, 400, 1_000, 0, 5_000, [(4_000, 5_000)]),
        TracedCollective("all_reduce", "b", "dp", 2, 800, 2_000, 0, 9_000),  # begins when the first has ended
        TracedCollective("all_reduce", "c", "dp.1", 1, 80, 2_000, 2_500, 0, [(3_000, 4_000), (6_000, 7_000)]),
        TracedCollective(
            "all_reduce", "d", "dp/intra2", 1, 8, 3_000, 3_000, 6_000
        ),  # beside the first: a lane of its own
        TracedCollective("barrier", "", "dp", 3, 0, 9_000),  # still in flight
    ]
    trace = recorder.trace()
    assert tracks(trace)[3:] == ["dp", "dp (2)", "dp.1"]
    about = {e["name"]: (e["tid"], e["ts"], e["dur"], e["args"]) for e in of_kind(trace, "collective")}
    key = {"group": "dp", "number": 2, "communicator": "dp", "bytes": 800, "queue_us": 3.0, "wait_us": 0}
    assert about["all_reduce b"] == (4, 5.0, 4.0, key)
    assert about["all_reduce a"][1:3] == (1.0, 4.0)
    assert about["all_reduce d"][0] == 5
    assert about["all_reduce d"][3]["communicator"] == "dp"
    assert about["all_reduce c"][1:3] == (2.5, 4.5)
    assert about["all_reduce c"][3]["wait_us"] == 2.0
    assert len(about) == 4
    waits = [(e["name"], e["ts"], e["dur"]) for e in of_kind(trace, "wait")]
    assert ("wait for all_reduce a", 4.0, 1.0) in waits
    assert len(waits) == 3


def two_ranks_train() -> None:
    fleet.init(is_collective=True)
    assert collective_trace.recording is None
    exe, loss = net()
    train(2, exe, loss)
    assert collective_trace.recording is None
    train(1, exe, loss)
    assert collective_trace.recording is not None
    if not collective_trace.recording:  # the groups do not record yet
        collective_trace.recording.append(
            TracedCollective("all_reduce", "g", "dp", 3, 4, 1_000, 1_000, 2_000)
        )
    train(2, exe, loss)
    assert collective_trace.recording is None
    print("done")


def test_two_ranks_write_a_file_each_with_the_same_collectives(ranks: ForkServer, tmp_path: Path) -> None:
    environ = {"ARGOSY_TIMELINE": str(tmp_path), "ARGOSY_TIMELINE_STEPS": "3-4"}
    assert all("done" in said for said in ranks.check(2, two_ranks_train, **environ))
    traces = paddle.timeline.read(tmp_path)
    assert [t.about["rank"] for t in traces] == [0, 1]
    assert traces[0].about["clock"] == traces[1].about["clock"]
    for trace in traces:
        assert [e["name"] for e in trace.of_kind("step")] == ["step 3", "step 4"]
        assert {e["cat"] for e in trace.of_kind("forward", "backward", "optimize", "communicate")} == {
            *("forward", "backward", "optimize", "communicate")
        }
    keys = [list(t.collectives()) for t in traces]
    assert keys[0] == keys[1]
    assert keys[0]
    summary = paddle.timeline.summarize(traces)
    for times in summary.ranks:
        parts = times.forward_ms + times.backward_ms + times.optimize_ms + times.communicate_ms
        assert 0 < parts < times.step_ms


def test_a_process_that_ends_early_writes_at_its_end(tmp_path: Path, ranks: ForkServer) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from tests.engine.runtime.test_timeline import net, train\n"
        "import os\n"
        "exe, loss = net()\n"
        "train(4, exe, loss)\n"
        "if os.fork() == 0:\n"
        "    raise SystemExit(0)\n"  # a child has nothing to write
        "os.wait()\n"
        "raise ValueError('the end')\n"
    )
    ended = ranks.python("train.py", cwd=tmp_path, ARGOSY_TIMELINE="out", FULL_EXIT="1")
    assert "ValueError: the end" in ended.stderr
    assert [e["name"] for e in of_kind(loaded(tmp_path / "out" / "rank0.json"), "step")] == [
        "step 3",
        "step 4",
    ]
