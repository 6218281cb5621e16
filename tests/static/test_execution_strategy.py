"""ExecutionStrategy: Paddle's fields and defaults."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.errors import ConfigError
from argosy.static.strategies import ExecutionStrategy


def test_has_the_defaults_of_paddle_2_0() -> None:
    assert ExecutionStrategy().as_dict() == {
        "num_threads": 0,
        "num_iteration_per_drop_scope": 100,
        "num_iteration_per_run": 1,
        "use_thread_barrier": False,
        "allow_op_delay": False,
        "use_experimental_executor": True,
    }


def test_what_has_no_meaning_here_is_accepted_if_it_makes_sense() -> None:
    strategy = ExecutionStrategy()
    strategy.num_threads, strategy.num_iteration_per_drop_scope, strategy.allow_op_delay = 3, 30, True
    assert (
        repr(strategy)
        == "ExecutionStrategy(num_threads=3, num_iteration_per_drop_scope=30, allow_op_delay=True)"
    )
    with pytest.raises(ConfigError, match="num_threads is -1"):
        strategy.num_threads = -1


def test_several_steps_in_one_run_are_not_there_yet() -> None:
    with pytest.raises(ConfigError, match="num_iteration_per_run is 4"):
        ExecutionStrategy().num_iteration_per_run = 4
