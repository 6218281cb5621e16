"""Fleet: its errors, what it does for one process, and what two ranks see of it."""

# SPDX-License-Identifier: Apache-2.0
import copy
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy.distributed import fleet as module
from argosy.distributed.fleet import DistributedStrategy, Fleet, UserDefinedRoleMaker
from argosy.engine import collective
from argosy.engine.collective import Identity, World
from argosy.engine.errors import ConfigError, NanInfError, PeerLostError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.runtime.scope import global_scope
from tests.ranks import ForkServer

BATCH = np.linspace(-1, 1, 24, dtype="float32").reshape(6, 4)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher."""
    for name in ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def started(**options: Any) -> Fleet:
    return Fleet().init(is_collective=True, **options)


def net() -> Any:
    x = paddle.static.data("x", [None, 4], "float32")
    return paddle.static.nn.fc(paddle.static.nn.fc(x, 8, activation="tanh"), 1).mean()


def momentum() -> Any:
    return paddle.optimizer.Momentum(0.1, 0.9)


# --- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        Fleet.worker_index,
        Fleet.worker_num,
        Fleet.is_first_worker,
        Fleet.worker_endpoints,
        Fleet.is_server,
        Fleet.server_num,
        Fleet.server_endpoints,
        Fleet.node_num,
        Fleet.local_rank,
        Fleet.barrier_worker,
        lambda fleet: fleet.distributed_optimizer(momentum()),
    ],
)
def test_before_init_every_question_says_so(ask: Callable[[Fleet], Any]) -> None:
    with pytest.raises(ConfigError, match=r"before fleet.init; call fleet.init\(\) first"):
        ask(Fleet())


@pytest.mark.parametrize("ask", [Fleet.get_lr, Fleet.state_dict, lambda fleet: fleet.minimize(None)])
def test_without_an_optimizer_its_questions_say_so(ask: Callable[[Fleet], Any]) -> None:
    with pytest.raises(ConfigError, match=r"call fleet.distributed_optimizer\(optimizer\) first"):
        ask(started())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_collective": 1}, "is_collective is 1; use True or False"),
        ({"is_collective": True, "role_maker": "worker"}, "role_maker is a str; use PaddleCloudRoleMaker"),
        ({"is_collective": True, "strategy": {}}, "the strategy is a dict; use fleet.DistributedStrategy"),
    ],
)
def test_wrong_arguments_of_init_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Fleet().init(**options)


def test_something_else_than_an_optimizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="was given a float; give an optimizer"):
        started().distributed_optimizer(0.1)


def test_something_else_than_a_strategy_is_refused() -> None:
    with pytest.raises(ConfigError, match="the strategy is a dict"):
        started().distributed_optimizer(momentum(), {"amp": True})


def test_halves_of_minimize_are_rejected_because_they_would_skip_the_all_reduce() -> None:
    optimizer = started().distributed_optimizer(momentum())
    for name in ("backward", "apply_gradients", "apply_optimize"):
        with pytest.raises(ConfigError, match=rf"has no {name}: .*use minimize\(loss\)"):
            getattr(optimizer, name)


def test_a_strategy_that_contradicts_the_job_is_refused_by_minimize() -> None:
    strategy = DistributedStrategy()
    strategy.build_strategy.num_trainers = 3
    with pytest.raises(ConfigError, match="num_trainers is 3, but the job has 1 ranks"):
        started(strategy=strategy).distributed_optimizer(momentum()).minimize(net())


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    job, exe = started(), paddle.static.Executor()
    with pytest.raises(ConfigError, match="executor is a NoneType; give a static.Executor"):
        job.save_persistables(None, str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="mode is 3; use 0: everything is saved"):
        job.save_persistables(exe, str(tmp_path), mode=3)
    compiled = paddle.static.CompiledProgram(paddle.static.Program())
    with pytest.raises(ConfigError, match="main_program is a CompiledProgram; give a static.Program"):
        job.save_persistables(exe, str(tmp_path), compiled)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_eager_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="distributed_model is for eager mode"):
        module.distributed_model(None)


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(AttributeError, match="distributed_optimiser"):
        _ = module.distributed_optimiser


def test_a_second_init_as_another_rank_is_refused() -> None:
    started()
    endpoints = ["127.0.0.1:6170", "127.0.0.1:6171"]
    other = UserDefinedRoleMaker(is_collective=True, current_id=1, worker_endpoints=endpoints)
    with pytest.raises(ConfigError, match="is rank 0 of 1 already and cannot become rank 1 of 2"):
        Fleet().init(other)


# --- one process --------------------------------------------------------------------------------------


def test_one_process_without_a_launcher_is_the_only_worker() -> None:
    fleet = started()
    assert (fleet.worker_index(), fleet.worker_num(), fleet.node_num(), fleet.local_rank()) == (0, 1, 1, 0)
    assert (fleet.rank(), fleet.nranks(), fleet.world_size()) == (0, 1, 1)
    assert fleet.is_first_worker()
    assert fleet.is_worker()
    assert not fleet.is_server()
    assert fleet.worker_endpoints() == ["127.0.0.1:6170"]
    assert fleet.worker_endpoints(to_string=True) == "127.0.0.1:6170"
    assert (fleet.server_num(), fleet.server_endpoints(), fleet.server_endpoints(to_string=True)) == (
        0,
        [],
        "",
    )
    fleet.barrier_worker()
    assert fleet.util is fleet.util


def test_init_can_be_called_again() -> None:
    fleet = started()
    world = collective.world()
    assert fleet.init(is_collective=True) is fleet
    assert collective.world() is world


def test_one_process_trains_the_plain_program() -> None:
    loss = net()
    plain = default_main_program().clone()
    updates, pairs = started().distributed_optimizer(momentum()).minimize(loss)
    text = str(default_main_program())
    assert (len(updates), [p.name for p, _ in pairs]) == (4, [p.name for p in plain.all_parameters()])
    assert "communicate" not in text
    assert "broadcast" not in str(default_startup_program())
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    losses = [float(exe.run(feed={"x": BATCH}, fetch_list=[loss])[0]) for _ in range(3)]
    assert losses[2] < losses[0]


def test_a_strategy_given_to_distributed_optimizer_replaces_the_other_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, strategy = DistributedStrategy(), DistributedStrategy()
    fleet = started(strategy=first)
    strategy.build_strategy.enable_inplace = False
    with caplog.at_level(logging.WARNING):
        fleet.distributed_optimizer(momentum())
        fleet.distributed_optimizer(momentum(), first)
        assert caplog.text == ""
        fleet.distributed_optimizer(momentum(), strategy).minimize(net())
    assert "this strategy replaces the one given before" in caplog.text
    assert default_main_program().build.without_passes == {"in_place"}


def test_an_optimizer_keeps_the_strategy_that_it_was_made_with() -> None:
    fleet, strategy = started(), DistributedStrategy()
    strategy.build_strategy.enable_inplace = False
    first = fleet.distributed_optimizer(momentum(), strategy)
    fleet.distributed_optimizer(momentum(), DistributedStrategy())
    first.minimize(net())
    assert default_main_program().build.without_passes == {"in_place"}


def test_a_strategy_cannot_be_changed_once_a_program_was_built_with_it() -> None:
    strategy = DistributedStrategy()
    started(strategy=strategy).distributed_optimizer(momentum()).minimize(net())
    with pytest.raises(ConfigError, match="sync_batch_norm"):
        strategy.sync_batch_norm = True
    copy.deepcopy(strategy).sync_batch_norm = True


def test_the_optimizer_inside_answers_for_rate_and_state() -> None:
    fleet = started()
    optimizer = fleet.distributed_optimizer(momentum())
    optimizer.minimize(net())
    paddle.static.Executor().run(default_startup_program())
    optimizer.set_lr(0.5)
    assert optimizer.get_lr() == fleet.get_lr() == 0.5
    fleet.set_lr(0.25)
    assert optimizer.inner.get_lr() == 0.25
    state = optimizer.state_dict()
    assert list(state) == [f"{p.name}_velocity_0" for p in default_main_program().all_parameters()]
    fleet.set_state_dict({name: value + 1 for name, value in state.items()})
    assert global_scope().get("fc_0.w_0_velocity_0").unique().tolist() == [1.0]
    assert copy.copy(optimizer).get_lr() == 0.25
    with pytest.raises(AttributeError):
        _ = optimizer.no_such_thing


def test_the_module_speaks_for_one_fleet() -> None:
    assert module.init == module.fleet.init
    module.init(is_collective=True)
    optimizer = module.distributed_optimizer(momentum())
    module.minimize(net())
    assert (module.worker_num(), optimizer.get_lr(), module.get_lr()) == (1, 0.1, 0.1)


def test_parameters_whose_first_values_cannot_be_broadcast_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model was built with another startup program than the one that minimize sees."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        loss = net()
    optimizer = started().distributed_optimizer(momentum())
    monkeypatch.setattr(collective, "world", lambda: World(Identity(rank=0, size=2)))
    before = str(main)
    with pytest.raises(ConfigError, match="'fc_0.w_0' is not initialized in 'startup'.* startup_program"):
        optimizer.minimize(loss)
    assert str(main) == before
    optimizer.minimize(loss, startup)
    assert str(startup).count(" = broadcast(") == 4


# --- two ranks ----------------------------------------------------------------------------------------


def train_and_look() -> None:
    """Two ranks with different seeds and halves of a batch look at what they have in common."""
    fleet = Fleet().init(is_collective=True)
    rank, group = fleet.worker_index(), collective.world().group("util")
    assert (fleet.worker_num(), fleet.is_first_worker()) == (2, rank == 0)
    assert len(fleet.worker_endpoints()) == 2

    def equal(value: Any) -> bool:
        first, second = group.all_gather(torch.as_tensor(value))
        return torch.equal(first, second)

    torch.manual_seed(rank)
    body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
    body[1].running_mean.uniform_()
    body.register_buffer("mask", torch.rand(8) > 0.5)
    body.register_forward_hook(lambda net, _, out: out * net.mask)
    loss = paddle.static.nn.fc(body(paddle.static.data("x", [None, 4], "float32")), 1).mean()
    optimizer = fleet.distributed_optimizer(momentum())
    _, pairs = optimizer.minimize(loss)
    exe, main, scope = paddle.static.Executor(), default_main_program(), global_scope()
    exe.run(default_startup_program())
    assert not equal(body[0].weight.detach()), "each rank had weights of its own"
    for name in main.persistables():
        assert equal(scope.get(name).to(torch.float64)), f"{name} begins differently"

    mine = {"x": np.split(BATCH, 2)[rank]}
    local = paddle.static.gradients(loss, main.var("fc_0.w_0"))[0]  # a gradient of the user's own: not summed
    reduced, alone = exe.run(main, mine, [pairs[-2][1], local])
    assert pairs[-2][0].name == "fc_0.w_0"
    assert equal(reduced)
    assert not equal(alone)
    exe.run(main, mine)  # other fetches in other steps
    (seen,) = exe.run(main, mine, [loss] if rank == 0 else ["fc_0.b_0"])  # and on other ranks
    assert seen.size == 1
    assert all(equal(scope.get(p.name)) for p in main.all_parameters())
    (mean,) = [name for name in main.persistables() if name.endswith("running_mean")]
    assert not equal(scope.get(mean)), "each rank has statistics of its own"

    before = scope.get("fc_0.w_0").clone()
    exe.run(main, mine, [loss], use_prune=True)
    assert torch.equal(scope.get("fc_0.w_0"), before), "use_prune trains nothing"
    exe.run(main, mine, [pairs[0][1]], use_prune=True)  # another list of collectives, on all ranks
    assert torch.equal(scope.get("fc_0.w_0"), before), "use_prune trains nothing"

    exe.run(from_dict(to_dict(main)), mine, [loss.name])
    assert not torch.equal(scope.get("fc_0.w_0"), before), "a loaded program trains"
    assert all(equal(scope.get(p.name)) for p in main.all_parameters())

    _save_and_load(main, rank, group)
    if rank == 0:  # testing is a matter of one rank
        exe.run(main.clone(for_test=True), mine, [loss.name])
    optimizer.set_lr(0.0)
    exe.run(main, mine)
    fleet.barrier_worker()


def _save_and_load(main: Any, rank: int, group: Any) -> None:
    """What rank 0 saves, both load."""
    path = Path(os.environ["FLEET_FOLDER"]) / "model"
    scope = global_scope()
    wanted = {name: scope.get(name).clone() for name in main.persistables() if "running" not in name}
    if rank == 0:
        paddle.static.save(main, str(path))
    group.barrier()
    for name in wanted:
        scope.get(name).zero_()
    paddle.static.load(main, str(path))
    for name, value in wanted.items():
        assert torch.equal(scope.get(name), value), name


def test_two_ranks_have_in_common_what_they_should(ranks: ForkServer, tmp_path: Path) -> None:
    ranks.check(2, train_and_look, FLEET_FOLDER=str(tmp_path), FULL_EXIT="1")


def meet_a_nan() -> None:
    """Rank 1 is fed a NaN: it says where; rank 0 says who."""
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN, which is expected here
    fleet = Fleet().init(is_collective=True)
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    fleet.distributed_optimizer(momentum()).minimize(net())
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    exe.run(feed={"x": BATCH})
    batch = BATCH.copy()
    if fleet.worker_index() == 1:
        batch[2, 1] = np.nan
    exe.run(feed={"x": batch})


def test_with_check_nan_inf_the_rank_that_has_the_nan_is_named_by_all(ranks: ForkServer) -> None:
    first, second = ranks.run(2, meet_a_nan)
    assert (first.code, second.code) == (1, 1)
    assert f"{NanInfError.__name__}: addmm" in second.said
    assert "it is the first node that did" in second.said
    assert (
        f"{PeerLostError.__name__}: all_reduce of 'fc_1.w_0@GRAD … fc_0.b_0@GRAD' (group 'dp', step 2)"
        in first.said
    )
    assert "rank 1 failed after 1 steps: NanInfError: addmm" in first.said


def drops_out() -> None:
    rank = collective.connect().rank
    main = default_main_program()
    main.random_seed = 3
    dropped = paddle.nn.functional.dropout(paddle.static.data("x", [64]), 0.5)
    (mine,) = paddle.static.Executor().run(feed={"x": np.ones(64, "float32")}, fetch_list=[dropped])
    first, second = collective.world().group("util").all_gather(torch.from_numpy(mine))
    assert not torch.equal(first, second), "each rank has a stream of its own"
    assert torch.equal(torch.from_numpy(mine), (first, second)[rank])


def test_ranks_with_one_seed_drop_out_different_units(ranks: ForkServer) -> None:
    ranks.check(2, drops_out)
