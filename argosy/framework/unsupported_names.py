"""Names of Paddle 1.8 and 2.0 that Argosy does not support, and what to use instead.

`missing` gives a stand-in for each, which raises with the reason; docs/reference/paddle_names.md lists them. A name is
written without `paddle.`. A module covers all names below it. A name that a module has is not looked up here.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass


@dataclass(frozen=True)
class Unsupported:
    """Why a name, or a module and all names below it, is not supported."""

    reason: str
    is_for_static_cpu: bool = True
    """False: Paddle has it for eager mode or for another device than the CPU."""
    is_module: bool = False


_EAGER = "it is for eager mode (dygraph), and Argosy has static programs only; use torch for eager mode"
_JIT = "it converts eager code to a static program; build the program with paddle.static, or use torch.jit"
_OTHER_DEVICE = "it is for GPUs, XPUs or NPUs; a program of Argosy runs on the CPU"
_HIGH_LEVEL = "the high-level API (paddle.Model) needs eager mode; write the loop over Executor.run yourself"
_QUANTIZATION = (
    "quantization, pruning and distillation are not supported; export the parameters and use torch.ao"
)
_INFERENCE = "there is no separate inference engine; use paddle.static.load_inference_model and Executor.run"
_COMPLEX = "programs have no complex numbers; use real ones"
_DETECTION = (
    "there are no layers for object detection; compute with the functions of paddle, or call a torch module"
)
_BEAM = "there is no beam search in programs; decode outside of the program, step by step with Executor.run"
_DISTRIBUTION = (
    "there are no distributions in programs; write the formula, or use paddle.normal, uniform and multinomial"
)
_NO_OP = "there is no such op; write it with other functions of paddle, or as a torch module, which programs can call"
_WEIGHT_NORM = (
    "weights are not reparametrized; multiply by g / norm(v) in the program, both of create_parameter"
)
_DATA_SET = "there is no reader for this data set; read its files with paddle.io.Dataset"

_MODULES: tuple[tuple[str, bool, str], ...] = (
    (_EAGER, False, "fluid.dygraph imperative fluid.imperative autograd fluid.dygraph_grad_clip amp"),
    (_JIT, False, "jit"),
    (_HIGH_LEVEL, False, "hapi callbacks incubate.hapi"),
    (_QUANTIZATION, True, "fluid.contrib.slim fluid.contrib.quantize nn.quant slim"),
    (_INFERENCE, True, "inference fluid.inference"),
    ("export the parameters with paddle.static.save, and use torch.onnx", True, "onnx"),
    (_COMPLEX, True, "incubate.complex complex fft signal"),
    (_DATA_SET, True, "text"),
    (_DISTRIBUTION, True, "distribution"),
    (_DETECTION, True, "vision.ops"),
    ("there is no network access; download the weights yourself", True, "utils.download"),
)
_NAMES: tuple[tuple[str, bool, str], ...] = (
    (
        _EAGER,
        False,
        "disable_static grad DataParallel to_variable VarBase set_grad_enabled tolist set_printoptions "
        "fluid.enable_dygraph fluid.disable_dygraph fluid.enable_imperative fluid.disable_imperative "
        "fluid.save_dygraph fluid.load_dygraph "
        "distributed.fleet.step distributed.fleet.clear_grad distributed.spawn distributed.prepare_context "
        "distributed.split distributed.new_group distributed.get_group distributed.wait distributed.send "
        "distributed.recv distributed.alltoall",
    ),
    (_HIGH_LEVEL, False, "Model summary flops"),
    (
        "it splits a batch by a mask; compute both sides and select with layers.where, or use layers.cond",
        True,
        "fluid.layers.IfElse",
    ),
    (
        "it iterates over ragged sequences; use layers.dynamic_lstm or dynamic_gru, or pad the batch and use StaticRNN",
        True,
        "fluid.layers.DynamicRNN",
    ),
    (
        "start the job with fleetrun --server_num=… --worker_num=… and use PaddleCloudRoleMaker()",
        True,
        "fluid.incubate.fleet.base.role_maker.MPISymetricRoleMaker",
    ),
    (
        _OTHER_DEVICE,
        False,
        "get_cuda_rng_state set_cuda_rng_state get_cudnn_version XPUPlace NPUPlace device.XPUPlace fluid.XPUPlace "
        "core.XPUPlace fluid.core.XPUPlace device.get_cudnn_version fluid.cuda_pinned_places "
        "fluid.framework.cuda_pinned_places static.xpu_places fluid.xpu_places fluid.transpiler.collective.MultiThread "
        "fluid.transpiler.collective.SingleProcessMultiThread fluid.layers.inplace_abn",
    ),
    (_COMPLEX, True, "conj real imag"),
    (
        _DETECTION,
        True,
        "fluid.layers.prior_box fluid.layers.density_prior_box fluid.layers.multi_box_head "
        "fluid.layers.bipartite_match fluid.layers.target_assign fluid.layers.detection_output fluid.layers.ssd_loss "
        "fluid.layers.rpn_target_assign fluid.layers.retinanet_target_assign fluid.layers.sigmoid_focal_loss "
        "fluid.layers.anchor_generator fluid.layers.roi_perspective_transform fluid.layers.generate_proposal_labels "
        "fluid.layers.generate_proposals fluid.layers.generate_mask_labels fluid.layers.iou_similarity "
        "fluid.layers.box_coder fluid.layers.polygon_box_transform fluid.layers.yolov3_loss fluid.layers.yolo_box "
        "fluid.layers.box_clip fluid.layers.multiclass_nms fluid.layers.locality_aware_nms fluid.layers.matrix_nms "
        "fluid.layers.retinanet_detection_output fluid.layers.distribute_fpn_proposals "
        "fluid.layers.box_decoder_and_assign fluid.layers.collect_fpn_proposals fluid.layers.roi_pool "
        "fluid.layers.roi_align fluid.layers.psroi_pool fluid.layers.prroi_pool fluid.layers.deformable_conv "
        "fluid.layers.deformable_roi_pooling static.nn.multi_box_head static.nn.deform_conv2d "
        "fluid.contrib.layers.multiclass_nms2 fluid.metrics.DetectionMAP fluid.evaluator.DetectionMAP",
    ),
    (
        _BEAM,
        True,
        "nn.BeamSearchDecoder nn.dynamic_decode fluid.layers.Decoder fluid.layers.BeamSearchDecoder "
        "fluid.layers.dynamic_decode fluid.layers.DecodeHelper fluid.layers.TrainingHelper "
        "fluid.layers.GreedyEmbeddingHelper fluid.layers.SampleEmbeddingHelper fluid.layers.BasicDecoder "
        "fluid.layers.beam_search fluid.layers.beam_search_decode",
    ),
    (
        _DISTRIBUTION,
        True,
        "fluid.layers.Uniform fluid.layers.Normal fluid.layers.Categorical fluid.layers.MultivariateNormalDiag",
    ),
    (
        _NO_OP,
        True,
        "fluid.layers.hash fluid.layers.similarity_focus fluid.layers.filter_by_instag fluid.layers.space_to_depth "
        "fluid.layers.continuous_value_model fluid.layers.data_norm static.nn.data_norm fluid.layers.im2sequence "
        "fluid.layers.sampled_softmax_with_cross_entropy fluid.contrib.layers.batch_fc "
        "fluid.contrib.layers.bilateral_slice fluid.contrib.layers.correlation "
        "fluid.contrib.layers.fused_embedding_seq_pool fluid.contrib.layers.match_matrix_tensor "
        "fluid.contrib.layers.rank_attention fluid.contrib.layers.search_pyramid_hash "
        "fluid.contrib.layers.sequence_topk_avg_pooling fluid.contrib.layers.shuffle_batch "
        "fluid.contrib.layers.tdm_child fluid.contrib.layers.tdm_sampler fluid.contrib.layers.tree_conv "
        "fluid.contrib.layers.var_conv_2d fluid.contrib.ctr_metric_bundle",
    ),
    (
        "build strategies fuse these ops; use batch_norm, or an activation after elementwise_add",
        True,
        "fluid.contrib.layers.fused_bn_add_act fluid.contrib.layers.fused_elemwise_activation",
    ),
    (
        "gradients are dense; with is_sparse=True the ranks exchange only the rows that they looked up",
        True,
        "fluid.layers.merge_selected_rows fluid.layers.get_tensor_from_selected_rows",
    ),
    (
        _WEIGHT_NORM,
        True,
        "nn.utils.weight_norm nn.utils.remove_weight_norm nn.utils.spectral_norm static.WeightNormParamAttr "
        "fluid.WeightNormParamAttr fluid.param_attr.WeightNormParamAttr",
    ),
    (
        "a variable has a value from its creation; use the result of assign, cast, concat or sums instead of `out`",
        True,
        "fluid.layers.create_tensor fluid.layers.tensor.create_tensor",
    ),
    (
        "give the optimizer grad_clip, or a ParamAttr with need_clip=False for single parameters",
        True,
        "fluid.clip.set_gradient_clip fluid.clip.ErrorClipByValue",
    ),
    (
        "use nn.LSTM or nn.GRU, and their cells",
        True,
        "fluid.contrib.BasicGRUUnit fluid.contrib.BasicLSTMUnit fluid.contrib.basic_gru fluid.contrib.basic_lstm",
    ),
    (
        "use paddle.optimizer.AdamW, or weight_decay of the optimizer",
        True,
        "fluid.contrib.extend_with_decoupled_weight_decay",
    ),
    (
        "print the program: print(program) lists its nodes, and Executor's timeline their times",
        True,
        "fluid.contrib.memory_usage fluid.contrib.op_freq_statistic",
    ),
    (
        "use nn.BatchNorm2D, and DistributedStrategy.sync_batch_norm = True",
        True,
        "nn.SyncBatchNorm",
    ),
    (
        "use static.amp.decorate: parameters stay float32, and the step computes in 16 bits",
        True,
        "static.amp.cast_model_to_fp16 static.amp.cast_parameters_to_fp16",
    ),
    (
        "use static.CompiledProgram(program).with_data_parallel(loss_name), or fleet",
        True,
        "static.ParallelExecutor",
    ),
    (
        "there is no such optimizer; use Adagrad, or write the update with torch",
        True,
        "fluid.optimizer.DecayedAdagrad fluid.optimizer.DecayedAdagradOptimizer fluid.optimizer.Dpsgd "
        "fluid.optimizer.DpsgdOptimizer",
    ),
    (
        "there is no pipeline parallelism; use sharding or recompute to save memory",
        True,
        "fluid.optimizer.PipelineOptimizer",
    ),
    (
        "a server creates every row that is looked up; leave `entry` out",
        True,
        "distributed.CountFilterEntry distributed.ProbabilityEntry",
    ),
)


def _table(rows: tuple[tuple[str, bool, str], ...], is_module: bool) -> dict[str, Unsupported]:
    return {
        name: Unsupported(reason, is_for_static_cpu, is_module)
        for reason, is_for_static_cpu, names in rows
        for name in names.split()
    }


MODULES = _table(_MODULES, is_module=True)
NAMES = _table(_NAMES, is_module=False)


def entry(name: str) -> Unsupported | None:
    """What is known about `fluid.layers.prior_box`: its own entry, or that of a module above it."""
    if name in NAMES:
        return NAMES[name]
    parts = name.split(".")
    above = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((MODULES[module] for module in above if module in MODULES), None)
