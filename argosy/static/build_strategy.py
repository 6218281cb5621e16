"""BuildStrategy: which rewrites a program goes through before it runs."""

# SPDX-License-Identifier: Apache-2.0
import enum

from argosy.framework.settings import Field, Settings, table


class BuildStrategy(Settings):
    """Paddle's `static.BuildStrategy`: assigning checks; what is not there yet raises when it is turned on."""

    class ReduceStrategy(enum.IntEnum):
        """Who sums the gradients and updates the parameters."""

        AllReduce = 0
        Reduce = 1

    class GradientScaleStrategy(enum.IntEnum):
        """What the gradient of the loss starts with."""

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
            "fuse_elewise_add_act_ops", "bool", False, "works", "an addition and its activation in one node"
        ),
        Field("fuse_bn_act_ops", "bool", False, "works", "batch_norm and its activation in one node"),
        Field(
            "fuse_relu_depthwise_conv",
            "bool",
            False,
            "works",
            "relu and the depthwise convolution after it in one node",
        ),
        Field(
            "fuse_broadcast_ops",
            "bool",
            True,
            "works",
            "one broadcast for all parameters under ReduceStrategy.Reduce; without effect under AllReduce",
        ),
        Field("fuse_all_optimizer_ops", "bool", False, "works", "one update for all parameters"),
        Field("enable_inplace", "bool", True, "works", "the pass in_place; False switches it off"),
        Field(
            "enable_backward_optimizer_op_deps",
            "bool",
            True,
            "always",
            "updates stand behind the whole backward part in the program",
        ),
        Field("cache_runtime_context", "bool", False, "always", "a compiled step is always kept"),
        Field(
            "fuse_bn_add_act_ops",
            "bool",
            True,
            "works",
            "batch_norm, addition and relu in one node; only if True is assigned",
        ),
        Field("enable_auto_fusion", "bool", False, "not yet", "chains of elementwise ops in one kernel"),
        Field("enable_addto", "bool", False, "always", "a part of in_place, which enable_inplace switches"),
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
            "the program is drawn into files that begin so: _original_graph, _fused_graph, _multi_devices_graph",
        ),
        Field("remove_unnecessary_lock", "bool", True, "always", "the runtime has no locks"),
        Field(
            "num_trainers",
            "int",
            1,
            "always",
            "fleetrun tells; another number than the ranks raises",
            least=1,
        ),
        Field("trainer_id", "int", 0, "always", "fleetrun tells", least=0),
        Field("trainers_endpoints", "list of str", (), "always", "fleetrun tells"),
        Field("nccl_comm_num", "int", 1, "works", "communicators that gradients take turns on", least=1),
        Field("use_hierarchical_allreduce", "bool", False, "works", "sum inside a host, then between hosts"),
        Field(
            "hierarchical_allreduce_inter_nranks",
            "int",
            0,
            "works",
            "ranks that sum first; read with use_hierarchical_allreduce",
            least=0,
        ),
        Field("sync_batch_norm", "bool", False, "works", "batch_norm's statistics over all ranks"),
        Field(
            "memory_optimize",
            "bool or None",
            None,
            "works",
            "True: what backward can compute again is not kept; False: all is kept; None: what costs little",
        ),
        Field(
            "is_distribution", "bool", False, "not yet", "a program with send and recv of parameter servers"
        ),
        Field("async_mode", "bool", False, "not yet", "parameter servers without waiting"),
        Field("fuse_all_reduce_ops", "bool", True, "works", "several gradients in one all-reduce"),
        Field("mkldnn_enabled_op_types", "list of str", (), "not yet", "torch chooses oneDNN by itself"),
        # Ours.
        Field(
            "compiler",
            "str",
            "",
            "works",
            "inductor: torch's compiler makes kernels of the computation between exchanges",
            among=("", "inductor"),
        ),
    )
