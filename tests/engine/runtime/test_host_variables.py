"""Ranks of a host that divide updates: results, scopes and files as if each rank had everything to itself."""

# SPDX-License-Identifier: Apache-2.0
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy import nn
from argosy.distributed import fleet
from argosy.engine.collective import world
from argosy.engine.collective.host_memory import Status
from argosy.engine.errors import ArgosyError, ScopeError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.narrow_copies import CopySpec
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ForkServer

Arrays = dict[str, np.ndarray[Any, Any]]
STEPS = 3
SGD, Momentum = paddle.optimizer.SGD, paddle.optimizer.Momentum


class Training:
    """A small network under a strategy, with its own scope."""

    def __init__(
        self, optimizer: Any, divides: bool, has_average: bool = False, fuses: bool = True, **switches: Any
    ) -> None:
        strategy = fleet.DistributedStrategy()
        strategy.build_strategy.fuse_all_optimizer_ops = fuses
        strategy.build_strategy.divide_updates = divides
        for name, value in switches.items():
            setattr(strategy, name, value)
        self.main, self.startup, self.scope = Program("main"), Program("startup"), Scope()
        with program_guard(self.main, self.startup), names.guard():
            paddle.seed(0)
            fleet.init(is_collective=True, strategy=strategy)
            x = paddle.static.data("x", [None, 3, 6, 6], "float32")
            y = paddle.static.data("y", [None, 1], "int64")
            hidden = nn.functional.relu(paddle.static.nn.batch_norm(paddle.static.nn.conv2d(x, 24, 3)))
            hidden = paddle.static.nn.fc(hidden, 37, activation="tanh")
            self.loss = nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 4), y)
            self.optimizer = fleet.distributed_optimizer(optimizer, strategy)
            self.optimizer.minimize(self.loss)
            self.average = paddle.static.ExponentialMovingAverage(0.5)
            if has_average:
                self.average.update()
        self.exe = paddle.static.Executor()
        self.agreed: list[Status] = []
        with scope_guard(self.scope):
            self.exe.run(self.startup)

    def run(self, first: int = 0, last: int = STEPS, fetches: tuple[str, ...] = ()) -> list[Any]:
        """Steps `first` to `last` on this rank's part of each batch; returns the fetches of all of them."""
        return [value for step in range(first, last) for value in self.step(step, self.main, fetches)]

    def step(self, step: int, program: Any, fetches: tuple[str, ...] = ()) -> list[Any]:
        """One step of a program on this rank's part of a batch; returns the loss and the fetches."""
        size = 8 // fleet.worker_num()
        part = slice(size * fleet.worker_index(), size * (fleet.worker_index() + 1))
        rng = np.random.default_rng(step)
        images, labels = rng.standard_normal((8, 3, 6, 6)).astype("float32"), rng.integers(0, 4, (8, 1))
        with scope_guard(self.scope):
            feed = {"x": images[part], "y": labels[part]}
            fetched = self.exe.run(program, feed, [self.loss, *fetches])
        self.agreed.append(world().host_memory.agreed)
        return fetched

    def values(self) -> Arrays:
        """All variables, as a user reads them."""
        scope = self.scope
        return {n: np.array(scope.find_var(n).get_tensor()) for n in self.main.persistables() if n in scope}  # type: ignore[union-attr]


def equal(actual: Arrays, expected: Arrays, what: str) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=f"{name}, {what}")


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: SGD(0.1),
    "momentum": lambda: Momentum(0.1, 0.9, use_nesterov=True, weight_decay=0.01),
    "momentum 0": lambda: Momentum(0.1, 0.0),
    "adam": lambda: paddle.optimizer.Adam(0.01),
    "adamw": lambda: paddle.optimizer.AdamW(0.01, weight_decay=0.1),
}


Case = tuple[Callable[[], Any], dict[str, Any]]
OVERLAP = {"nccl_comm_num": 2, "sync_nccl_allreduce": False, "fuse_grad_size_in_MB": 0}
DIVIDED: dict[str, Case] = {
    **{name: (optimizer, {}) for name, optimizer in OPTIMIZERS.items()},
    "bfloat16": (OPTIMIZERS["momentum"], {"amp": True}),
    "small buckets": (OPTIMIZERS["momentum"], {"fuse_grad_size_in_MB": 0}),
    "averages": (OPTIMIZERS["sgd"], {"has_average": True}),
    "torch's kernels": (OPTIMIZERS["adam"], {"fuses": False}),
}
UNDIVIDED: dict[str, Case] = {  # something else reads the sums, or overlap
    "clip": (lambda: Momentum(0.1, 0.9, grad_clip=nn.ClipGradByGlobalNorm(0.1)), {}),
    "two communicators, overlap": (OPTIMIZERS["adam"], OVERLAP),
    "gradients in 16 bits": (OPTIMIZERS["adam"], {"fp16_allreduce": True}),
}
FAST = ("adam", "bfloat16", "clip")


def results_are_equal() -> None:
    fleet.init(is_collective=True)
    compare({name: DIVIDED[name] for name in DIVIDED if name in FAST})
    compare_undivided({name: UNDIVIDED[name] for name in UNDIVIDED if name in FAST})


def results_of_other_cases_are_equal() -> None:
    fleet.init(is_collective=True)
    compare({name: DIVIDED[name] for name in DIVIDED if name not in FAST})
    merging = {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}}
    divided, plain = (Training(OPTIMIZERS["adam"](), divides, **merging) for divides in (True, False))
    assert divided.run(0, 7) == plain.run(0, 7)
    assert divided.scope.is_shared("fc_0.w_0")
    equal(divided.values(), plain.values(), "gradient_merge")
    compare_undivided({name: UNDIVIDED[name] for name in UNDIVIDED if name not in FAST})


def compare(cases: dict[str, Case]) -> None:
    """From the second step on the ranks divide, and all bits are those without."""
    for name, (optimizer, switches) in cases.items():
        divided, plain = (Training(optimizer(), divides, **switches) for divides in (True, False))
        losses = divided.run(), plain.run()
        assert divided.agreed == [Status.READY, Status.SHARED, Status.SHARED], name
        assert losses[0] == losses[1]
        equal(divided.values(), plain.values(), name)


def compare_undivided(cases: dict[str, Case]) -> None:
    """The ranks do not divide, and all bits are those of a strategy that does not ask for it."""
    for name, (optimizer, switches) in cases.items():
        divided, plain = (Training(optimizer(), divides, **switches) for divides in (True, False))
        assert divided.run() == plain.run()
        assert not divided.scope.host.shared
        equal(divided.values(), plain.values(), name)


def test_two_ranks_get_the_results_of_undivided_updates(ranks: ForkServer) -> None:
    ranks.check(2, results_are_equal)


@pytest.mark.slow
def test_they_do_with_other_optimizers_and_strategies(ranks: ForkServer) -> None:
    ranks.check(2, results_of_other_cases_are_equal)


def copies_are_shared() -> None:
    """In mixed precision the divided updates write the 16-bit copies, and what makes them stale is noticed."""
    fleet.init(is_collective=True)
    pair = [Training(OPTIMIZERS["momentum"](), divides, amp=True) for divides in (True, False)]
    for training in pair:
        training.run()
    scope, name = pair[0].scope, "fc_0.w_0"
    copy, is_first = scope.copies.value_of(name), fleet.worker_index() == 0
    assert copy.dtype is torch.bfloat16
    assert torch.equal(copy, scope.peek(name).bfloat16())
    check_no_cast(pair[0])
    before = copy.clone()
    fleet.barrier_worker()
    if is_first:
        copy.fill_(7.0)
    fleet.barrier_worker()
    assert bool((copy == 7.0).all()), "both ranks have the copy in the same memory"
    fleet.barrier_worker()
    copy.copy_(before)
    fleet.barrier_worker()
    wide = [
        SimpleNamespace(program=t.main, build=dataclasses.replace(t.main.build, autocast=None)) for t in pair
    ]
    for training, program in zip(pair, wide, strict=True):  # writes the weights, but no copies
        training.step(3, program)
        training.step(4, program)
        training.run(5, 7)
    assert pair[0].agreed[-4:] == [Status.SHARED] * 4
    check_no_cast(pair[0])
    equal(pair[0].values(), pair[1].values(), "steps in float32")
    for training in pair:  # ranks with different fetches, then with different weights
        training.run(7, 9, ("fc_0.w_0@GRAD",) if is_first else ())
        if is_first:
            training.scope.find_var(name).get_tensor().set(np.full((384, 37), 0.01, "float32"))  # type: ignore[union-attr]
        training.run(9, 13)
    equal(pair[0].values(), pair[1].values(), "one rank has written")
    assert Status.SHARED not in pair[0].agreed[-4:]


def check_no_cast(training: Training) -> None:
    """The next step casts no weight: it would restore the first copy, which is set to something else here."""
    scope = training.scope
    for name in ("fc_0.w_0", "fc_1.w_0", "conv2d_0.w_0"):
        weight, copy = scope.peek(name), scope.copies.value_of(name)
        spec = CopySpec(name, torch.bfloat16, torch.preserve_format)
        before = copy.clone()
        fleet.barrier_worker()
        copy.zero_()
        fleet.barrier_worker()
        with scope.copies.running([spec], {name: weight}, [], frozenset()) as (used,):
            assert used is copy
            assert not bool(used.any()), f"{name} was cast"
        fleet.barrier_worker()
        copy.copy_(before)
        fleet.barrier_worker()


def test_16_bit_copies_are_shared_together_with_their_weights(ranks: ForkServer) -> None:
    ranks.check(2, copies_are_shared)


def nothing_else_changes() -> None:
    """What a user does to a training that divides its updates and to one that does not has the same effects."""
    fleet.init(is_collective=True)
    pair = [Training(OPTIMIZERS["adam"](), divides) for divides in (True, False)]
    for training in pair:
        training.run(0, 2)
    check_memory(pair[0])
    check_one_rank_alone(pair, os.environ["SAVED"])
    check_fetches(pair)
    check_fork(pair)
    check_writes(pair)
    check_different(pair)
    check_handed_out(pair)


def check_memory(training: Training) -> None:
    """Both ranks have the variables in the same memory; a rank may read all of them between steps."""
    assert training.agreed == [Status.READY, Status.SHARED]
    names = ("fc_0.w_0", "fc_0.w_0_moment1_0", "fc_0.w_0_moment2_0")
    assert all(training.scope.is_shared(name) for name in names)
    assert not training.scope.is_shared("fc_0.w_0_step_0")
    value = training.scope.peek("fc_1.b_0_moment1_0")
    before = value.clone()
    fleet.barrier_worker()
    if fleet.worker_index() == 0:
        value.fill_(7.0)
    fleet.barrier_worker()
    assert value.tolist() == [7.0] * 4
    fleet.barrier_worker()
    if fleet.worker_index() == 0:
        value.copy_(before)
    fleet.barrier_worker()


def check_one_rank_alone(pair: list[Training], directory: str) -> None:
    """Rank 0 alone tests, saves in every form, and applies averages, while rank 1 continues with its next step."""
    saved: list[Any] = []
    for training in pair:
        before = training.values()
        test = training.main.clone(for_test=True)
        if fleet.worker_index() == 0:
            with scope_guard(training.scope):
                images = np.ones((2, 3, 6, 6), "float32")
                feed = {"x": images, "y": np.zeros((2, 1), "int64")}
                saved.append(training.exe.run(test, feed, [training.loss.name])[0])
                path = f"{directory}/{len(saved)}"
                paddle.static.save(training.main, path)
                saved[-1] = saved[-1], training.optimizer.state_dict(), paddle.static.load_program_state(path)
                paddle.static.save_vars(training.exe, f"{path}.vars", training.main)
                equal(training.values(), before, "saving changes nothing")
        training.run(2, 3)
        assert training.agreed[-1] is Status.SHARED or training is pair[1]
    if fleet.worker_index() == 0:
        (loss, state, program_state), (loss2, state2, program_state2) = saved
        np.testing.assert_array_equal(loss, loss2)
        equal(
            {n: v.numpy() for n, v in state.items()}, {n: v.numpy() for n, v in state2.items()}, "state_dict"
        )
        equal(program_state, program_state2, "static.save")
    equal(pair[0].values(), pair[1].values(), "one rank alone")


def check_fetches(pair: list[Training]) -> None:
    """A gradient or a parameter that one rank fetches, or all; the check for NaN on one rank."""
    grads = ("fc_0.w_0@GRAD", "conv2d_0.w_0@GRAD", "fc_1.b_0")
    fetched = [training.run(3, 5, grads if fleet.worker_index() == 0 else ()) for training in pair]
    if fleet.worker_index() == 1:
        paddle.set_flags({"FLAGS_check_nan_inf": True})
    fetched = [f + training.run(5, 6, grads[:1]) for f, training in zip(fetched, pair, strict=True)]
    paddle.set_flags({"FLAGS_check_nan_inf": False})
    for value, expected in zip(*fetched, strict=True):
        np.testing.assert_array_equal(value, expected)
    assert pair[0].agreed[-3:] == [Status.SHARED] * 3
    equal(pair[0].values(), pair[1].values(), "fetches")


def check_fork(pair: list[Training]) -> None:
    """A child process has the values of the moment of the fork, also when the ranks train on."""
    training = pair[0]
    begins, ends = os.pipe(), os.pipe()
    before = training.values()["fc_0.w_0"]
    if fleet.worker_index() == 0 and os.fork() == 0:
        os.read(begins[0], 1)
        is_same = np.array_equal(training.scope.peek("fc_0.w_0").numpy(), before)
        os.write(ends[1], b"+" if is_same else b"-")
        os._exit(0)
    for each in pair:
        each.run(100, 104)
    assert not np.array_equal(training.values()["fc_0.w_0"], before)
    if fleet.worker_index() == 0:
        os.write(begins[1], b"+")
        assert os.read(ends[0], 1) == b"+"
        os.wait()
    assert training.agreed[-4:] == [Status.PRIVATE, Status.PRIVATE, Status.READY, Status.SHARED]


def check_writes(pair: list[Training]) -> None:
    """All ranks write: a tensor that was handed out, `set`, another program, loading. Then they share again."""
    agreed = []
    for training in pair:
        with scope_guard(training.scope):
            changed = Program("changed")
            with program_guard(changed, Program()):
                w = paddle.static.create_parameter([4], "float32", name="fc_1.b_0")
                paddle.assign(w * 2.0, w)
            training.exe.run(changed)
            training.run(6, 9)
            state = {n: v.copy() for n, v in training.values().items()}
            state["fc_0.w_0_moment1_0"] *= 0.5
            paddle.static.set_program_state(training.main, state)
            training.run(9, 13)
        agreed.append(training.agreed[-7:])
    again = [Status.READY, Status.SHARED, Status.SHARED]
    assert agreed[0] == [*again, *again, Status.SHARED]
    equal(pair[0].values(), pair[1].values(), "all ranks have written")


def check_different(pair: list[Training]) -> None:
    """One rank writes: the ranks differ from then on, as without sharing, and cannot share again."""
    for training in pair:
        if fleet.worker_index() == 1:
            training.scope.find_var("fc_0.b_0").get_tensor().set(np.full(37, 0.5, "float32"))  # type: ignore[union-attr]
        training.run(20, 31)
    assert pair[0].agreed[-11:] == [Status.PRIVATE] * 9 + [Status.READY, Status.PRIVATE]
    equal(pair[0].values(), pair[1].values(), "one rank has written")
    values = fleet.util.all_gather(float(pair[0].values()["fc_0.b_0"][0]))
    assert values[0] != values[1]


def check_handed_out(pair: list[Training]) -> None:
    """The tensor that user code gets is this rank's own, and stays so: it may be written at any time."""
    for training in pair:
        training.scope.get("fc_1.b_0").fill_(float(fleet.worker_index()))
        fleet.barrier_worker()
        assert training.values()["fc_1.b_0"].tolist() == [float(fleet.worker_index())] * 4
        training.run(31, 34)
    assert pair[0].agreed[-3:] == [Status.PRIVATE] * 3
    equal(pair[0].values(), pair[1].values(), "a tensor was handed out")


def test_a_user_sees_no_difference(ranks: ForkServer, tmp_path: Path) -> None:
    ranks.check(2, nothing_else_changes, SAVED=str(tmp_path))


def fails_while_updating() -> None:
    """An update that fails on rank 1 leaves parts of the variables updated: reading them raises from then on."""
    fleet.init(is_collective=True)
    training = Training(OPTIMIZERS["momentum"](), True)
    training.run(0, 2)
    if fleet.worker_index() == 1:
        training.scope.put("learning_rate_0", torch.ones(2))  # the update takes one number
    with pytest.raises(ArgosyError):
        training.run(2, 3)
    assert "fc_0.w_0" not in training.scope
    assert "fc_0.w_0_velocity_0" not in training.scope
    assert "batch_norm_0.w_1" in training.scope, "statistics are private"
    with pytest.raises(ScopeError, match=r"'fc_0.w_0' has no value"):
        training.scope.peek("fc_0.w_0")


def test_variables_that_are_partly_updated_cannot_be_read(ranks: ForkServer) -> None:
    for printed in ranks.check(2, fails_while_updating):
        assert "are partly updated and were erased from the scope: resume from a checkpoint" in printed
