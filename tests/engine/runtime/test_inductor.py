"""inductor: a compiled step trains as the plain one does, is compiled once, and is never a reason to fail.

Compiling takes seconds, so the tests of a session have one cache, and their nets are tiny. The kernels have no vector
instructions: Inductor would compile a program for each set of them, to see if it runs here.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]  # it has no annotations
import pytest
import torch
from torch._inductor import config

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.errors import NanInfError, ProgramError
from argosy.engine.ir import names
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import (
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
)
from argosy.engine.passes.autocast import Autocast
from argosy.engine.passes.divide_updates import DivideUpdates
from argosy.engine.runtime import inductor
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from tests.ranks import ForkServer, clean_environ

Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session's compiled code lies; the workers of pytest-xdist share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "inductor"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    inductor._warn_once.cache_clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the processes below, so that they find the same kernels
    with config.patch("cpp.vec_isa_ok", False):
        yield
    torch.set_num_threads(threads)
    inductor._warn_once.cache_clear()


def mlp(layers: int = 1) -> Any:
    h, y = paddle.static.data("x", [None, 8]), paddle.static.data("y", [None, 1], "int64")
    for _ in range(layers):
        h = paddle.static.nn.fc(h, 16, activation="relu")
    return paddle.nn.functional.cross_entropy(paddle.static.nn.fc(h, 3), y)


def convnet() -> Any:
    x, y = paddle.static.data("x", [None, 3, 6, 6]), paddle.static.data("y", [None, 1], "int64")
    h = paddle.static.nn.conv2d(x, 4, 3, padding=1, bias_attr=False)
    h = paddle.static.nn.batch_norm(h, act="relu")
    return paddle.nn.functional.cross_entropy(paddle.static.nn.fc(h, 3), y)


def feed(batch: int, *shape: int) -> Arrays:
    rng = np.random.default_rng(batch)
    x = rng.standard_normal((batch, *shape)).astype("float32")
    return {"x": x, "y": rng.integers(0, 3, (batch, 1))}


def trained(
    net: Any, feeds: list[Arrays], compiler: str, fetched: Any = None, autocast: Autocast | None = None
) -> tuple[Arrays, list[Any]]:
    """The variables after a step with each feed, and what was fetched."""
    torch.manual_seed(0)
    with program_guard(Program("main"), Program("startup")), names.guard(), scope_guard(Scope()):
        loss = net()
        decay = paddle.regularizer.L2Decay(1e-2)
        paddle.optimizer.Momentum(0.1, 0.9, weight_decay=decay).minimize(loss)
        main = default_main_program()
        main.random_seed = 7
        main.build = Build(compiler=compiler, autocast=autocast)
        exe = Executor()
        exe.run(default_startup_program())
        actual = [
            exe.run(main, feed=one, fetch_list=[loss, *([fetched] if fetched else [])]) for one in feeds
        ]
        return {name: global_scope().get(name).numpy().copy() for name in main.persistables()}, actual


def check_alike(plain: tuple[Arrays, list[Any]], compiled: tuple[Arrays, list[Any]]) -> None:
    for name, value in plain[0].items():
        np.testing.assert_allclose(compiled[0][name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    for one, other in zip(plain[1], compiled[1], strict=True):
        np.testing.assert_allclose(other[0], one[0], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_an_mlp_trains_as_without_and_with_another_batch(caplog: pytest.LogCaptureFixture) -> None:
    feeds = [feed(size, 8) for size in (4, 4, 6, 4, 6)]
    with caplog.at_level(logging.INFO, "argosy"):
        check_alike(trained(mlp, feeds, ""), trained(mlp, feeds, "inductor"))
    said = [r.getMessage() for r in caplog.records if r.getMessage().startswith("inductor")]
    assert said[0].startswith("inductor: 1 regions with ")
    assert sum("compiling region 1 of 1" in line for line in said) == 2, "once for each batch size"
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.slow
def test_a_convnet_with_batch_norm_and_momentum_trains_as_without(caplog: pytest.LogCaptureFixture) -> None:
    feeds = [feed(4, 3, 6, 6)] * 5
    check_alike(trained(convnet, feeds, ""), trained(convnet, feeds, "inductor"))
    assert "node by node" not in caplog.text


@pytest.mark.slow
def test_a_convnet_in_mixed_precision_trains_as_without() -> None:
    """Batch norm of 16-bit values has float32 statistics, which Inductor's own has not."""
    feeds = [feed(4, 3, 6, 6)] * 3
    plain, compiled = (trained(convnet, feeds, c, autocast=Autocast()) for c in ("", "inductor"))
    for name, value in plain[0].items():
        np.testing.assert_allclose(compiled[0][name], value, rtol=0.05, atol=0.02, err_msg=name)
    for one, other in zip(plain[1], compiled[1], strict=True):
        np.testing.assert_allclose(other[0], one[0], rtol=0.02)


@pytest.mark.slow
def test_dropout_draws_the_same_numbers() -> None:
    def net() -> Any:
        x, y = paddle.static.data("x", [None, 8]), paddle.static.data("y", [None, 1], "int64")
        hidden = paddle.nn.functional.dropout(paddle.static.nn.fc(x, 16, activation="sigmoid"), 0.5)
        return paddle.nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 3), y)

    feeds = [feed(4, 8)] * 3
    plain, compiled = (trained(net, feeds, compiler, "dropout_0.tmp_0") for compiler in ("", "inductor"))
    check_alike(plain, compiled)
    for one, other in zip(plain[1], compiled[1], strict=True):
        assert ((one[1] == 0) == (other[1] == 0)).all()
        assert (one[1] == 0).any()


def test_results_that_inductor_would_put_into_one_memory_do_not_share_it() -> None:
    x = paddle.static.data("x", [4])
    doubled = x * 2.0
    copies = [doubled, doubled.clone(), x.clone(), (x + 0.0).clone()]
    nodes = [n for n in default_main_program().graph.nodes if n.op != "placeholder"]
    region = inductor.Region(tuple(nodes), [x.node], [v.node for v in copies])
    given = torch.ones(4)
    outputs = region([given])
    assert len({t.data_ptr() for t in (given, *outputs)}) == 5
    assert [t.tolist() for t in outputs] == [[2.0] * 4, [2.0] * 4, [1.0] * 4, [1.0] * 4]


@pytest.mark.slow
def test_many_sizes_are_not_compiled_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(inductor, "_MAX_SIZES", 1)
    feeds = [feed(size, 8) for size in (4, 5, 6, 7, 5)]
    check_alike(trained(mlp, feeds, ""), trained(mlp, feeds, "inductor"))
    assert [r.getMessage().split(":")[0] for r in caplog.records if r.levelno == logging.WARNING] == [
        "inductor"
    ]
    assert "feed batches of few sizes" in caplog.text


def test_with_the_check_for_nan_every_node_is_checked() -> None:
    broken = feed(4, 8)
    broken["x"][0, 0] = np.nan
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    try:
        with pytest.raises(NanInfError, match="addmm .*test_inductor.py"):
            trained(mlp, [broken], "inductor")
    finally:
        paddle.set_flags({"FLAGS_check_nan_inf": False})


def test_an_error_inside_names_the_region_and_its_first_and_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def net() -> Any:
        ids = paddle.static.data("x", [None], "int64")
        rows = paddle.static.nn.embedding(ids, [10, 4])
        return (rows * 2.0).mean()

    monkeypatch.setattr(inductor, "_MAX_SIZES", 0)  # node by node: the embedding itself looks at its ids
    wrong = {"x": np.array([3, 12])}
    with pytest.raises(
        ProgramError, match=r"region_1 \(test_inductor.py:\d+ in net … test_inductor.py:\d+.*\) failed"
    ):
        trained(net, [wrong], "inductor")


@pytest.mark.slow
def test_a_timeline_shows_a_region_as_one_event(tmp_path: Path) -> None:
    with paddle.timeline.record(tmp_path, steps="2-3"):
        trained(mlp, [feed(4, 8)] * 3, "inductor")
    events = json.loads((tmp_path / "rank0.json").read_text())["traceEvents"]
    regions = [e for e in events if e["name"].startswith("region (")]
    assert len(regions) == 2
    assert re.fullmatch(r"region \(fc_0.tmp_\d … fc_0.b_0@GRAD\)", regions[0]["name"])
    assert regions[0]["args"]["source"].startswith("test_inductor.py:")
    assert sum(e["args"].get("op") == "momentum" for e in events) == 2 * 4


# --- processes of their own ---------------------------------------------------------------------------


def train_and_count() -> None:
    """Train with Inductor and print what it counted, as the last line."""
    config.cpp.vec_isa_ok = False
    check_alike(trained(mlp, [feed(4, 8)] * 3, ""), trained(mlp, [feed(4, 8)] * 3, "inductor"))
    counted = {}
    if "torch._inductor.codecache" in sys.modules:
        from torch._dynamo.utils import counters

        counted = dict(counters["inductor"])
    print(json.dumps(counted | {"children": len(psutil.Process().children(recursive=True))}))


def started(ranks: ForkServer, folder: Path) -> dict[str, int]:
    """What a process that trains with Inductor counted."""
    (said,) = ranks.check(1, train_and_count, 200.0, TORCHINDUCTOR_CACHE_DIR=str(folder))
    counted: dict[str, int] = json.loads(said.splitlines()[-1])
    return counted


@pytest.mark.slow
def test_a_second_start_compiles_nothing_and_leaves_no_process(ranks: ForkServer, tmp_path: Path) -> None:
    """With a cache of its own: another worker may compile into that of the session meanwhile."""
    first = started(ranks, tmp_path)
    libraries = sorted(tmp_path.rglob("*.so"))
    second = started(ranks, tmp_path)
    assert libraries
    assert sorted(tmp_path.rglob("*.so")) == libraries, "the compiler made nothing"
    assert second["fxgraph_cache_hit"] == 1
    assert "fxgraph_cache_miss" not in second
    assert "fxgraph_cache_bypass" not in second
    assert first["children"] == second["children"] == 0


@pytest.mark.slow
def test_without_a_compiler_the_nodes_run_one_by_one_and_one_warning_says_why(tmp_path: Path) -> None:
    """In a process of its own: torch looks for CXX while it is imported, and a rank has imported it already."""
    script = f"from {__name__} import train_and_count; train_and_count()"
    environ = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "CXX": "/nonexistent/g++"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=clean_environ() | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    said = done.stdout
    assert done.returncode == 0, said
    warnings = [line for line in said.splitlines() if line.startswith("WARNING")]
    assert len([line for line in warnings if "inductor" in line]) == 1
    assert "runs node by node" in said
    assert "/nonexistent/g++" in said


# --- two ranks ----------------------------------------------------------------------------------------


def train_on_two_ranks(compiler: str) -> tuple[Arrays, tuple[str, ...], int]:
    """The variables, the schedule, and how many regions there were."""
    torch.manual_seed(0)
    with program_guard(Program("main"), Program("startup")), names.guard(), scope_guard(Scope()):
        strategy = fleet.DistributedStrategy()
        strategy.sync_nccl_allreduce, strategy._fuse_grad_size_in_TFLOPS = False, 2
        loss = mlp(layers=2)
        fleet.distributed_optimizer(paddle.optimizer.Momentum(0.1, 0.9), strategy).minimize(loss)
        main = default_main_program()
        main.build = Build(compiler=compiler, without_passes=frozenset({DivideUpdates.name}))
        exe = Executor()
        exe.run(default_startup_program())
        batch = feed(4, 8)
        batch["x"] += int(os.environ["PADDLE_TRAINER_ID"])
        for _ in range(3):
            exe.run(main, feed=batch, fetch_list=[loss])
        compiled = next(iter(exe._compiled[main].values()))
        regions = sum(isinstance(node.target, inductor.Region) for node in compiled.step.nodes)
        values = {name: global_scope().get(name).numpy().copy() for name in main.persistables()}
        return values, compiled.schedule, regions


def two_ranks() -> None:
    config.cpp.vec_isa_ok = False
    fleet.init(is_collective=True)
    plain, plain_schedule, _ = train_on_two_ranks("")
    compiled, schedule, regions = train_on_two_ranks("inductor")
    assert schedule == plain_schedule
    assert sum("all_reduce" in one for one in schedule) == 2
    check_alike((plain, []), (compiled, []))
    print(f"{regions} regions")


@pytest.mark.slow
def test_two_ranks_exchange_in_the_same_order_and_end_with_the_same_parameters(
    ranks: ForkServer, folder: Path
) -> None:
    said = ranks.check(2, two_ranks, timeout_s=200, TORCHINDUCTOR_CACHE_DIR=str(folder))
    assert all("2 regions" in text for text in said)
    assert not any("node by node" in text for text in said)
