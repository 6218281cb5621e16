"""ExecutionStrategy: how Paddle's executor schedules a step. Most fields have no effect in Argosy."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.strategy_settings import Field, Settings, table


class ExecutionStrategy(Settings):
    """Paddle's `static.ExecutionStrategy`: assignment validates; fields without effect are accepted."""

    title = message = "ExecutionStrategy"
    fields = table(
        Field(
            "num_threads",
            "int",
            0,
            "always",
            "nodes run sequentially; OMP_NUM_THREADS sets the threads of a kernel",
            least=0,
        ),
        Field(
            "num_iteration_per_drop_scope",
            "int",
            100,
            "always",
            "temporaries are freed within each step",
            least=1,
        ),
        Field("num_iteration_per_run", "int", 1, "not yet", "several steps for one Executor.run", least=1),
        Field(
            "use_thread_barrier",
            "bool",
            False,
            "not yet",
            "a barrier between the workers of a parameter server",
        ),
        Field("allow_op_delay", "bool", False, "always", "without effect in Paddle too"),
        Field("use_experimental_executor", "bool", True, "always", "there is one executor"),
    )
