"""GradientMergeOptimizer: k steps train as torch does with the gradients of k batches."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy import fluid
from argosy.distributed import fleet
from argosy.engine.errors import ConfigError, FetchError, NanInfError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.runtime.scope import Scope, scope_guard
from argosy.static import amp

K, STEPS, RATE = 3, 8, 0.1
Feed = dict[str, np.ndarray[Any, Any]]


def batch(step: int) -> Feed:
    rng = np.random.default_rng(step)
    return {
        "x": rng.standard_normal((4, 5)).astype("float32"),
        "y": rng.standard_normal((4, 1)).astype("float32"),
    }


def built(optimizer: Callable[[], Any]) -> tuple[Program, Program, Any]:
    """main, startup and loss of a small net with this optimizer."""
    main, startup = Program("main"), Program("startup")
    main.random_seed = startup.random_seed = 5
    with program_guard(main, startup), names.guard():
        x, y = paddle.static.data("x", [None, 5]), paddle.static.data("y", [None, 1])
        out = paddle.static.nn.fc(paddle.nn.functional.tanh(paddle.static.nn.fc(x, 6)), 1)
        loss = paddle.mean(paddle.nn.functional.square_error_cost(out, y))
        optimizer().minimize(loss)
    return main, startup, loss


def merging(k: int = K, avg: bool = True) -> Any:
    clip = paddle.nn.ClipGradByGlobalNorm(0.5)
    momentum = paddle.optimizer.Momentum(RATE, 0.9, weight_decay=0.01, grad_clip=clip)
    return fluid.optimizer.GradientMergeOptimizer(momentum, k, avg)


def values(main: Program) -> Feed:
    scope = paddle.static.global_scope()
    return {p.name: scope.get(p.name).detach().numpy().copy() for p in main.all_parameters()}


def by_torch(first: Feed, steps: int, k: int, avg: bool) -> Feed:
    """The same training in plain torch: gradients of k batches, clipped, then Momentum with L2 decay."""
    w0, b0, w1, b1 = parameters = [torch.tensor(value, requires_grad=True) for value in first.values()]
    velocities = [torch.zeros_like(p) for p in parameters]
    totals = [torch.zeros_like(p) for p in parameters]
    for step in range(steps):
        x, y = (torch.from_numpy(value) for value in batch(step).values())
        loss = ((torch.tanh(x @ w0 + b0) @ w1 + b1 - y) ** 2).mean()
        for total, gradient in zip(totals, torch.autograd.grad(loss, parameters), strict=True):
            total.add_(gradient)
        if (step + 1) % k:
            continue
        merged = [total / k if avg else total for total in totals]
        norm = torch.sqrt(sum((g * g).sum() for g in merged))  # type: ignore[arg-type]
        with torch.no_grad():
            for p, g, v in zip(parameters, merged, velocities, strict=True):
                v.mul_(0.9).add_(g * 0.5 / max(norm.item(), 0.5) + 0.01 * p)
                p.sub_(RATE * v)
        totals = [torch.zeros_like(p) for p in parameters]
    return {name: p.detach().numpy() for name, p in zip(first, parameters, strict=True)}


def train(main: Program, loss: Any, steps: range) -> None:
    exe = paddle.static.Executor()
    for step in steps:
        exe.run(main, feed=batch(step), fetch_list=[loss])


def assert_close(actual: Feed, expected: Feed) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("avg", [True, False])
def test_clipping_decay_and_momentum_act_on_the_merged_gradient(avg: bool) -> None:
    main, startup, loss = built(lambda: merging(avg=avg))
    with scope_guard(Scope()):
        paddle.static.Executor().run(startup)
        first = values(main)
        train(main, loss, range(K - 1))
        assert_close(values(main), first)
        train(main, loss, range(K - 1, STEPS))
        assert_close(values(main), by_torch(first, STEPS, K, avg))


def test_one_step_is_the_inner_optimizer() -> None:
    main, startup, loss = built(lambda: merging(k=1))
    assert not main.training.periods
    with scope_guard(Scope()):
        paddle.static.Executor().run(startup)
        first = values(main)
        train(main, loss, range(3))
        assert_close(values(main), by_torch(first, 3, 1, avg=True))


def test_a_checkpoint_in_the_middle_of_a_period_resumes_with_the_same_results(tmp_path: Path) -> None:
    main, startup, loss = built(merging)
    exe = paddle.static.Executor()
    with scope_guard(Scope()):
        exe.run(startup)
        first = values(main)
        train(main, loss, range(4))
        fleet.Checkpoint(tmp_path).save(4, exe, main)
    with scope_guard(Scope()):
        exe.run(startup)
        assert str(fleet.Checkpoint(tmp_path).restore(exe, main)) == "step 4 (epoch 0, batch 0)"
        train(main, loss, range(4, STEPS))
        assert_close(values(main), by_torch(first, STEPS, K, avg=True))


def test_copies_and_loaded_programs_continue_the_period_of_the_scope() -> None:
    main, startup, loss = built(merging)
    exe = paddle.static.Executor()
    copied, loaded, test = main.clone(), from_dict(to_dict(main)), main.clone(for_test=True)
    assert str(loaded).splitlines()[1:] == str(main).splitlines()[1:]
    assert not test.training.periods
    assert "GradientMerge" not in str(test)
    with scope_guard(Scope()):
        exe.run(startup)
        first = values(main)
        for step in range(STEPS):
            program = (main, copied, loaded)[step % 3]
            exe.run(test, feed=batch(step), fetch_list=[loss.name])
            exe.run(main, feed=batch(step), fetch_list=[loss], use_prune=True)
            exe.run(program, feed=batch(step), fetch_list=[loss.name])
        assert_close(values(main), by_torch(first, STEPS, K, avg=True))


def test_a_merged_gradient_can_be_fetched_in_the_steps_that_compute_it() -> None:
    main, startup, _ = built(merging)
    exe = paddle.static.Executor()
    with scope_guard(Scope()):
        exe.run(startup)
        with pytest.raises(
            FetchError, match=r"'fc_0.w_0@GRAD@MERGED' is computed every 3 steps, and not in this"
        ):
            exe.run(main, feed=batch(0), fetch_list=["fc_0.w_0@GRAD@MERGED"])
        gradients = [exe.run(main, feed=batch(s), fetch_list=["fc_0.w_0@GRAD"])[0] for s in range(2)]
        wanted = ["fc_0.w_0@GRAD", "fc_0.w_0@GRAD@MERGED", "fc_0.w_0@GRAD@GradientMerge"]
        last, merged, total = exe.run(main, feed=batch(2), fetch_list=wanted)
        np.testing.assert_allclose(merged, sum([*gradients, last]) / 3, rtol=1e-5, atol=1e-7)
        assert not total.any()


def test_the_rate_of_a_scheduler_is_that_of_the_step_that_updates() -> None:
    scheduler = paddle.optimizer.lr.PiecewiseDecay([2], [0.5, 0.25])
    main, startup, _ = built(
        lambda: fluid.optimizer.GradientMergeOptimizer(paddle.optimizer.SGD(scheduler), 2)
    )
    exe = paddle.static.Executor()
    with scope_guard(Scope()):
        exe.run(startup)
        before = values(main)["fc_1.b_0"]
        gradients = []
        for step in range(2):
            gradients += exe.run(main, feed=batch(step), fetch_list=["fc_1.b_0@GRAD"])
            scheduler.step()
            scheduler.step()
        expected = before - 0.25 * (gradients[0] + gradients[1]) / 2
        np.testing.assert_allclose(values(main)["fc_1.b_0"], expected, rtol=1e-5)


def test_an_overflow_in_one_of_the_steps_skips_the_update_and_resets_the_accumulator() -> None:
    def scaled() -> Any:
        inner = amp.decorate(
            paddle.optimizer.SGD(RATE), dtype="float16", init_loss_scaling=8.0, decr_every_n_nan_or_inf=1
        )
        return fluid.optimizer.GradientMergeOptimizer(inner, 2)

    main, startup, loss = built(scaled)
    exe, scope = paddle.static.Executor(), Scope()
    with scope_guard(scope):
        exe.run(startup)
        first = values(main)
        exe.run(main, feed={name: 1e30 * value for name, value in batch(0).items()}, fetch_list=[loss])
        assert scope.get("loss_scaling_0").item() == 8.0
        exe.run(main, feed=batch(1), fetch_list=[loss])
        assert_close(values(main), first)
        assert scope.get("loss_scaling_0").item() == pytest.approx(6.4)
        train(main, loss, range(2, 4))
        after = values(main)
        assert not np.allclose(after["fc_1.b_0"], first["fc_1.b_0"])
        assert all(np.isfinite(value).all() for value in after.values())


def test_a_step_that_fails_in_backward_counts_for_nothing() -> None:
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup), names.guard():
        x = paddle.static.data("x", [None, 2])
        loss = paddle.mean(paddle.sqrt(paddle.static.nn.fc(x, 1, bias_attr=False) ** 2))
        fluid.optimizer.GradientMergeOptimizer(paddle.optimizer.SGD(RATE), 3).minimize(loss)
    exe, scope = paddle.static.Executor(), Scope()
    exe.run(startup, scope=scope)
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    try:
        exe.run(main, feed={"x": np.ones((2, 2), "float32")}, scope=scope)
        before = {name: scope.get(name).clone() for name in main.persistables()}
        with pytest.raises(NanInfError, match=r"\(backward\)"):
            exe.run(main, feed={"x": np.zeros((2, 2), "float32")}, scope=scope)
    finally:
        paddle.set_flags({"FLAGS_check_nan_inf": False})
    assert before["gradient_merge_step"].item() == 1
    assert all(torch.equal(value, scope.get(name)) for name, value in before.items())


def test_the_state_of_the_optimizer_includes_the_accumulators() -> None:
    optimizer = merging()
    main, startup, loss = built(lambda: optimizer)
    with scope_guard(Scope()):
        paddle.static.Executor().run(startup)
        first = values(main)
        train(main, loss, range(4))
        saved, trained = optimizer.state_dict(), values(main)
        train(main, loss, range(4, 6))
        optimizer.set_state_dict(saved)
        for name, value in trained.items():
            paddle.static.global_scope().get(name).copy_(torch.from_numpy(value))
        train(main, loss, range(4, STEPS))
        assert_close(values(main), by_torch(first, STEPS, K, avg=True))
        with pytest.raises(ConfigError, match=r"the state has no 'fc_0.w_0@GRAD@GradientMerge'"):
            optimizer.set_state_dict({})


def test_invalid_settings_are_rejected() -> None:
    inner = paddle.optimizer.SGD(RATE)
    with pytest.raises(ConfigError, match=r"k_steps is 0; use an integer of at least 1"):
        fluid.optimizer.GradientMergeOptimizer(inner, 0)
    with pytest.raises(ConfigError, match=r"avg is 2; use True"):
        fluid.optimizer.GradientMergeOptimizer(inner, 2, 2)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"inner_optimizer is a str; give an optimizer"):
        fluid.optimizer.GradientMergeOptimizer("sgd", 2)  # type: ignore[arg-type]
