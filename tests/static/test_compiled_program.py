"""CompiledProgram: what it takes, and that the Executor runs it."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

import argosy as paddle
from argosy.engine.errors import ConfigError, FetchError
from argosy.static.compiled_program import CompiledProgram, configure
from argosy.static.strategies import BuildStrategy, ExecutionStrategy


def program() -> paddle.static.Program:
    x = paddle.static.data("x", [None, 2], "float32")
    paddle.mean(paddle.static.nn.fc(x, 1), name="cost")
    return paddle.static.default_main_program()


def test_the_executor_runs_it_like_the_program() -> None:
    main = program()
    loss = list(main.vars)[-1]
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    feed = {"x": np.ones((4, 2), "float32")}
    compiled = CompiledProgram(main).with_data_parallel(loss_name=loss, places=[paddle.CPUPlace()])
    assert exe.run(compiled, feed, [loss]) == exe.run(main, feed, [loss])


def test_keeps_the_strategies_it_is_given() -> None:
    build, execution = BuildStrategy(), ExecutionStrategy()
    first = CompiledProgram(program(), build)
    assert first.build_strategy is build
    assert not first.is_data_parallel
    again = first.with_data_parallel(exec_strategy=execution)
    assert again is first
    assert (again.build_strategy, again.exec_strategy) == (build, execution)
    assert again.is_data_parallel
    other = CompiledProgram(first.program).with_data_parallel(build_strategy=build, share_vars_from=first)
    assert other.build_strategy is build


def test_several_places_in_one_process_point_to_fleetrun() -> None:
    with pytest.raises(ConfigError, match="2 places.*fleetrun --nproc_per_node=2"):
        CompiledProgram(program()).with_data_parallel(places=paddle.static.cpu_places(2))


def test_invalid_arguments_are_rejected_and_change_nothing() -> None:
    main = program()
    with pytest.raises(ConfigError, match="was given a str; give a static.Program"):
        CompiledProgram("main")
    with pytest.raises(ConfigError, match="build_strategy is .*use an object of BuildStrategy"):
        CompiledProgram(main, ExecutionStrategy())
    compiled = CompiledProgram(main)
    for wrong, words in [
        ({"build_strategy": {}}, "use an object of BuildStrategy"),
        ({"exec_strategy": 3}, "use an object of ExecutionStrategy"),
        ({"share_vars_from": main}, "use a CompiledProgram"),
        ({"places": ["cpu"]}, "use CPUPlace"),
    ]:
        with pytest.raises(ConfigError, match=words):
            compiled.with_data_parallel(**wrong)
    with pytest.raises(FetchError, match="loss_name 'lost' is not in"):
        compiled.with_data_parallel("lost")
    assert not compiled.is_data_parallel
    compiled.with_data_parallel()
    with pytest.raises(ConfigError, match="already called"):
        compiled.with_data_parallel()


def fusing() -> BuildStrategy:
    build = BuildStrategy()
    build.fuse_elewise_add_act_ops = True
    return build


def test_one_program_is_run_fused_and_unfused() -> None:
    x = paddle.static.data("x", [2, 4], "float32")
    y = paddle.nn.functional.relu(x + paddle.exp(x - 1.0))
    main = paddle.static.default_main_program()
    fused, plain = (
        CompiledProgram(main, build_strategy=fusing()),
        CompiledProgram(main, build_strategy=BuildStrategy()),
    )
    assert "add_act(" in str(fused)
    assert "add_act(" not in str(plain)
    assert "add_act(" not in str(main)
    exe = paddle.static.Executor()
    given = {"x": np.ones([2, 4], "float32")}
    for one in (fused, plain, main):
        assert exe.run(one, feed=given, fetch_list=[y])[0].tolist() == [[2.0] * 4] * 2


def test_a_strategy_that_a_program_was_compiled_by_may_not_change() -> None:
    build = fusing()
    CompiledProgram(paddle.static.default_main_program(), build_strategy=build)
    with pytest.raises(
        ConfigError, match="fuse_bn_act_ops is set after a program was built with this BuildStrategy"
    ):
        build.fuse_bn_act_ops = True


def test_a_program_for_testing_has_no_fused_nodes() -> None:
    x = paddle.static.data("x", [2, 4], "float32")
    paddle.nn.functional.relu(x + paddle.exp(x - 1.0))
    main = paddle.static.default_main_program()
    configure(main, fusing())
    assert "add_act(" in str(main)
    assert "add_act(" not in str(main.clone(for_test=True))
