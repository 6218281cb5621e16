"""A server's program: the user's optimizer on blocks, compensation, and what trainers' programs keep."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy import fluid
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.roles import ServerRole
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.engine.runtime.server_loop import ProgramUpdater
from argosy.fluid.transpiler import HashName, RoundRobin

SERVERS = "127.0.0.1:6174,127.0.0.1:6175"


def built(optimizer: Any = None, table: bool = False) -> tuple[Program, Program]:
    """fc 1000 -> 1000, as in Paddle's own test of the transpiler."""
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup), names.guard():
        x = fluid.data("x", [None, 1000], "float32")
        if table:
            ids = fluid.data("ids", [None, 1], "int64")
            rows = paddle.static.nn.sparse_embedding(
                ids, [100, 1000], param_attr=fluid.ParamAttr(name="table")
            )
            x = x + paddle.reshape(rows, [-1, 1000])
        y = fluid.data("y", [None, 1000], "float32")
        attrs = {"param_attr": fluid.ParamAttr(name="fc_w"), "bias_attr": fluid.ParamAttr(name="fc_b")}
        out = fluid.layers.fc(x, 1000, **attrs)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
        (optimizer or fluid.optimizer.SGD(0.1)).minimize(loss)
    return main, startup


def transpiled(
    config: dict[str, Any] | None = None, optimizer: Any = None, table: bool = False, **arguments: Any
) -> tuple[fluid.DistributeTranspiler, Program, Program]:
    options = fluid.DistributeTranspilerConfig()
    for name, value in (config or {}).items():
        setattr(options, name, value)
    main, startup = built(optimizer, table)
    t = fluid.DistributeTranspiler(options)
    given: dict[str, Any] = {"pservers": SERVERS, "trainers": 2} | arguments
    t.transpile(0, main, startup_program=startup, **given)
    return t, main, startup


def ops(program: Program) -> list[str]:
    return [op.type for op in program.ops]


def test_a_send_directly_follows_its_gradient() -> None:
    t, main, _ = transpiled()
    t.get_trainer_program(wait_port=False)
    nodes = list(main.graph.nodes)
    sends = [n for n in nodes if getattr(n.target, "_opname", "") == "send"]
    assert len(sends) == 2
    assert all(send.prev is send.args[0] for send in sends)
    assert ops(main)[-4:] == ["send_barrier", "recv", "recv", "fetch_barrier"]
    assert "sgd" not in ops(main)


def test_blocks_and_their_servers_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    transpiled({"print_log": True})
    said = capsys.readouterr().out
    assert "fc_w.block0 [500, 1000] (500,000 elements) -> 127.0.0.1:6174" in said
    assert "fc_w.block1 [500, 1000] (500,000 elements) -> 127.0.0.1:6175" in said
    assert "fc_b [1000] (1,000 elements) -> 127.0.0.1:6174" in said


def test_a_servers_program_has_the_optimizer_on_its_blocks() -> None:
    t, _, _ = transpiled(optimizer=fluid.optimizer.Momentum(0.1, 0.9))
    main, startup = t.get_pserver_programs("127.0.0.1:6175")
    assert ops(main) == ["listen_and_serv", "merge_gradients", "momentum"]
    assert main.var("fc_w.block1").shape == (500, 1000)
    assert main.var("fc_w.block1_velocity_0").shape == (500, 1000)
    assert startup.var("fc_w.block1").shape == (500, 1000)
    assert list(main.feeds()) == [f"fc_w@GRAD.block1.trainer_{i}" for i in range(2)]


def test_async_servers_get_gradients_one_by_one() -> None:
    t, _, _ = transpiled(sync_mode=False)
    main = t.get_pserver_program("127.0.0.1:6174")
    assert ops(main) == ["listen_and_serv", "sgd", "sgd"]


def test_without_slicing_a_variable_stays_whole() -> None:
    t, main, _ = transpiled({"slice_var_up": False})
    t.get_trainer_program(wait_port=False)
    assert "fc_w.block0" not in str(main)
    t, _, _ = transpiled({"min_block_size": 1 << 20})
    names_of = {n for e in SERVERS.split(",") for n in t.get_pserver_program(e).persistables()}
    assert {"fc_w", "fc_b"} <= names_of


@pytest.mark.parametrize("method", ["HashName", HashName, "RoundRobin", RoundRobin])
def test_every_process_deals_blocks_out_alike(method: Any) -> None:
    plans = [transpiled({"split_method": method})[0]._plan for _ in range(2)]
    assert plans[0] == plans[1]


def test_the_table_is_never_on_a_trainer_or_in_its_startup_program() -> None:
    t, main, startup = transpiled(table=True)
    t.get_trainer_program(wait_port=False)
    assert "table" not in main.vars
    assert "table" not in startup.vars
    assert "distributed_lookup_table" in ops(main)
    assert not any(tuple(getattr(n.meta.get("val"), "shape", ())) == (100, 1000) for n in main.graph.nodes)
    server, first = t.get_pserver_programs("127.0.0.1:6174")
    assert "table" not in first.vars
    assert "table" in str(server)


@pytest.mark.parametrize("adaptive", [False, True])
def test_compensation_is_that_of_the_paper(adaptive: bool) -> None:
    """w -= rate · (g + lambda · g² · (w - backup)); adaptive: lambda = lambda0 / sqrt(mean square + 1e-7)."""
    config = {"enable_dc_asgd": True, "dc_asgd_adaptive": adaptive}
    t, _, _ = transpiled(config, sync_mode=False)
    server, first = t.get_pserver_programs("127.0.0.1:6174")
    rng = np.random.RandomState(0)
    with scope_guard(Scope()):
        paddle.static.Executor().run(first)
        assert isinstance(server.role, ServerRole)
        updater = ProgramUpdater(server, server.role, global_scope())
        w = updater.values()["fc_b"].numpy().copy()
        square = np.zeros_like(w)
        for _step in range(5):
            g, backup = rng.randn(1000).astype("float32"), rng.randn(1000).astype("float32")
            updater.apply_block("fc_b", torch.from_numpy(g), 0.1, torch.from_numpy(backup))
            square = 0.95 * square + 0.05 * g * g
            strength = 2.0 / np.sqrt(square + 1e-7) if adaptive else 0.04
            w = w - 0.1 * (g + strength * g * g * (w - backup))
            np.testing.assert_allclose(updater.values()["fc_b"].numpy(), w, rtol=2e-5, atol=2e-6)


def test_wrong_settings_are_reported() -> None:
    config = fluid.DistributeTranspilerConfig()
    with pytest.raises(UnknownNameError, match="slice_var_up"):
        config.slice_var = True
    for size in (100, 8192.5):
        with pytest.raises(ConfigError, match=f"{size}; use an integer of at least 8192"):
            config.min_block_size = size
    with pytest.raises(ConfigError, match="RoundRobin or HashName"):
        config.split_method = "Random"
    with pytest.raises(ConfigError, match="'pserver', 'nccl2', 'collective'"):
        config.mode = "gpu"
    config.sync_mode = True
    with pytest.raises(ConfigError, match="asynchronous"):
        config.runtime_split_send_recv = True
    with pytest.raises(ConfigError, match="sync_mode=False"):
        transpiled({"enable_dc_asgd": True})
    with pytest.raises(
        ConfigError, match="runtime_split_send_recv=True with sync_mode=True; set sync_mode=F"
    ):
        transpiled({"runtime_split_send_recv": True})
    with pytest.raises(ConfigError, match="half_async=True with sync_mode=True; set sync_mode=False"):
        transpiled({"half_async": True})
    with pytest.raises(ConfigError, match="half_async=True with geo_sgd_mode=True.*; set only one"):
        transpiled({"half_async": True, "geo_sgd_mode": True}, sync_mode=False)
    with pytest.raises(ConfigError, match="the number of trainers, an int"):
        transpiled(trainers="127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(ConfigError, match="is the string '0'; use an int: int"):
        fluid.DistributeTranspiler().transpile("0", built()[0])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not an endpoint"):
        transpiled(pservers="127.0.0.1")
    for servers in ([6174], 6174, [], "", "127.0.0.1:6174,127.0.0.1:6174"):
        with pytest.raises(ConfigError, match="list each server's host:port once"):
            transpiled(pservers=servers)
    t, _, _ = transpiled()
    with pytest.raises(ConfigError, match="is not a server of this job"):
        t.get_pserver_program("127.0.0.1:1")
    with pytest.raises(ConfigError, match="before transpile"):
        fluid.DistributeTranspiler().get_trainer_program()
    with pytest.raises(ConfigError, match="call optimizer.minimize"):
        fluid.DistributeTranspiler().transpile(0, Program("empty"), SERVERS, 2, startup_program=Program("s"))


def test_servers_may_be_a_list() -> None:
    assert transpiled(pservers=SERVERS.split(","))[0]._plan == transpiled()[0]._plan


def test_settings_of_modes_without_servers_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    transpiled({"use_hierarchical_allreduce": True, "nccl_comm_num": 2, "collective_mode": None})
    said = (
        "DistributeTranspilerConfig: nccl_comm_num, use_hierarchical_allreduce: no effect in mode 'pserver'"
    )
    assert caplog.text.count(said) == 1


def test_servers_without_blocks_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    t, _, _ = transpiled({"slice_var_up": False}, pservers=SERVERS + ",127.0.0.1:6176")
    empty = [
        e
        for e in ("6174", "6175", "6176")
        if ops(t.get_pserver_program(f"127.0.0.1:{e}")) == ["listen_and_serv"]
    ]
    assert len(empty) == 1
    assert "has no optimize block" in caplog.text


@pytest.mark.parametrize("sync_mode", [True, False])
def test_a_gradient_of_the_whole_table_cannot_be_clipped(sync_mode: bool) -> None:
    optimizer = paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByValue(1.0))
    with pytest.raises(ConfigError, match="need_clip=False"):
        transpiled(table=True, optimizer=optimizer, sync_mode=sync_mode)
