"""Results of shape functions that programs share: a program is the same whether they were known or not."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import pytest
import torch

import argosy as paddle
from argosy.engine.ir import names, shape_memo
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.executor import Executor
from argosy.framework.layer import apply


def mlp() -> None:
    x, y = paddle.static.data("x", [None, 4]), paddle.static.data("y", [None, 1])
    hidden = paddle.static.nn.fc(x, 8, activation="tanh")
    error = paddle.nn.functional.square_error_cost(paddle.static.nn.fc(hidden, 1), y)
    paddle.optimizer.Adam(0.1).minimize(paddle.mean(error))


def convnet() -> None:
    x = paddle.static.data("x", [None, 3, None, None])
    h = paddle.static.nn.batch_norm(paddle.static.nn.conv2d(x, 4, 3, stride=2), act="relu")
    loss = paddle.mean(paddle.nn.functional.adaptive_avg_pool2d(h, 1))
    paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)


def product_of_unknown_sizes() -> None:
    x, y = paddle.static.data("x", [None, None]), paddle.static.data("y", [None, 3])
    paddle.mean(paddle.matmul(x, y))


def sum_that_makes_sizes_equal() -> None:
    x, y = paddle.static.data("x", [None, 2]), paddle.static.data("y", [None, 2])
    paddle.matmul(x + y, paddle.transpose(y, [1, 0]))


def reshape_that_needs_another_hint() -> None:
    x = paddle.static.data("x", [None, 8])
    paddle.tanh(paddle.reshape(x, [-1, 5, 8])).mean()


def branch_on_a_size() -> None:
    x = paddle.static.data("x", [None, 2])
    apply("branch", lambda t: t.sum(0) if t.shape[0] > 3 else t.amax(0), x)


def size_that_depends_on_data() -> None:
    x = paddle.static.data("x", [None])
    apply("nonzero", lambda t: torch.nonzero(t).float() * 2.0, x)


PROGRAMS: list[Callable[[], None]] = [
    mlp,
    convnet,
    product_of_unknown_sizes,
    sum_that_makes_sizes_equal,
    reshape_that_needs_another_hint,
    branch_on_a_size,
    size_that_depends_on_data,
]


class Built:
    """A program as text, its hints, and its assumptions."""

    def __init__(self, build: Callable[[], None]) -> None:
        main = Program("main")
        with program_guard(main, Program("startup")), names.guard():
            build()
        env = main.symbols.env
        self.text, self.hints = str(main), dict(env.backed_var_to_val)
        self.required = [a for a in env.assumptions if a.is_required]
        self.others = {a.condition for a in env.assumptions if not a.is_required}


def assert_equal(actual: Built, expected: Built) -> None:
    """A tensor from the memo may ask torch for its memory format, which is one more condition to check shapes for."""
    assert (actual.text, actual.hints) == (expected.text, expected.hints)
    assert actual.required == expected.required
    assert actual.others >= expected.others


@pytest.mark.parametrize("build", PROGRAMS)
def test_a_program_that_is_built_again_is_equal(
    build: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_memo, "_shared", {})
    first = Built(build)
    assert_equal(Built(build), first)
    num_results = len(shape_memo._shared)
    assert_equal(Built(build), first)
    assert len(shape_memo._shared) == num_results, "all results were found"


@pytest.mark.parametrize(
    ("build", "before"),
    [
        pytest.param(build, PROGRAMS[(i + n) % len(PROGRAMS)], marks=[] if n == 1 else pytest.mark.slow)
        for i, build in enumerate(PROGRAMS)
        for n in (1, 3)
    ],
)
def test_results_of_another_program_change_nothing(
    build: Callable[[], None], before: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_memo, "_shared", {})
    expected = Built(build)
    shape_memo._shared.clear()
    Built(before)
    assert_equal(Built(build), expected)


def test_shapes_of_numbers_are_inferred_once_for_all_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of one row, where the programs were built for more, is checked with its numbers."""
    monkeypatch.setattr(shape_memo, "_of_numbers", {})
    counts = []
    for rows, width in ((1, 3), (1, 3), (1, 4)):
        with program_guard(Program("main"), Program("startup")), names.guard():
            x = paddle.static.data("x", [None, width])
            out = paddle.nn.functional.softmax(paddle.tanh(x) + paddle.sin(x))
            feed = torch.rand(rows, width)
            (actual,) = Executor().run(feed={"x": feed.numpy()}, fetch_list=[out])
        torch.testing.assert_close(torch.from_numpy(actual), (feed.tanh() + feed.sin()).softmax(-1))
        counts.append(len(shape_memo._of_numbers))
    assert 0 < counts[0] == counts[1] < counts[2], counts


def test_the_number_of_shared_results_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_memo, "_shared", {})
    monkeypatch.setattr(shape_memo, "_MAX_SHARED", 5)
    expected = Built(mlp)
    assert_equal(Built(mlp), expected)
    assert len(shape_memo._shared) <= 5
