"""Names of Paddle 1.8 and 2.0 that Argosy does not support, and what to use instead.

`missing` gives a stand-in for each, which raises with the reason; docs/reference/paddle_names.md lists them. A name is
written without `paddle.`. A module stands for everything below it.
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
_COMPLEX = "programs have no complex numbers; use real ones"
_DETECTION = "there are no layers for object detection; use torchvision.ops"
_BEAM = "there is no beam search in programs; decode with torch, from the saved parameters"
_SELECTED_ROWS = (
    "gradients are dense; with is_sparse=True the ranks exchange only the rows that they looked up"
)
_INFERENCE = "there is no separate inference engine; use paddle.static.load_inference_model and Executor.run"
_HIGH_LEVEL = "the high-level API (paddle.Model) needs eager mode; write the loop over Executor.run yourself"
_QUANTIZATION = (
    "quantization, pruning and distillation are not supported; export the parameters and use torch.ao"
)
_GPU_GROUPS = "it is for eager mode on GPUs; in a static program use fleet, or the collectives of this module"
_PRETRAINED = "there are no vision models or pretrained weights; call a module of torchvision on Variables"
_TEXT = "the data set cannot be downloaded by Argosy; read its files with paddle.io.Dataset"

_MODULES: tuple[tuple[str, bool, str], ...] = (
    (
        _EAGER,
        False,
        "fluid.dygraph imperative fluid.imperative autograd fluid.dygraph_grad_clip fluid.dygraph_utils",
    ),
    (_JIT, False, "jit"),
    (_OTHER_DEVICE, False, "cuda fluid.cuda_utils"),
    (_QUANTIZATION, True, "fluid.contrib.slim fluid.contrib.quantize nn.quant slim"),
    (_INFERENCE, True, "inference fluid.inference"),
    ("export the program with paddle.static.save_inference_model, or use torch.onnx", True, "onnx"),
    (_COMPLEX, True, "incubate.complex complex fft signal"),
    (_HIGH_LEVEL, False, "hapi callbacks incubate.hapi"),
    (_TEXT, True, "text"),
)
_NAMES: tuple[tuple[str, bool, str], ...] = (
    (
        _EAGER,
        False,
        "grad DataParallel to_variable VarBase amp.auto_cast amp.GradScaler nn.RNNCellBase.eager set_grad_enabled "
        "fluid.enable_dygraph fluid.disable_dygraph fluid.in_dygraph_mode.eager fluid.enable_imperative "
        "fluid.disable_imperative fluid.save_dygraph fluid.load_dygraph set_printoptions "
        "nn.utils.spectral_norm amp.decorate",
    ),
    (_HIGH_LEVEL, False, "Model summary flops"),
    (
        _OTHER_DEVICE,
        False,
        "get_cuda_rng_state set_cuda_rng_state get_cudnn_version XPUPlace NPUPlace device.XPUPlace "
        "device.get_cudnn_version fluid.cuda_pinned_places static.xpu_places fluid.xpu_places "
        "fluid.layers.inplace_abn fluid.profiler.npu_profiler fluid.profiler.cuda_profiler.gpu",
    ),
    (_GPU_GROUPS, False, "distributed.spawn distributed.prepare_context"),
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
