"""ExecutionStrategy: how Paddle's executor schedules a step. Ours is one list of nodes; little is left to set."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.settings import Field, Settings, table


class ExecutionStrategy(Settings):
    """Paddle's `static.ExecutionStrategy`: assigning checks; what has no meaning here is accepted."""

    title = message = "ExecutionStrategy"
    fields = table(
        Field(
            "num_threads",
            "int",
            0,
            "always",
            "nodes run one after the other; the threads inside a kernel are OMP_NUM_THREADS",
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
            "workers of a parameter server wait for each other",
        ),
        Field("allow_op_delay", "bool", False, "always", "without effect in Paddle too"),
        Field("use_experimental_executor", "bool", True, "always", "there is one executor"),
    )
