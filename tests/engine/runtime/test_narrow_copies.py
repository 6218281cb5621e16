"""16-bit copies of weights: training is bit-equal to that with a cast in every step, whatever writes the weights."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import argosy as paddle
from argosy.engine.errors import ProgramError
from argosy.engine.ir import names
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.passes.autocast import Autocast
from argosy.engine.passes.fuse_optimizer import FuseOptimizer
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.narrow_copies import CopySpec, NarrowCopies
from argosy.engine.runtime.scope import Scope, scope_guard

SHAPE = (3, 8, 8)
WEIGHT = "sequential_0.0.weight"


@dataclass
class Training:
    """A program in mixed precision, in a scope of its own."""

    main: Program
    scope: Scope
    executor: Executor
    loss: Any
    out: Any
    average: Any = None
    steps: int = 0

    def step(self, fetches: list[Any] | None = None) -> list[Any]:
        rng = np.random.default_rng(self.steps)
        self.steps += 1
        x, y = rng.standard_normal((4, *SHAPE)).astype("float32"), rng.integers(0, 10, 4)
        return self.executor.run(
            self.main, {"x": x, "y": y}, fetches or [self.loss], scope=self.scope
        )  # fmt: skip

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: self.scope.peek(name) for name in self.scope.names()}


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1),
        nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def training(
    keeps_copies: bool,
    optimizer: Callable[[], Any] = lambda: paddle.optimizer.Momentum(0.05, 0.9),
    is_fused: bool = True,
    dtype: torch.dtype = torch.bfloat16,
    averages: bool = False,
) -> Training:
    main, startup, scope = Program("main"), Program("startup"), Scope()
    torch.manual_seed(0)
    average = None
    with program_guard(main, startup), names.guard(), scope_guard(scope):
        x, y = paddle.static.data("x", [None, *SHAPE]), paddle.static.data("y", [None], "int64")
        out = network()(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer().minimize(loss)
        if averages:
            average = paddle.static.ExponentialMovingAverage(0.5)
            average.update()
        executor = Executor()
        executor.run(startup)
    fusions = (FuseOptimizer(),) if is_fused else ()
    main.build = Build(fusions=fusions, autocast=Autocast(dtype=dtype, keeps_copies=keeps_copies))
    return Training(main, scope, executor, loss, out, average)


def assert_equal(copied: Training, cast: Training) -> None:
    wanted = cast.weights()
    for name, value in copied.weights().items():
        assert torch.equal(value, wanted[name]), name


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: paddle.optimizer.SGD(0.05),
    "momentum": lambda: paddle.optimizer.Momentum(0.05, 0.9),
    "adam": lambda: paddle.optimizer.Adam(0.01),
    "rmsprop": lambda: paddle.optimizer.RMSProp(0.01),
    "lamb": lambda: paddle.optimizer.Lamb(0.01),
}


def cases() -> Iterator[Any]:
    """All combinations; those in the fast suite have every optimizer, and both values of the other two."""
    for optimizer in OPTIMIZERS:
        for dtype, is_fused in product((torch.bfloat16, torch.float16), (True, False)):
            is_fast = is_fused if dtype is torch.bfloat16 else not is_fused and optimizer == "adam"
            yield pytest.param(optimizer, dtype, is_fused, marks=[] if is_fast else pytest.mark.slow)


@pytest.mark.parametrize(("optimizer", "dtype", "is_fused"), list(cases()))
def test_training_is_bit_equal_to_that_with_casts(
    optimizer: str, is_fused: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = training(True, OPTIMIZERS[optimizer], is_fused, dtype)
    cast = training(False, OPTIMIZERS[optimizer], is_fused, dtype)
    for _ in range(4):
        assert copied.step()[0].tobytes() == cast.step()[0].tobytes()
    assert_equal(copied, cast)


def test_training_without_the_cpp_kernels_is_bit_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_KERNELS", "0")
    copied, cast = training(True), training(False)
    for _ in range(3):
        copied.step(), cast.step()
    assert_equal(copied, cast)


def test_a_step_casts_no_weight_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies of the second step are the memory that the update of the first has written."""
    copied = training(True)
    valid = []
    begin = NarrowCopies._begin

    def watched(self: NarrowCopies, spec: CopySpec, source: torch.Tensor, is_untracked: bool) -> Any:
        known = self._copies.get(spec.name)
        valid.append(known is not None and not is_untracked and known.is_valid(source))
        return begin(self, spec, source, is_untracked)

    monkeypatch.setattr(NarrowCopies, "_begin", watched)
    copied.step()
    assert not any(valid)
    num_weights = len(valid)
    assert num_weights >= 3
    copied.step()
    assert all(valid[num_weights:])


# --- what writes weights between steps ------------------------------------------------------------------


def by_set(t: Training) -> None:
    variable = t.scope.find_var(WEIGHT)
    assert variable is not None
    variable.get_tensor().set(np.full((8, 3, 3, 3), 0.25, "float32"))


def by_torch_op(t: Training) -> None:
    with torch.no_grad():
        t.scope.get(WEIGHT).mul_(0.5)


def by_fused_torch_op(t: Training) -> None:
    """torch counts no version here."""
    torch._foreach_mul_([t.scope.get(WEIGHT).detach()], 0.5)


def by_data(t: Training) -> None:
    t.scope.get(WEIGHT).data.mul_(0.5)


def by_numpy(t: Training) -> None:
    t.scope.get(WEIGHT).detach().numpy()[:] *= 0.5


def by_another_tensor(t: Training) -> None:
    t.scope.put(WEIGHT, t.scope.peek(WEIGHT).detach() * 0.5)


def by_another_step_of_the_program(t: Training) -> None:
    t.step([t.loss, t.out])


def by_a_step_in_float32(t: Training) -> None:
    """Another program in the same scope, whose C++ update torch does not see."""
    build, t.main.build = t.main.build, Build(fusions=(FuseOptimizer(),))
    t.step()
    t.main.build = build


def by_a_failed_step(t: Training) -> None:
    step = t.executor._call

    def failing(*arguments: Any) -> Any:
        step(*arguments)
        raise ProgramError("after the update")

    t.executor._call = failing  # type: ignore[method-assign]
    with pytest.raises(ProgramError, match="after the update"):
        t.step()
    t.executor._call = step  # type: ignore[method-assign]


def by_load(t: Training) -> None:
    with scope_guard(t.scope):
        state = {n: v.numpy() * 0.5 for n, v in t.weights().items() if n in t.main.vars and "weight" in n}
        paddle.static.set_program_state(t.main, state)


def by_applied_averages(t: Training) -> None:
    """Training with the averages, and after they are removed again."""
    with scope_guard(t.scope), t.average.apply():
        t.step()


def by_nothing(t: Training) -> None:
    pass


WRITERS = [by_set, by_torch_op, by_numpy, by_a_failed_step, by_applied_averages]
OTHER_WRITERS = [
    by_fused_torch_op, by_data, by_another_tensor, by_another_step_of_the_program, by_a_step_in_float32, by_load,
    by_nothing,
]  # fmt: skip


@pytest.mark.parametrize(
    "write",
    [*WRITERS, *(pytest.param(write, marks=pytest.mark.slow) for write in OTHER_WRITERS)],
    ids=lambda w: w.__name__,
)
def test_a_weight_that_was_written_between_steps_is_cast_again(write: Callable[[Training], None]) -> None:
    copied, cast = training(True, averages=True), training(False, averages=True)
    for number in range(5):
        if number in (2, 4):
            for t in (copied, cast):
                write(t)
        assert copied.step()[0].tobytes() == cast.step()[0].tobytes(), number
    assert_equal(copied, cast)


def test_a_tensor_that_was_handed_out_may_be_written_at_any_time() -> None:
    copied, cast = training(True), training(False)
    arrays = [t.scope.get(WEIGHT).detach().numpy() for t in (copied, cast)]
    copied.step(), cast.step()  # channels_last: the scope has another tensor now
    later_arrays = [t.scope.get(WEIGHT).detach().numpy() for t in (copied, cast)]
    for _ in range(3):
        copied.step(), cast.step()
        for array in (*arrays, *later_arrays):
            array[:] *= 0.5
    copied.step(), cast.step()
    assert_equal(copied, cast)


def test_steps_in_inference_mode_are_the_same() -> None:
    copied, cast = training(True), training(False)
    copied.step(), cast.step()
    with torch.inference_mode():
        for _ in range(2):
            assert copied.step()[0].tobytes() == cast.step()[0].tobytes()
        for t in (copied, cast):
            t.scope.put(WEIGHT, t.scope.peek(WEIGHT) * 0.5, is_owned=True)  # torch counts no versions of it
            t.step()
    for t in (copied, cast):
        t.step()
    assert_equal(copied, cast)


def test_a_clone_for_testing_reads_the_weights_themselves() -> None:
    copied, cast = training(True), training(False)
    results = []
    for t in (copied, cast):
        test = t.main.clone(for_test=True)
        for _ in range(3):
            t.step()
        feed = {"x": np.ones((2, *SHAPE), "float32"), "y": np.zeros(2, "int64")}
        results.append(t.executor.run(test, feed, [t.out.name], scope=t.scope)[0])
    assert results[0].tobytes() == results[1].tobytes()


# --- threads, files, memory -----------------------------------------------------------------------------


@contextmanager
def run(copies: NarrowCopies, weight: torch.Tensor) -> Iterator[torch.Tensor]:
    spec = CopySpec("w", torch.bfloat16, torch.preserve_format)
    with copies.running([spec], {"w": weight}, [weight], frozenset()) as (copy,):
        yield copy


def test_copies_are_invalid_after_steps_that_overlap() -> None:
    """Of two threads that write a weight and its copy, one may be last in the weight, the other in the copy."""
    copies, weight = NarrowCopies(), torch.ones(4)
    with run(copies, weight) as a:
        with run(copies, weight) as b:
            assert a is b
        a.fill_(7)
    with run(copies, weight) as c:
        assert c.tolist() == [1.0] * 4, "cast again"
    with run(copies, weight) as d:
        d.fill_(7)
    with run(copies, weight) as e:
        assert e.tolist() == [7.0] * 4, "a step alone has written both"


def test_concurrent_steps_leave_no_stale_copy() -> None:
    t = training(True)
    t.step()
    threads = [threading.Thread(target=lambda: [t.step() for _ in range(4)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(2):
        t.step()
        for name, copy in t.scope.copies._copies.items():
            assert torch.equal(copy.value, t.scope.peek(name).bfloat16()), name


def test_copies_are_no_variables(tmp_path: Path) -> None:
    copied, cast = training(True), training(False)
    saved: list[list[str]] = []
    for t in (copied, cast):
        t.step()
        with scope_guard(t.scope):
            paddle.static.save(t.main, str(tmp_path / str(len(saved)) / "model"))
        saved.append(sorted(f.name for f in (tmp_path / str(len(saved))).iterdir()))
    assert saved[0] == saved[1]
    assert sorted(copied.scope.names()) == sorted(cast.scope.names())
    assert [v.name for v in copied.main.list_vars()] == [v.name for v in cast.main.list_vars()]


def test_an_erased_variable_frees_its_copy() -> None:
    t = training(True)
    t.step()
    assert WEIGHT in t.scope.copies._copies
    t.scope.erase([WEIGHT])
    assert WEIGHT not in t.scope.copies._copies
