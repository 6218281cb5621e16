"""Executor.run: what is fed, fetched, pruned, freed, compiled and refused."""

# SPDX-License-Identifier: Apache-2.0
import logging
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import argosy as paddle
from argosy.engine.errors import (
    ConfigError,
    EOFException,
    FeedError,
    FetchError,
    NanInfError,
    ProgramError,
    ScopeError,
)
from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.program import (
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
)
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.compile import compile_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.flags import set_flags
from argosy.engine.runtime.scope import Scope, global_scope


def net() -> Variable:
    """loss = cross_entropy(x w, y), and w -= 0.1 grad."""
    program = default_main_program()
    x, y = program.data("x", [None, 4]), program.data("y", [None, 1], "int64")
    w = program.state("w", [4, 3], "float32", trainable=True)
    default_startup_program().define("w", lambda: torch.ones(4, 3))
    loss = F.cross_entropy(x @ w, y.squeeze(1))
    ((weight, grad),) = append_backward(loss)
    with program.recording("optimize"), torch.no_grad():
        weight.value.sub_(grad.value, alpha=0.1)
    return loss


def feed(batch: int = 4, **changes: Any) -> dict[str, Any]:
    values = {"x": np.ones((batch, 4), "float32"), "y": np.zeros((batch, 1), "int64")}
    return values | changes


def started() -> Executor:
    exe = Executor()
    exe.run(default_startup_program())
    return exe


def test_one_program_runs_with_any_batch_size_and_is_compiled_once(caplog: pytest.LogCaptureFixture) -> None:
    loss = net()
    exe = started()
    with caplog.at_level(logging.DEBUG, "argosy"):
        for batch in (4, 9, 1, 4):
            exe.run(feed=feed(batch), fetch_list=[loss])
    assert [m.count("compiled main") for m in caplog.messages].count(1) == 1


def test_a_changed_program_is_compiled_again(caplog: pytest.LogCaptureFixture) -> None:
    loss = net()
    exe = started()
    exe.run(feed=feed(), fetch_list=[loss])
    more = loss * 2
    with caplog.at_level(logging.DEBUG, "argosy"):
        first, second = exe.run(feed=feed(), fetch_list=[loss, more])
    assert second == pytest.approx(2 * first)
    assert sum("compiled main" in m for m in caplog.messages) == 1


def test_fetches_by_name_and_by_variable_are_the_same() -> None:
    loss = net()
    exe = started()
    a, b = exe.run(feed=feed(), fetch_list=[loss, loss.name])
    assert a == b
    assert isinstance(exe.run(feed=feed(), fetch_list=loss, return_numpy=False)[0], torch.Tensor)
    assert exe.run(feed=feed()) == []


def test_a_list_of_feeds_is_one_batch() -> None:
    loss = net()
    copy = default_main_program().clone(for_test=True)
    exe = started()
    x = torch.randn(6, 4)
    parts = [feed(2, x=x[:2]), feed(4, x=x[2:])]
    whole = exe.run(copy, feed=feed(6, x=x), fetch_list=[loss])
    assert exe.run(copy, feed=parts, fetch_list=[loss])[0] == pytest.approx(whole[0])
    assert exe.run(copy, feed=[feed(6, x=x)], fetch_list=[loss]) == whole


def test_one_element_prints_as_a_number_and_keeps_its_shape() -> None:
    x = default_main_program().data("x", [None, 4])
    (actual,) = Executor().run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[x.mean().reshape(1)])
    assert actual.shape == (1,)
    assert "%.5f" % actual == "1.00000"  # noqa: UP031  (as the seeds' scripts print)
    assert (float(actual), int(actual), actual[0]) == (1.0, 1, 1.0)


def test_only_what_fetches_and_updates_need_is_run() -> None:
    loss = net()
    program = default_main_program()
    extra = torch.sin(loss)
    names = [str(n.target) for n in compile_program(program, [loss]).step.nodes]
    assert "aten.sin.default" not in names
    assert "aten.sub_.Tensor" in names
    forward = program.clone(for_test=True)
    names = [str(n.target) for n in compile_program(forward, [forward.var(extra.name)]).step.nodes]
    assert "aten.sin.default" in names
    assert not any("backward" in name for name in names)


def test_a_feed_that_nothing_needs_may_be_left_out() -> None:
    program = default_main_program()
    x, z = program.data("x", [None, 4]), program.data("z", [None, 4])
    y = x * 2
    z * 3
    assert Executor().run(feed={"x": np.ones((1, 4), "float32")}, fetch_list=[y])[0].sum() == 8


def test_dead_values_are_freed_while_the_step_runs() -> None:
    program = default_main_program()
    x = program.data("x", [None, 4])
    y = torch.cos(torch.sin(x * 2)).sum()
    seen: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def look(node: Any, value: Any) -> None:
        alive.append(sum(r() is not None for r in seen))
        seen.append(weakref.ref(value))

    step = compile_program(program, [y], look).step
    step.function(torch.ones(3, 4))
    assert alive == [0, 1, 1, 1], "each value should die with its only reader"


def test_fetched_parameters_are_copies() -> None:
    net()
    exe = started()
    (before,) = exe.run(feed=feed(), fetch_list=["w"])
    copy = before.copy()
    exe.run(feed=feed(), fetch_list=["w"])
    np.testing.assert_array_equal(before, copy)


def test_fetched_parameters_are_the_updated_ones() -> None:
    net()
    (actual,) = started().run(feed=feed(), fetch_list=["w"])
    np.testing.assert_array_equal(actual, global_scope().get("w").numpy())
    assert not np.array_equal(actual, np.ones((4, 3)))


def test_a_program_that_changes_its_feed_leaves_the_users_array_alone() -> None:
    x = default_main_program().data("x", [None, 4])
    y = torch.nn.functional.relu(x, inplace=True)
    given = np.full((2, 4), -1.0, "float32")
    assert Executor().run(feed={"x": given}, fetch_list=[y])[0].sum() == 0
    assert given.sum() == -8


def test_two_scopes_train_apart() -> None:
    net()
    exe = Executor()
    first, second = Scope(), Scope()
    for scope in (first, second):
        exe.run(default_startup_program(), scope=scope)
    exe.run(feed=feed(), scope=first)
    assert not torch.equal(first.get("w"), second.get("w"))


def test_a_seed_repeats_the_initial_values_and_the_dropout() -> None:
    startup, program = default_startup_program(), default_main_program()
    startup.define("w", lambda: torch.randn(5))
    startup.random_seed = program.random_seed = 7
    x = program.data("x", [None, 50])
    y = F.dropout(x, 0.5)
    runs = []
    for _ in range(2):
        exe = Executor()
        exe.run(startup)
        given = {"x": np.ones((1, 50), "float32")}
        runs.append(
            [global_scope().get("w").clone(), *(exe.run(feed=given, fetch_list=[y])[0] for _ in range(2))]
        )
        torch.rand(3)  # the program's numbers do not depend on what else is drawn
    for a, b in zip(*runs, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(runs[0][1], runs[0][2])


def test_a_started_loader_feeds_the_program() -> None:
    class Loader:
        left = 2

        def next_feed(self) -> dict[str, torch.Tensor]:
            if not self.left:
                raise EOFException("no more")
            self.left -= 1
            return {"x": torch.full((2, 4), 3.0)}

    program = default_main_program()
    x = program.data("x", [None, 4])
    program.attach_reader(Loader())
    exe = Executor()
    assert [exe.run(fetch_list=[x])[0][0, 0] for _ in range(2)] == [3.0, 3.0]
    with pytest.raises(EOFException):
        exe.run(fetch_list=[x])


# --- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"feed 'x' \(float32\[-1, 4\]\) is missing \(nothing was fed\)"),
        ({"x": np.ones((2, 4), "float32")}, r"feed 'y' \(int64\[-1, 1\]\) is missing"),
        (feed(z=np.ones(3)), r"feed 'z' is not a feed of 'main' \(there are: x, y\)"),
        (feed(x=np.ones((4, 5), "float32")), r"feed 'x' has shape \[4, 5\] and must have \[any, 4\]"),
        (feed(x=np.ones((4, 4, 1), "float32")), r"feed 'x' has shape \[4, 4, 1\] and must have \[any, 4\]"),
        (feed(x=np.ones((4, 4), "float64")), "feed 'x' is float64 and must be float32; convert it"),
        (feed(x=np.ones((3, 4), "float32")), "'x' has size 3 in dimension 0, feed 'y' has size 4"),
        ("x", "feed is a str; give a dict"),
        (
            feed(y=np.ones((4, 1), object)),
            r"feed 'y': a value of type ndarray \(object\) is not an array of numbers",
        ),
        (
            feed(y=np.full((4, 1), "a")),
            r"feed 'y': a value of type ndarray \(<U1\) is not an array of numbers",
        ),
        (feed(y=np.zeros((4, 1), "datetime64[D]")), r"feed 'y': a value of type ndarray \(datetime64\[D\]\)"),
        (feed(y=[["a"]] * 4), r"feed 'y': a value of type list \(<U1\) is not an array of numbers"),
        (feed(y=[[None]] * 4), r"feed 'y': a value of type list \(object\) is not an array of numbers"),
        (feed(y=[[np.datetime64("2020-01-01")]] * 4), r"feed 'y': a value of type list \(datetime64"),
        (
            feed(x=np.ma.masked_equal(np.eye(4, dtype="float32"), 0)),
            "feed 'x': 12 of 16 values are masked; fill",
        ),
        (feed(x=[np.ma.masked_equal([1, 2, 3, 4], 2)]), "feed 'x': 1 of 4 values are masked; fill"),
        (feed(x=np.ones((4, 4), "longdouble")), "feed 'x': torch cannot take an array of"),
        (feed(y=[[2**70]] * 4), "feed 'y': there are integers beyond int64"),
        (feed(x=[[10**400] * 4] * 4), "feed 'x': there are integers beyond int64"),
        (feed(y=[[2**63]] * 4), "feed 'y': there are integers beyond int64"),
        (feed(y=[[1.5]] * 4), "feed 'y': values of float64 do not fit into int64"),
        (feed(x=[[1j] * 4] * 4), "feed 'x': values of complex128 do not fit into float32"),
        (feed(y=[[1], [1, 2]]), "feed 'y': nested lists of different lengths"),
        ([feed(), {"x": np.ones((4, 4), "float32")}], "feed 'y' is in 1 of 2 dicts"),
        ([feed(), feed(y=np.ones((4, 1), object))], r"feed 'y': a value of type ndarray \(object\)"),
        ([feed(), feed(x=np.ones((4, 5), "float32"))], "feed 'x': its 2 parts cannot be concatenated"),
    ],
)
def test_a_wrong_feed_is_named_and_changes_nothing(given: Any, message: str) -> None:
    loss = net()
    exe = started()
    before = global_scope().get("w").clone()
    with pytest.raises(FeedError, match=message):
        exe.run(feed=given, fetch_list=[loss])
    assert torch.equal(global_scope().get("w"), before)


def test_sizes_are_checked_by_name_and_not_by_the_order_of_the_feeds() -> None:
    program = default_main_program()
    x, u, v = (program.data(name, [None]) for name in ("x", "u", "v"))
    assert (paddle.concat([u, u]) + v).name, "v is twice as long as u"
    exe, three, six = Executor(), np.ones(3, "float32"), np.ones(6, "float32")
    exe.run(feed={"x": three, "u": three, "v": six}, fetch_list=[x])
    with pytest.raises(FeedError, match="feed 'u' has size 6"):
        exe.run(feed={"x": three, "v": three, "u": six}, fetch_list=[x])


def test_parts_of_a_feed_are_put_together() -> None:
    x = default_main_program().data("x", [None, 2])
    parts = [{"x": [[1, 2]]}, {"x": np.full((1, 2), 3, "float32")}, {"x": torch.full((1, 2), 4.0)}]
    (actual,) = Executor().run(feed=parts, fetch_list=[x])
    assert actual.tolist() == [[1, 2], [3, 3], [4, 4]]


def test_plain_lists_are_converted() -> None:
    loss = net()
    given = {"x": [[1, 1, 1, 1]], "y": [[0]]}
    assert started().run(feed=given, fetch_list=[loss])[0] == pytest.approx(np.log(3))


def test_a_fetch_that_is_not_there_is_named_with_its_neighbours() -> None:
    loss = net()
    exe = started()
    with pytest.raises(
        FetchError, match=rf"fetch '{loss.name}x' is not in 'main' \(did you mean '{loss.name}'"
    ):
        exe.run(feed=feed(), fetch_list=[loss.name + "x"])
    with pytest.raises(FetchError, match="give Variables or their names"):
        exe.run(feed=feed(), fetch_list=[3])  # type: ignore[list-item]


def test_a_variable_of_another_program_is_refused() -> None:
    net()
    with program_guard(Program("other"), Program()):
        stranger = torch.relu(default_main_program().data("q", [None, 4]))
    with pytest.raises(FetchError, match="'relu_0.tmp_0' belongs to 'other', not to 'main'"):
        started().run(feed=feed(), fetch_list=[stranger])


def test_running_before_startup_says_so() -> None:
    loss = net()
    with pytest.raises(ScopeError, match=r"'w' has no value in the scope; run the startup program first"):
        Executor().run(feed=feed(), fetch_list=[loss])


def test_something_else_than_a_program_is_refused() -> None:
    with pytest.raises(ConfigError, match="give a static.Program"):
        Executor().run("main")  # type: ignore[arg-type]


def test_a_kernel_that_fails_names_node_line_and_role_and_the_scope_stays() -> None:
    program, startup = default_main_program(), default_startup_program()
    x, y = program.data("x", [None, 4]), program.data("y", [None], "int64")
    mean, var = program.state("mean", [4], "float32"), program.state("var", [4], "float32")
    startup.define("mean", lambda: torch.zeros(4))
    startup.define("var", lambda: torch.ones(4))
    loss = F.cross_entropy(F.batch_norm(x, mean, var, training=True), y)
    exe = started()
    wrong = {"x": np.random.randn(3, 4).astype("float32"), "y": np.array([0, 1, 9])}
    with pytest.raises(
        ProgramError, match=r"nll_loss_forward \(test_executor.py:\d+ .*\) failed in forward: Target 9"
    ):
        exe.run(feed=wrong, fetch_list=[loss])
    assert torch.equal(global_scope().get("mean"), torch.zeros(4)), "the statistics moved in a failed run"
    exe.run(feed={**wrong, "y": np.array([0, 1, 2])}, fetch_list=[loss])
    assert not torch.equal(global_scope().get("mean"), torch.zeros(4))


def test_the_first_nan_is_named_with_its_line_and_nothing_is_updated() -> None:
    program = default_main_program()
    x = program.data("x", [None, 4])
    w = program.state("w", [4], "float32", trainable=True)
    default_startup_program().define("w", lambda: torch.ones(4))
    loss = torch.log(x * w).sum()
    ((weight, grad),) = append_backward(loss)
    with program.recording("optimize"), torch.no_grad():
        weight.value.sub_(grad.value)
    exe = started()
    bad = {"x": np.array([[1, 2, -3, 4]], "float32")}
    exe.run(feed={"x": np.ones((1, 4), "float32")}, fetch_list=[loss])
    global_scope().get("w").fill_(1.0)
    set_flags({"FLAGS_check_nan_inf": True})
    try:
        with pytest.raises(
            NanInfError, match=r"log \(test_executor.py:\d+ .*\) made 1 values of NaN in float32\[1, 4\]"
        ):
            exe.run(feed=bad, fetch_list=[loss])
        assert torch.equal(global_scope().get("w"), torch.ones(4))
    finally:
        set_flags({"FLAGS_check_nan_inf": False})
    assert np.isnan(exe.run(feed=bad, fetch_list=[loss])[0])


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown flag 'FLAGS_check_nan'"):
        set_flags({"FLAGS_check_nan": True})
    with pytest.raises(ConfigError, match="is not a boolean"):
        set_flags({"FLAGS_check_nan_inf": "maybe"})


def test_a_program_that_every_rank_trains_alone_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    loss = paddle.static.nn.fc(paddle.static.data("x", [None, 2]), 1).mean()
    paddle.optimizer.SGD(0.1).minimize(loss)
    exe = Executor()
    exe.run(paddle.static.default_startup_program())
    assert "alone" not in caplog.text
    exe.run(feed={"x": np.ones((2, 2), "float32")})
    assert "trains on this rank alone: it has no collectives with the 2 other ranks" in caplog.text
