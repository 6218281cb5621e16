"""BuildStrategy: which passes rewrite a program before it runs. ExecutionStrategy: how the executor runs a step.

Most fields of ExecutionStrategy schedule Paddle's executor, and have no effect in Argosy.
"""

# SPDX-License-Identifier: Apache-2.0
import enum

from argosy.framework.strategy_settings import Field, Settings, table


class BuildStrategy(Settings):
    """Paddle's `static.BuildStrategy`: assignment validates, and turning on an unsupported switch raises.

    Fields read as Paddle's defaults until they are assigned. Of an unassigned fusion Argosy decides.
    """

    class ReduceStrategy(enum.IntEnum):
        """Which ranks reduce the gradients and update the parameters."""

        AllReduce = 0
        Reduce = 1

    class GradientScaleStrategy(enum.IntEnum):
        """The initial gradient of the loss."""

        CoeffNumDevice = 0
        One = 1
        Customized = 2

    title = message = "BuildStrategy"
    fields = table(
        # The first twelve are in Paddle's protobuf message, in its order.
        Field(
            "enable_sequential_execution",
            "bool",
            False,
            "always",
            "a step runs its nodes in the order of the program",
        ),
        Field(
            "fuse_elewise_add_act_ops",
            "bool",
            False,
            "works",
            "fuse an addition and its activation; fused unless False is assigned",
        ),
        Field(
            "fuse_bn_act_ops",
            "bool",
            False,
            "works",
            "fuse batch_norm and its activation; fused unless False is assigned",
        ),
        Field(
            "fuse_relu_depthwise_conv",
            "bool",
            False,
            "works",
            "fuse relu and the depthwise convolution after it; fused unless False is assigned",
        ),
        Field(
            "fuse_broadcast_ops",
            "bool",
            True,
            "works",
            "one broadcast for all parameters under ReduceStrategy.Reduce; without effect under AllReduce",
        ),
        Field(
            "fuse_all_optimizer_ops",
            "bool",
            False,
            "works",
            "fuse the updates of all parameters into one op; fused unless False is assigned",
        ),
        Field("enable_inplace", "bool", True, "works", "the pass in_place; False turns it off"),
        Field(
            "enable_backward_optimizer_op_deps",
            "bool",
            True,
            "always",
            "updates follow the whole backward part of the program",
        ),
        Field("cache_runtime_context", "bool", False, "always", "a compiled step is always cached"),
        Field(
            "fuse_bn_add_act_ops",
            "bool",
            True,
            "works",
            "fuse batch_norm, addition and relu; only if True is assigned",
        ),
        Field(
            "enable_auto_fusion", "bool", False, "not yet", "fuse chains of elementwise ops into one kernel"
        ),
        Field("enable_addto", "bool", False, "always", "a part of the pass in_place; see enable_inplace"),
        # Paddle loses these when a BuildStrategy is assigned to a DistributedStrategy.
        Field(
            "reduce_strategy",
            ReduceStrategy,
            ReduceStrategy.AllReduce,
            "works",
            "Reduce: each parameter is updated by one rank and broadcast",
        ),
        Field(
            "gradient_scale_strategy",
            GradientScaleStrategy,
            GradientScaleStrategy.CoeffNumDevice,
            "works",
            "the gradient of the loss: 1/ranks, 1, or fed by the user",
            not_yet=(GradientScaleStrategy.Customized,),
        ),
        Field(
            "debug_graphviz_path",
            "str",
            "",
            "works",
            "prefix of DOT files of the program: _original_graph, _fused_graph, _multi_devices_graph",
        ),
        Field("remove_unnecessary_lock", "bool", True, "always", "the runtime has no locks"),
        Field(
            "num_trainers",
            "int",
            1,
            "always",
            "set by fleetrun; a number other than the world size raises",
            least=1,
        ),
        Field("trainer_id", "int", 0, "always", "set by fleetrun", least=0),
        Field("trainers_endpoints", "list of str", (), "always", "set by fleetrun"),
        Field(
            "nccl_comm_num", "int", 1, "works", "communicators that all-reduces alternate between", least=1
        ),
        Field(
            "use_hierarchical_allreduce",
            "bool",
            False,
            "works",
            "all-reduce within each host, then between hosts",
        ),
        Field(
            "hierarchical_allreduce_inter_nranks",
            "int",
            0,
            "works",
            "ranks in the inner all-reduce; used with use_hierarchical_allreduce",
            least=0,
        ),
        Field("sync_batch_norm", "bool", False, "works", "batch_norm's statistics over all ranks"),
        Field(
            "memory_optimize",
            "bool or None",
            None,
            "works",
            "rematerialize activations in backward: True all that can be, False none, None the cheap ones",
        ),
        Field(
            "is_distribution",
            "bool",
            False,
            "always",
            "a program with send and recv ops is recognized as such",
        ),
        Field(
            "async_mode",
            "bool",
            False,
            "always",
            "parameter servers: the mode is that of the program, set by the transpiler or by fleet's strategy",
        ),
        Field("fuse_all_reduce_ops", "bool", True, "works", "several gradients in one all-reduce bucket"),
        Field("mkldnn_enabled_op_types", "list of str", (), "not yet", "torch chooses oneDNN itself"),
        # Not in Paddle.
        Field(
            "divide_updates",
            "bool",
            True,
            "works",
            "the ranks of one host share parameters and optimizer state, and each sums and updates a shard of them",
        ),
        Field(
            "compiler",
            "str",
            "",
            "works",
            "inductor: compile the computation between collectives with torch.compile's backend",
            among=("", "inductor"),
        ),
    )


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
            "always",
            "half-asynchronous training: the servers do it",
        ),
        Field("allow_op_delay", "bool", False, "always", "without effect in Paddle too"),
        Field("use_experimental_executor", "bool", True, "always", "there is one executor"),
    )
