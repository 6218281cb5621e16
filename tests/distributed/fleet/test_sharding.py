"""strategy.sharding: ranks that each store a shard of the optimizer state train as plain torch does."""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy import nn
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_checks import check_collective
from argosy.engine.errors import ConfigError, FetchError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ops.sharding import all_gather_shards, reduce_scatter
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ForkServer

Arrays = dict[str, np.ndarray[Any, Any]]
STEPS = 3


class Training:
    """A small network under a strategy, with its own scope."""

    def __init__(
        self, optimizer: Any, sharding: dict[str, Any] | None, has_average: bool = False, **switches: Any
    ) -> None:
        strategy = fleet.DistributedStrategy()
        for name, value in switches.items():
            setattr(strategy, name, value)
        if sharding is not None:
            strategy.sharding, strategy.sharding_configs = True, sharding
        self.main, self.startup, self.scope = Program("main"), Program("startup"), Scope()
        with program_guard(self.main, self.startup), names.guard():
            torch.manual_seed(0)
            fleet.init(is_collective=True, strategy=strategy)
            x = paddle.static.data("x", [None, 3, 6, 6], "float32")
            y = paddle.static.data("y", [None, 1], "int64")
            hidden = nn.functional.relu(paddle.static.nn.conv2d(x, 24, 3))
            hidden = paddle.static.nn.fc(hidden, 5, activation="tanh")
            self.loss = nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 4), y)
            self.optimizer = fleet.distributed_optimizer(optimizer, strategy)
            self.optimizer.minimize(self.loss)
            self.average = paddle.static.ExponentialMovingAverage(0.5)
            if has_average:
                self.average.update()
        self.exe = paddle.static.Executor()
        with scope_guard(self.scope):
            self.exe.run(self.startup)
        self.initial = self.parameters()

    def run(self, first: int = 0, last: int = STEPS, factor: float = 1.0) -> "Training":
        """Steps `first` to `last` on this rank's part of each batch, multiplied by `factor`."""
        for step in range(first, last):
            self.step(step, factor)
        return self

    def step(self, step: int, factor: float = 1.0, fetches: Sequence[str] = ()) -> list[Any]:
        """One step on this rank's part of a batch; returns the loss and the fetches."""
        size = 8 // fleet.worker_num()
        part = slice(size * fleet.worker_index(), size * (fleet.worker_index() + 1))
        images, labels = batch(step)
        feed = {"x": np.float32(factor) * images[part], "y": labels[part]}
        with scope_guard(self.scope):
            return self.exe.run(self.main, feed, [self.loss, *fetches])

    def parameters(self) -> Arrays:
        return {p.name: self.scope.get(p.name).numpy().copy() for p in self.main.all_parameters()}

    def state(self) -> dict[str, torch.Tensor]:
        """The optimizer's variables but for the learning rate and step counts."""
        known = {p.name for p in self.main.all_parameters()}
        return {
            n: v
            for n, v in self.scope.values_of().items()
            if n not in known and v is not None and v.numel() != 1
        }

    def save(self, directory: str) -> None:
        with scope_guard(self.scope):
            fleet.save_persistables(self.exe, directory, self.main)
        fleet.barrier_worker()

    def load(self, directory: str) -> None:
        with scope_guard(self.scope):
            paddle.static.load_vars(self.exe, directory, self.main)


def batch(step: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(step)
    return rng.standard_normal((8, 3, 6, 6)).astype("float32"), rng.integers(0, 4, (8, 1))


def by_torch(initial: Arrays, case: str, steps: int = STEPS) -> Arrays:
    """The parameters after some steps of plain torch on whole batches, from these initial values."""
    params = {name: torch.tensor(value, requires_grad=True) for name, value in initial.items()}
    optimizer = TORCH[case](list(params.values()))
    w, b, w0, b0, w1, b1 = params.values()
    for step in range(steps):
        images, labels = batch(step)
        optimizer.zero_grad()
        hidden = torch.relu(torch.conv2d(torch.from_numpy(images), w, b)).flatten(1)
        logits = torch.tanh(hidden @ w0 + b0) @ w1 + b1
        torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels[:, 0])).backward()
        if case == "value":
            torch.nn.utils.clip_grad_value_(params.values(), 0.01)
        if case == "norm":
            for param in params.values():
                param.grad *= 0.01 / max(0.01, float(torch.linalg.vector_norm(param.grad)))  # type: ignore[arg-type]
        if case == "global norm":
            grads = torch.cat([p.grad.flatten() for p in params.values() if p.grad is not None])
            for param in params.values():
                param.grad *= 0.1 / max(0.1, float(torch.linalg.vector_norm(grads)))
        if case == "L1":
            for param in params.values():
                param.grad += 0.01 * param.detach().sign()
        optimizer.step()
    return {name: param.detach().numpy() for name, param in params.items()}


SGD, Momentum = paddle.optimizer.SGD, paddle.optimizer.Momentum
CASES: dict[str, Callable[[], Any]] = {
    "sgd": lambda: SGD(0.1),
    "momentum": lambda: Momentum(0.1, 0.9, weight_decay=0.01),
    "adam": lambda: paddle.optimizer.Adam(0.01),
    "adamw": lambda: paddle.optimizer.AdamW(0.01, weight_decay=0.1),
    "L1": lambda: Momentum(0.1, 0.9, weight_decay=paddle.regularizer.L1Decay(0.01)),
    "value": lambda: Momentum(0.1, 0.9, grad_clip=nn.ClipGradByValue(0.01)),
    "norm": lambda: Momentum(0.1, 0.9, grad_clip=nn.ClipGradByNorm(0.01)),
    "global norm": lambda: Momentum(0.1, 0.9, grad_clip=nn.ClipGradByGlobalNorm(0.1)),
}
TORCH: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda params: torch.optim.SGD(params, 0.1),
    "momentum": lambda params: torch.optim.SGD(params, 0.1, 0.9, weight_decay=0.01),
    "adam": lambda params: torch.optim.Adam(params, 0.01),
    "adamw": lambda params: torch.optim.AdamW(params, 0.01, weight_decay=0.1),
    **{c: lambda params: torch.optim.SGD(params, 0.1, 0.9) for c in ("L1", "value", "norm", "global norm")},
}


def close(actual: Arrays, expected: Arrays, what: str) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=2e-4, atol=2e-6, err_msg=f"{name}, {what}")


def equal(actual: Arrays, expected: Arrays, what: str) -> None:
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=f"{name}, {what}")


# --- two ranks of one host ----------------------------------------------------------------------------


FAST = ("adam", "global norm")


def train(cases: Iterable[str]) -> None:
    for case in cases:
        training = Training(CASES[case](), {})
        close(training.run().parameters(), by_torch(training.initial, case), case)
        if "norm" not in case:  # a norm of rows rounds differently
            equal(training.parameters(), Training(CASES[case](), None).run().parameters(), case)


def other_cases_on_one_host() -> None:
    fleet.init(is_collective=True)
    train(case for case in CASES if case not in FAST)
    check_amp()
    switches = {"nccl_comm_num": 2, "fuse_grad_size_in_MB": 0}
    training = Training(CASES["momentum"](), {"shared_weights": False}, **switches)
    close(training.run().parameters(), by_torch(training.initial, "momentum"), "private weights")
    check_copies()
    check_averages()


def on_one_host() -> None:
    fleet.init(is_collective=True)
    train(FAST)
    check_memory(check_saving(os.environ["SAVED"]))
    check_rejections()


def check_memory(training: Training) -> None:
    """Each rank has about half of the state, and both have the same weights in the same memory."""
    stored = fleet.util.all_gather(sum(v.numel() for v in training.state().values()))
    assert sum(stored) == 2 * sum(v.size for v in training.initial.values())
    assert max(stored) < 1.1 * min(stored)
    assert training.state()["fc_0.w_0_moment1_0"].shape[0] < 384
    assert all(training.scope.is_shared(name) for name in training.initial)
    assert len([n for n in training.main.graph.nodes if n.target is reduce_scatter]) == 1
    assert len([n for n in training.main.graph.nodes if n.target is all_gather_shards]) == 1
    rank = fleet.worker_index()
    fleet.barrier_worker()
    if rank == 0:
        training.scope.get("fc_1.b_0").fill_(7.0)
    fleet.barrier_worker()
    assert training.scope.get("fc_1.b_0").tolist() == [7.0] * 4, "the ranks share the memory"


def check_copies() -> None:
    """What else writes a parameter leaves the shared memory alone until all ranks are in the next step."""
    training = Training(CASES["sgd"](), {}).run()
    before, after = training.parameters(), Training(CASES["sgd"](), {}).run(0, 4).parameters()
    changed, startup = Program("changed"), Program()
    with program_guard(changed, startup):
        w = paddle.static.create_parameter([4], "float32", name="fc_1.b_0")
        paddle.assign(w * 2.0, w)
    with scope_guard(training.scope):
        training.exe.run(changed)
        training.scope.find_var("fc_0.b_0").get_tensor().set(np.full(5, 3.0, "float32"))  # type: ignore[union-attr]
    assert not training.scope.is_shared("fc_1.b_0")
    assert not training.scope.is_shared("fc_0.b_0")
    np.testing.assert_array_equal(training.scope.get("fc_1.b_0"), 2 * before["fc_1.b_0"])
    training.scope.find_var("fc_1.b_0").get_tensor().set(before["fc_1.b_0"])  # type: ignore[union-attr]
    training.scope.find_var("fc_0.b_0").get_tensor().set(before["fc_0.b_0"])  # type: ignore[union-attr]
    equal(training.run(3, 4).parameters(), after, "values that were set")
    assert training.scope.is_shared("fc_1.b_0")
    test = training.main.clone(for_test=True)
    with scope_guard(training.scope):
        images, labels = batch(0)
        training.exe.run(test, {"x": images, "y": labels}, [training.loss.name])
    assert training.scope.is_shared("conv2d_0.w_0"), "a test reads the shared memory"


def check_averages() -> None:
    """The averages that one rank evaluates do not change the weights of another."""
    training = Training(CASES["sgd"](), {}, has_average=True).run()
    before = training.parameters()
    with scope_guard(training.scope):
        if fleet.worker_index() == 0:
            with training.average.apply(training.exe):
                fleet.barrier_worker()
                assert not np.array_equal(training.parameters()["fc_1.w_0"], before["fc_1.w_0"])
                fleet.barrier_worker()
        else:
            fleet.barrier_worker()
            equal(training.parameters(), before, "rank 0 has applied its averages")
            fleet.barrier_worker()
    equal(training.parameters(), before, "restored")
    training.run(3, 4)


def check_rejections() -> None:
    training = Training(CASES["momentum"](), {}).run(0, 1)
    with scope_guard(training.scope), pytest.raises(ConfigError, match=r"built with strategy.sharding"):
        paddle.static.save(training.main, "/never/written")
    with scope_guard(training.scope), pytest.raises(ConfigError, match=r"a shard only .strategy.sharding"):
        paddle.static.save_vars(training.exe, "/never/written", training.main)
    with scope_guard(training.scope), pytest.raises(ConfigError, match=r"state_dict: .*a shard only"):
        training.optimizer.state_dict()
    images, labels = batch(0)
    with scope_guard(training.scope), pytest.raises(FetchError, match=r"the sum of some rows only"):
        training.exe.run(training.main, {"x": images, "y": labels}, ["fc_0.w_0@GRAD"])
    with pytest.raises(ConfigError, match=r"strategy.sharding and the optimizer lamb are both on"):
        Training(paddle.optimizer.Lamb(0.1), {})


def check_amp() -> None:
    """bfloat16 as without sharding; with float16 both ranks skip the steps in which one overflows."""
    amp = {"amp": True}
    expected = Training(CASES["momentum"](), None, **amp).run().parameters()
    equal(Training(CASES["momentum"](), {}, **amp).run().parameters(), expected, "bfloat16")
    halving = {"dtype": "float16", "decr_every_n_nan_or_inf": 1, "decr_ratio": 0.5}
    training = Training(CASES["momentum"](), {}, amp=True, amp_configs=halving)
    with scope_guard(training.scope):
        training.run(factor=1e30 if fleet.worker_index() == 1 else 1.0)
        assert training.optimizer.get_loss_scaling() == 32768 / 8
        equal(training.parameters(), training.initial, "all steps were skipped")
    training.run()
    assert not np.array_equal(training.parameters()["fc_1.w_0"], training.initial["fc_1.w_0"])
    fused = Training(CASES["adam"](), {}, build_strategy=fusing(), fp16_allreduce=True).run().parameters()
    plain = Training(CASES["adam"](), None, fp16_allreduce=True).run().parameters()
    close(fused, plain, "fused updates of gradients in 16 bits")


def fusing() -> Any:
    build = paddle.static.BuildStrategy()
    build.fuse_all_optimizer_ops = True
    return build


def check_saving(directory: str) -> Training:
    """A file and a checkpoint have whole variables; both modes continue from them. Returns the training with Adam."""
    training = Training(CASES["adam"](), {}).run()
    training.save(f"{directory}/two")
    sharded, plain = Training(CASES["adam"](), {}), Training(CASES["adam"](), None)
    expected = training.run(3, 5).parameters()
    for resumed in (sharded, plain):
        resumed.load(f"{directory}/two")
        equal(resumed.run(3, 5).parameters(), expected, "loaded")
    checkpoint = fleet.Checkpoint(f"{directory}/checkpoints")
    checkpoint.save(5, sharded.exe, sharded.main, scope=sharded.scope)
    expected = sharded.run(5, 6).parameters()
    for resumed in (Training(CASES["adam"](), {}), Training(CASES["adam"](), None)):
        assert checkpoint.restore(resumed.exe, resumed.main, scope=resumed.scope) is not None
        equal(resumed.run(5, 6).parameters(), expected, "restored")
    with scope_guard(plain.scope):
        state = plain.optimizer.state_dict()
    with scope_guard(sharded.scope):
        sharded.optimizer.set_state_dict(state)
    rows = sharded.state()["fc_0.w_0_moment1_0"]
    first = 0 if fleet.worker_index() == 0 else 384 - len(rows)
    assert torch.equal(rows, state["fc_0.w_0_moment1_0"][first : first + len(rows)])
    return training


def test_two_ranks_train_and_resume(ranks: ForkServer, tmp_path: Path) -> None:
    ranks.check(2, on_one_host, SAVED=str(tmp_path))
    single = Training(CASES["adam"](), {})  # one rank: nothing is sharded
    single.load(str(tmp_path / "two"))
    close(single.run(3, 5).parameters(), by_torch(single.initial, "adam", 5), "two ranks, then one")


@pytest.mark.slow
def test_two_ranks_train_with_other_optimizers_clips_and_settings(ranks: ForkServer) -> None:
    ranks.check(2, other_cases_on_one_host)


# --- sockets, replicas --------------------------------------------------------------------------------


def by_sockets() -> None:
    fleet.init(is_collective=True)
    for case in ("adam", "global norm"):
        training = Training(CASES[case](), {})
        close(training.run().parameters(), by_torch(training.initial, case), case)
    assert not training.scope.shared


def with_replicas() -> None:
    """Two sharding groups of two ranks, through shared memory and not, and four ranks in one group."""
    fleet.init(is_collective=True)
    hybrid = {"sharding_degree": 2, "hybrid_dp": True}
    for case in ("momentum", "global norm"):
        training = Training(CASES[case](), hybrid)
        close(training.run().parameters(), by_torch(training.initial, case), case)
    training = Training(CASES["adam"](), {})
    close(training.run().parameters(), by_torch(training.initial, "adam"), "four shards")
    training.save(os.environ["SAVED"])
    resumed = Training(CASES["adam"](), {"dp_degree": 2})
    resumed.load(os.environ["SAVED"])
    close(resumed.run(3, 5).parameters(), by_torch(resumed.initial, "adam", 5), "four shards, then two")


def test_two_ranks_through_sockets(ranks: ForkServer) -> None:
    ranks.check(2, by_sockets, ARGOSY_SHM="0")


@pytest.mark.slow
def test_replicas_of_sharding_groups(ranks: ForkServer, tmp_path: Path) -> None:
    ranks.check(4, with_replicas, timeout_s=120, SAVED=str(tmp_path / "shm"))
    ranks.check(4, with_replicas, timeout_s=120, SAVED=str(tmp_path / "sockets"), ARGOSY_SHM="0")


# --- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configs", "ranks", "message"),
    [
        ({"sharding_degree": 3}, 4, "groups of 3 do not divide 4 ranks"),
        ({"sharding_degree": 2}, 4, "'hybrid_dp': True"),
        (
            {"sharding_degree": 2, "dp_degree": 4},
            4,
            "sharding_degree 2 x dp_degree 4 is not the number of ranks",
        ),
        ({"sharding_degree": 2, "sharding_group_size": 4}, 4, "two names of one setting"),
        ({"sharding_degree": 1, "hybrid_dp": True}, 4, "a degree of 1 shards nothing"),
        ({"mp_degree": 2}, 4, "tensor parallelism"),
        ({"pp_degree": 2}, 4, "pipeline parallelism"),
        ({"optimize_offload": True}, 2, "the state of the optimizer stays in memory"),
        ({"segment_anchors": ["fc_0.tmp_0"]}, 2, "order of backward"),
        ({"sharding_segment_strategy": "segment_anchors"}, 2, "use 'segment_broadcast_MB'"),
    ],
)
def test_settings_that_do_not_fit_are_rejected(configs: dict[str, Any], ranks: int, message: str) -> None:
    strategy = fleet.DistributedStrategy()
    strategy.sharding, strategy.sharding_configs = True, configs
    with pytest.raises(ConfigError, match=message):
        check_collective(strategy, ranks, 1)


def test_switches_that_exclude_sharding_are_named() -> None:
    for switch in ("use_hierarchical_allreduce", "reduce_strategy"):
        strategy = fleet.DistributedStrategy()
        strategy.sharding = True
        if switch == "reduce_strategy":
            strategy.build_strategy.reduce_strategy = paddle.static.BuildStrategy.ReduceStrategy.Reduce
        else:
            strategy.use_hierarchical_allreduce = True
        with pytest.raises(ConfigError, match=f"strategy.sharding and .*{switch}.* both on"):
            check_collective(strategy, 2, 1)
