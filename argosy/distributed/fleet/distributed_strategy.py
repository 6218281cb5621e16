"""DistributedStrategy: the switches of distributed training, with printing and files; strategy_checks.py checks them.

strategy = fleet.DistributedStrategy()
strategy.nccl_comm_num = 2
strategy.build_strategy.fuse_bn_act_ops = True
print(strategy)
"""

# SPDX-License-Identifier: Apache-2.0
import enum
from pathlib import Path
from typing import Any

from argosy.distributed.fleet.strategy_overview import overview
from argosy.engine.errors import ConfigError
from argosy.framework.strategy_settings import Field, Settings, configs, table, with_defaults
from argosy.static.strategies import BuildStrategy, ExecutionStrategy


class Mode(enum.IntEnum):
    """The kind of job that a strategy is for; `fleet.init` sets it."""

    COLLECTIVE = 1
    PS = 2
    PIPELINE = 3
    HETER = 4


# Paddle's defaults of these two differ between a fresh object and one that was never assigned.
_Build = with_defaults(BuildStrategy, fuse_broadcast_ops=False)
_Execution = with_defaults(ExecutionStrategy, num_threads=1, num_iteration_per_drop_scope=10)


class DistributedStrategy(Settings):
    """Paddle's `fleet.DistributedStrategy`: assignment validates, and turning on an unsupported switch raises."""

    title = message = "DistributedStrategy"
    fields = table(
        # --- switches ---------------------------------------------------------------------------------
        Field("mode", Mode, Mode.COLLECTIVE, "not yet", "fleet.init sets it"),
        Field("amp", "bool", False, "works", "automatic mixed precision: products in 16 bits"),
        Field(
            "recompute", "bool", False, "works", "recompute activations in backward instead of storing them"
        ),
        Field("localsgd", "bool", False, "works", "average the parameters every k steps, not the gradients"),
        Field("dgc", "bool", False, "works", "Momentum that sends only the largest elements of gradients"),
        Field("gradient_merge", "bool", False, "works", "accumulate the gradients of k steps, then update"),
        Field("lars", "bool", False, "works", "Momentum with layer-wise adaptive rates"),
        Field("lamb", "bool", False, "works", "Adam with layer-wise adaptive rates"),
        Field(
            "pipeline", "bool", False, "not yet", "pipeline parallelism: stages of layers on different ranks"
        ),
        Field("elastic", "bool", False, "not yet", "ranks join and leave during the job"),
        Field("auto", "bool", False, "works", "choose how gradients travel by simulation, verify in the job"),
        Field(
            "a_sync",
            "bool",
            True,
            "works",
            "parameter servers: asynchronous training; without effect in collective training",
        ),
        Field(
            "sync_nccl_allreduce", "bool", True, "works", "wait for each all-reduce before the next starts"
        ),
        BuildStrategy.fields["nccl_comm_num"],
        BuildStrategy.fields["use_hierarchical_allreduce"],
        Field(
            "hierarchical_allreduce_inter_nranks",
            "int",
            1,
            "works",
            "ranks in the inner all-reduce; 1: the ranks of a host",
            least=1,
        ),
        Field(
            "hierarchical_allreduce_algorithm",
            "str",
            "reduce_scatter",
            "works",
            "inter-host all-reduce: of every rank's shard (after a reduce-scatter), or by leaders (as Paddle)",
            among=("reduce_scatter", "leaders"),
        ),
        Field("sync_batch_norm", "bool", False, "works", "batch_norm's statistics over all ranks"),
        Field("fuse_all_reduce_ops", "bool", True, "works", "several gradients in one all-reduce bucket"),
        Field(
            "fuse_grad_size_in_MB",
            "int",
            32,
            "works",
            "size of an all-reduce bucket; 0: one bucket per layer",
            least=-1,
        ),
        Field(
            "_fuse_grad_size_in_TFLOPS",
            "float",
            50.0,
            "works",
            "most gradients in an all-reduce bucket; 1 or less: no limit",
        ),
        Field(
            "cudnn_exhaustive_search",
            "bool",
            True,
            "works",
            "benchmark cuDNN's kernels in the first steps; only if True is assigned",
        ),
        Field("conv_workspace_size_limit", "int", 4000, "always", "torch's cuDNN calls choose it; GPU only"),
        Field("cudnn_batchnorm_spatial_persistent", "bool", True, "always", "torch chooses it; GPU only"),
        Field("adaptive_localsgd", "bool", False, "works", "localsgd with k adapted to the loss"),
        Field("fp16_allreduce", "bool", False, "works", "all-reduce gradients as 16-bit floats"),
        Field("sharding", "bool", False, "works", "each rank stores a shard of the optimizer state"),
        Field("last_comm_group_size_MB", "float", 1.0, "not yet", "eager mode only", above=0),
        Field("find_unused_parameters", "bool", False, "not yet", "eager mode only"),
        Field("tensor_parallel", "bool", False, "not yet", "layers are sharded over ranks"),
        # --- their settings ---------------------------------------------------------------------------
        configs(
            "recompute",
            "RecomputeConfig",
            Field("checkpoints", "list of names", ()),
            Field("enable_offload", "bool", False, "not yet", "checkpoints stay in the memory of the device"),
            Field("checkpoint_shape", "list of int", (), "always", "for enable_offload only"),
            Field("memory_budget_MB", "float", 0.0, least=0),  # not in Paddle; for checkpoints="auto"
        ),
        configs(
            "amp",
            "AMPConfig",
            Field("init_loss_scaling", "float", 32768.0, above=0),
            Field("incr_every_n_steps", "int", 1000, least=1),
            Field("decr_every_n_nan_or_inf", "int", 2, least=1),
            Field("incr_ratio", "float", 2.0, above=0),
            Field("decr_ratio", "float", 0.8, above=0),
            Field("use_dynamic_loss_scaling", "bool", True),
            Field("custom_white_list", "list of str", ()),
            Field("custom_black_list", "list of str", ()),
            Field("custom_black_varnames", "list of str", ()),
            Field("use_pure_fp16", "bool", False),
            Field("use_fp16_guard", "bool", True),
            Field(
                "dtype", "str", "bfloat16", among=("bfloat16", "float16")
            ),  # not in Paddle, which has float16
        ),
        configs(
            "localsgd",
            "LocalSGDConfig",
            Field("k_steps", "int", 1, least=1),
            Field("begin_step", "int", 1, least=0),
        ),
        configs(
            "gradient_merge",
            "GradientMergeConfig",
            Field("k_steps", "int", 1, least=1),
            Field("avg", "bool", True),
        ),
        configs(
            "dgc",
            "DGCConfig",
            Field("rampup_begin_step", "int", 0, least=0),
            Field("rampup_step", "int", 1, least=1),
            Field("sparsity", "list of float", (), least=0, below=1),
        ),
        configs(
            "pipeline",
            "PipelineConfig",
            Field("micro_batch", "int", 1, least=1),  # 2.0; the other three are of 2.1
            Field("micro_batch_size", "int", 1, least=1),
            Field("accumulate_steps", "int", 1, least=1),
            Field("schedule_mode", "str", "1F1B", among=("1F1B", "F-then-B")),
        ),
        configs(
            "a_sync",
            "AsyncConfig",
            Field("k_steps", "int", -1, least=-1),
            Field("max_merge_var_num", "int", 1, least=1),
            Field("send_queue_size", "int", 16, least=1),
            Field("independent_recv_thread", "bool", False),
            Field("min_send_grad_num_before_recv", "int", 1, least=1),
            Field("thread_pool_size", "int", 1, least=1),
            Field("send_wait_times", "int", 1, least=0),
            Field("runtime_split_send_recv", "bool", False),
            Field("launch_barrier", "bool", True),
            Field("heter_worker_device_guard", "str", "cpu"),
            Field("lr_decay_steps", "int", 10, least=1),
            Field("use_ps_gpu", "int", 0, least=0),
            Field("half_async", "bool", False),  # this and what follows are not in Paddle's strategy
            Field("dc_asgd", "bool", False),
            Field("dc_asgd_lambda", "float", 0.04, least=0),
            Field("dc_asgd_adaptive", "bool", False),
        ),
        configs(
            "lars",
            "LarsConfig",
            Field("lars_coeff", "float", 0.001, least=0),
            Field("lars_weight_decay", "float", 0.0005, least=0),
            Field("epsilon", "float", 0.0, least=0),
            Field("exclude_from_weight_decay", "list of str", ()),
        ),
        configs(
            "lamb",
            "LambConfig",
            Field("lamb_weight_decay", "float", 0.01, least=0),
            Field("exclude_from_weight_decay", "list of str", ()),
        ),
        configs(
            "adaptive_localsgd",
            "AdaptiveLocalSGDConfig",
            Field("init_k_steps", "int", 1, least=1),
            Field("begin_step", "int", 1, least=0),
        ),
        configs(
            "fp16_allreduce",  # not in Paddle, which has float16 alone
            "FP16AllReduceConfig",
            Field("dtype", "str", "float16", among=("float16", "bfloat16")),
        ),
        configs(
            "sharding",
            "ShardingConfig",
            Field("fuse_broadcast_MB", "float", 32.0, above=0),  # 2.0: this, hybrid_dp and the next
            Field("sharding_group_size", "int", 8, least=1),
            Field("hybrid_dp", "bool", False),
            Field(
                "sharding_segment_strategy",
                "str",
                "segment_broadcast_MB",
                among=("segment_broadcast_MB", "segment_anchors"),
            ),
            Field("segment_broadcast_MB", "float", 32.0, above=0),
            Field("segment_anchors", "list of str", ()),
            Field("sharding_degree", "int", 8, least=1),
            Field("mp_degree", "int", 1, least=1),
            Field("dp_degree", "int", 1, least=1),
            Field("gradient_merge_acc_step", "int", 1, least=1),
            Field("optimize_offload", "bool", False),
            Field("pp_allreduce_in_optimize", "bool", False),
            Field("pp_degree", "int", 1, least=1),
            Field("shared_weights", "bool", True),  # not in Paddle: one copy of the weights per host
        ),
        configs(
            "auto",  # not in Paddle
            "AutoConfig",
            Field("budget", "float", 0.02, above=0, least=None),
            Field("samples", "int", 8, least=1),
            Field("min_gain", "float", 0.01, above=0, below=1),
            Field("bit_equal", "bool", False),
            Field("changes_numerics", "bool", False),
            Field("hosts", "str", ""),
            Field("cache", "bool", True),
        ),
        configs(
            "tensor_parallel", "TensorParallelConfig", Field("tensor_parallel_degree", "int", 1, least=1)
        ),
        configs(
            "hybrid",
            "HybridConfig",
            Field("dp_degree", "int", -1, "not yet", "eager mode only"),
            Field("mp_degree", "int", 1, "not yet", "eager mode only"),
            Field("pp_degree", "int", 1, "not yet", "eager mode only"),
        ),
        # --- nested strategies ------------------------------------------------------------------------
        Field("build_strategy", BuildStrategy, _Build, "works", "which passes rewrite the program"),
        Field("execution_strategy", ExecutionStrategy, _Execution, "works", "how the executor runs a step"),
    )

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "a_sync":  # as in Paddle: replaces the default -1 ("no parameter server")
            self.a_sync_configs = {"k_steps": 0}

    def __str__(self) -> str:
        return overview(self)

    def effective(self, name: str) -> Any:
        """The value of a switch that build_strategy has too: the one that was assigned, by default this object's."""
        build = self.build_strategy
        if name == "sync_batch_norm":
            return self.sync_batch_norm or build.sync_batch_norm
        only_there = build.fields.get(name) and build.is_assigned(name) and not self.is_assigned(name)
        return getattr(build if only_there else self, name)

    def merged_steps(self) -> tuple[int, bool] | None:
        """(k, avg) if the gradients of k steps are accumulated, by `gradient_merge` or by sharding's own setting."""
        merge = self.gradient_merge_configs
        sharded = self.sharding_configs["gradient_merge_acc_step"] if self.sharding else 1
        if self.gradient_merge and sharded > 1 and sharded != merge["k_steps"]:
            raise ConfigError(
                f"strategy.gradient_merge has k_steps {merge['k_steps']}, and sharding_configs"
                f"['gradient_merge_acc_step'] is {sharded}; leave the second out"
            )
        if self.gradient_merge or sharded > 1:
            return (merge["k_steps"] if self.gradient_merge else sharded), merge["avg"]
        return None

    def save_to_prototxt(self, path: str | Path) -> None:
        """Write the assigned fields as protobuf text; the write is atomic."""
        from argosy.distributed.fleet import prototxt  # imported here, so that other scripts need no protobuf

        prototxt.save(self, Path(path))

    def load_from_prototxt(self, path: str | Path) -> None:
        """Assign the fields of a protobuf text file; if one is invalid, raise and assign none."""
        from argosy.distributed.fleet import prototxt

        prototxt.load(self, Path(path))
