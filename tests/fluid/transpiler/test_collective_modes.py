"""The transpiler's modes without servers: "nccl2" and "collective" on two ranks."""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from argosy import fluid
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.fluid.transpiler import collective
from tests.ranks import ForkServer

Arrays = dict[str, np.ndarray[Any, Any]]
STEPS, BATCH, RATE = 3, 8, 0.2


def built() -> Any:
    """A small net that SGD trains, in the default programs; gives its loss."""
    default_main_program().random_seed = default_startup_program().random_seed = 3
    x, y = fluid.data("x", [None, 5]), fluid.data("y", [None, 1])
    out = fluid.layers.fc(fluid.layers.fc(x, 6, act="tanh"), 1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    fluid.optimizer.SGD(RATE).minimize(loss)
    return loss


def inputs() -> tuple[Any, Any]:
    default_main_program().random_seed = default_startup_program().random_seed = 3
    return fluid.data("x", [None, 5]), fluid.data("y", [None, 1])


def squared_error(x: Any, y: Any, name: str) -> tuple[Any, list[str]]:
    """The mean loss of a small net, and the names of its parameters."""
    names = [f"{name}.{part}" for part in ("w0", "b0", "w1", "b1")]
    attrs = [fluid.ParamAttr(name=one) for one in names]
    hidden = fluid.layers.fc(x, 6, param_attr=attrs[0], bias_attr=attrs[1], act="tanh")
    out = fluid.layers.fc(hidden, 1, param_attr=attrs[2], bias_attr=attrs[3])
    return fluid.layers.mean(fluid.layers.square_error_cost(out, y)), names


def two_optimizers() -> None:
    x, y = inputs()
    for name, optimizer in (("a", fluid.optimizer.SGD(RATE)), ("b", fluid.optimizer.Momentum(RATE, 0.5))):
        loss, names = squared_error(x, y, name)
        optimizer.minimize(loss, parameter_list=names)


def gradients_before_minimize() -> None:
    x, y = inputs()
    x.stop_gradient = False
    loss, _ = squared_error(x, y, "a")
    fluid.gradients(loss * 2.0, x)
    fluid.gradients(loss, x)
    fluid.optimizer.SGD(RATE).minimize(loss)


def gradient_in_the_loss() -> None:
    """Of a sum over the samples, so that each sample's part does not depend on the batch."""
    x, y = inputs()
    x.stop_gradient = False
    loss, _ = squared_error(x, y, "a")
    out = fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr(name="c"), act="tanh")
    (inner,) = fluid.gradients(fluid.layers.reduce_sum(out), x)
    penalty = fluid.layers.mean(fluid.layers.square(inner))
    fluid.optimizer.SGD(RATE).minimize(loss + penalty)


def halved_gradients() -> None:
    x, y = inputs()
    loss, _ = squared_error(x, y, "a")
    optimizer = fluid.optimizer.SGD(RATE)
    optimizer.apply_gradients([(p, g * 0.5) for p, g in optimizer.backward(loss)])


MODELS: dict[str, Callable[[], Any]] = {
    "two_optimizers": two_optimizers,
    "gradients_before_minimize": gradients_before_minimize,
    "gradient_in_the_loss": gradient_in_the_loss,
    "halved_gradients": halved_gradients,
}


def batch(step: int, part: int = 0, parts: int = 1) -> Arrays:
    rng = np.random.RandomState(step)
    x = rng.randn(BATCH, 5).astype("float32")
    return {"x": x[part::parts], "y": x[part::parts, :1] * 2 + 1}


def parameters() -> Arrays:
    scope = global_scope()
    return {p.name: scope.get(p.name).numpy().copy() for p in default_main_program().all_parameters()}


def transpile(config: dict[str, Any], trainer_id: int, trainers: Any, **more: Any) -> None:
    options = fluid.DistributeTranspilerConfig()
    for name, value in config.items():
        setattr(options, name, value)
    fluid.DistributeTranspiler(options).transpile(trainer_id, trainers=trainers, **more)


CONFIGS: tuple[dict[str, Any], ...] = (
    {"mode": "nccl2"},
    {"mode": "nccl2", "nccl_comm_num": 2},
    {"mode": "collective"},
    {"mode": "collective", "collective_mode": "grad_allreduce"},
    {"class": "GradAllReduce"},
)
TWICE: tuple[dict[str, Any], ...] = tuple(
    {"mode": mode, "model": "two_optimizers"} for mode in ("nccl2", "collective")
)
SPECIAL: tuple[dict[str, Any], ...] = tuple(
    {"mode": "nccl2", "model": model}
    for model in ("gradients_before_minimize", "gradient_in_the_loss", "halved_gradients")
)
LOCAL: tuple[dict[str, Any], ...] = (
    {"mode": "collective", "collective_mode": "local_sgd"},
    {"class": "LocalSGD"},
)


def trains() -> None:
    """On a rank: all cases, one after the other."""
    for number, config in enumerate((*CONFIGS, *TWICE, *SPECIAL, *LOCAL)):
        with program_guard(Program("main"), Program("startup")), names.guard(), scope_guard(Scope()):
            _train(dict(config), f"{os.environ['FOLDER']}/{number}")


def _train(config: dict[str, Any], path: str) -> None:
    rank, endpoints = int(os.environ["PADDLE_TRAINER_ID"]), os.environ["PADDLE_TRAINER_ENDPOINTS"]
    here = os.environ["PADDLE_CURRENT_ENDPOINT"]
    MODELS.get(config.pop("model", ""), built)()
    if "class" in config:
        transpiler = getattr(collective, config["class"])(nrings=1)
        transpiler.transpile(default_startup_program(), default_main_program(), rank, endpoints, here)
    else:
        transpile(config, rank, endpoints, current_endpoint=here)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(default_startup_program())
    for step in range(STEPS):
        exe.run(feed=batch(step, rank, 2))
    np.savez(f"{path}.{rank}.npz", **parameters())


Learnt = Callable[[dict[str, Any]], list[Arrays]]


@pytest.fixture(scope="module")
def learnt(ranks: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Learnt:
    """For each case, the parameters of both ranks; one job trains them all."""
    folder = tmp_path_factory.mktemp("cases")
    ranks.check(2, trains, FOLDER=str(folder))
    cases = (*CONFIGS, *TWICE, *SPECIAL, *LOCAL)
    return lambda case: [dict(np.load(folder / f"{cases.index(case)}.{rank}.npz")) for rank in range(2)]


def assert_equal(actual: list[Arrays], wanted: Arrays) -> None:
    for one in actual:
        for name, value in wanted.items():
            np.testing.assert_allclose(one[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def learnt_alone() -> Arrays:
    """What one process makes of the whole batches."""
    exe = fluid.Executor()
    exe.run(default_startup_program())
    for step in range(STEPS):
        exe.run(feed=batch(step))
    return parameters()


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_two_trainers_end_where_one_process_with_the_whole_batch_ends(
    learnt: Learnt, config: dict[str, Any]
) -> None:
    built()
    assert_equal(learnt(config), learnt_alone())


@pytest.mark.parametrize("config", TWICE, ids=str)
def test_each_loss_is_scaled_once(learnt: Learnt, config: dict[str, Any]) -> None:
    two_optimizers()
    assert_equal(learnt(config), learnt_alone())


@pytest.mark.parametrize("config", SPECIAL, ids=str)
def test_only_the_loss_that_is_minimized_is_scaled(learnt: Learnt, config: dict[str, Any]) -> None:
    MODELS[config["model"]]()
    assert_equal(learnt(config), learnt_alone())


def test_gradients_of_given_target_gradients_are_rejected() -> None:
    """Nothing of ours begins that backward pass, so nothing could be divided by the number of ranks."""
    x, y = inputs()
    loss, names = squared_error(x, y, "a")
    parameters: list[Any] = [default_main_program().var(name) for name in names]
    given = fluid.layers.fill_constant([1], "float32", 3.0)
    pairs: list[Any] = list(zip(parameters, fluid.gradients(loss, parameters, [given]), strict=True))
    fluid.optimizer.SGD(RATE).apply_gradients([(p, g * 2.0) for p, g in pairs])
    (done,) = default_main_program().training.optimizer_calls
    trained = [(p, default_main_program().var(g)) for p, g in zip(parameters, done.gradients, strict=True)]
    with pytest.raises(
        ConfigError, match="of 'a.w0' cannot be divided by the number of ranks: .*target_grad"
    ):
        training_passes(DistributedStrategy(), default_main_program(), trained, ranks=2)


def after_a_step(exe: Any, before: Arrays, feed: Arrays) -> Arrays:
    """What one process makes of these parameters."""
    with scope_guard(Scope()):
        exe.run(default_startup_program())
        for name, value in before.items():
            global_scope().get(name).numpy()[...] = value
        exe.run(feed=feed)
        return parameters()


@pytest.mark.parametrize("config", LOCAL, ids=str)
def test_local_sgd_takes_the_mean_of_the_parameters_after_each_step(
    learnt: Learnt, config: dict[str, Any]
) -> None:
    built()
    exe = fluid.Executor()
    exe.run(default_startup_program())
    wanted = parameters()
    for step in range(STEPS):
        by_rank = [after_a_step(exe, wanted, batch(step, part, 2)) for part in range(2)]
        wanted = {name: (by_rank[0][name] + by_rank[1][name]) / 2 for name in wanted}
    assert_equal(learnt(config), wanted)


TWO = "127.0.0.1:6174,127.0.0.1:6175"


@pytest.mark.parametrize(
    ("mode", "trainer_id", "trainers", "endpoint", "message"),
    [
        ("nccl2", 0, 2, "127.0.0.1:6174", "trainers is 2; in mode 'nccl2' list all trainers"),
        ("collective", 0, 2, "127.0.0.1:6174", "trainers is 2; in mode 'collective' list all trainers"),
        ("nccl2", -1, TWO, "127.0.0.1:6174", "trainer_id is -1; use 0 to 1"),
        ("nccl2", 2, TWO, "127.0.0.1:6174", "trainer_id is 2; use 0 to 1"),
        ("collective", 0, "127.0.0.1:6174", "127.0.0.1:6174", "'collective' needs two trainers or more"),
        ("nccl2", 0, TWO, "127.0.0.1:6176", "'127.0.0.1:6176' is not among the trainers"),
        ("nccl2", 0, "127.0.0.1:6174,here", "127.0.0.1:6174", "is not an endpoint"),
    ],
)
def test_invalid_arguments_are_rejected(
    mode: str, trainer_id: int, trainers: Any, endpoint: str, message: str
) -> None:
    built()
    with pytest.raises(ConfigError, match=message):
        transpile({"mode": mode}, trainer_id, trainers, current_endpoint=endpoint)


def test_a_program_without_updates_and_questions_about_servers_are_refused() -> None:
    with pytest.raises(ConfigError, match="has no updates; call optimizer.minimize"):
        transpile({"mode": "nccl2"}, 0, TWO, program=Program("empty"))
    config = fluid.DistributeTranspilerConfig()
    config.mode = "nccl2"
    t = fluid.DistributeTranspiler(config)
    for ask in (t.get_trainer_program, lambda: t.get_pserver_program("127.0.0.1:6174")):
        with pytest.raises(ConfigError, match="mode 'nccl2' has no servers; run the program"):
            ask()
