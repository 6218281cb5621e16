"""Strategies in files: round trip, files of Paddle, and what is refused with path and line."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.engine.errors import ConfigError
from argosy.static.strategies import BuildStrategy, ExecutionStrategy

# As Paddle 2.0.0 would write it: its field names, and floats rounded to 32 bits. Written by hand after its .proto file.
PADDLE = """\
sync_nccl_allreduce: false
fuse_all_reduce_ops: true
fuse_grad_size_in_MB: 16
fuse_grad_size_in_TFLOPS: 50.0
amp_configs {
  init_loss_scaling: 32768.0
  decr_ratio: 0.800000011920929
  custom_white_list: "conv2d"
  custom_white_list: "matmul"
}
build_strategy {
  enable_sequential_execution: false
  fuse_elewise_add_act_ops: false
  fuse_broadcast_ops: true
  enable_inplace: true
  fuse_bn_add_act_ops: true
}
execution_strategy {
  num_threads: 3
  num_iteration_per_drop_scope: 100
}
"""


def saved(strategy: DistributedStrategy, folder: Path) -> tuple[str, DistributedStrategy]:
    path = folder / "strategy.prototxt"
    strategy.save_to_prototxt(str(path))
    again = DistributedStrategy()
    again.load_from_prototxt(str(path))
    return path.read_text(), again


def test_only_what_was_assigned_is_written(tmp_path: Path) -> None:
    options = DistributedStrategy()
    assert saved(options, tmp_path) == ("", options)
    options.sync_nccl_allreduce = True
    options._fuse_grad_size_in_TFLOPS = 20
    options.build_strategy.enable_inplace = False
    text, again = saved(options, tmp_path)
    assert text == (
        "sync_nccl_allreduce: true\nfuse_grad_size_in_TFLOPS: 20.0\nbuild_strategy {\n  enable_inplace: false\n}\n"
    )
    assert again == options
    assert [p.name for p in tmp_path.iterdir()] == ["strategy.prototxt"]


def test_the_dtype_of_fp16_allreduce_is_written_only_if_it_was_assigned(tmp_path: Path) -> None:
    """Paddle has no message FP16AllReduceConfig: it reads our file as long as none is in it."""
    strategy = DistributedStrategy()
    strategy.fp16_allreduce = True
    assert saved(strategy, tmp_path) == ("fp16_allreduce: true\n", strategy)
    strategy.fp16_allreduce_configs = {"dtype": "bfloat16"}
    text, again = saved(strategy, tmp_path)
    assert text == 'fp16_allreduce: true\nfp16_allreduce_configs {\n  dtype: "bfloat16"\n}\n'
    assert again == strategy


def test_everything_survives_the_round_trip(tmp_path: Path) -> None:
    strategy = DistributedStrategy()
    strategy.build_strategy = BuildStrategy()
    strategy.execution_strategy = ExecutionStrategy()
    strategy.build_strategy.gradient_scale_strategy = BuildStrategy.GradientScaleStrategy.One
    strategy.build_strategy.debug_graphviz_path = 'a "b"\n\\ ü'
    strategy.build_strategy.memory_optimize = False
    strategy.build_strategy.trainers_endpoints = ["a:1", "b:2"]
    strategy.dgc_configs = {"sparsity": [0.984375, 0.996, 0.999]}
    strategy.recompute_configs = {"checkpoints": ["x", "y"], "checkpoint_shape": [4, 8]}
    strategy.amp_configs = {"decr_ratio": 0.1}
    strategy.a_sync = False
    strategy.a_sync_configs = {"k_steps": 400}
    text, again = saved(strategy, tmp_path)
    assert again == strategy
    assert "gradient_scale_strategy: One" in text


@settings(deadline=None)  # the machine may be busy
@given(
    st.floats(1e-30, 1e30),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    st.integers(1, 2**31 - 1),
)
def test_any_value_survives_the_round_trip(ratio: float, names: list[str], steps: int) -> None:
    strategy = DistributedStrategy()
    strategy.amp_configs = {"decr_ratio": ratio, "custom_black_list": names, "incr_every_n_steps": steps}
    with TemporaryDirectory() as folder:
        again = saved(strategy, Path(folder))[1]
    assert again == strategy


def test_a_file_of_paddle_loads(tmp_path: Path) -> None:
    path = tmp_path / "paddle.prototxt"
    path.write_text(PADDLE)
    strategy = DistributedStrategy()
    strategy.amp_configs = {"custom_white_list": ["mul"], "incr_ratio": 3}
    strategy.load_from_prototxt(path)
    assert not strategy.sync_nccl_allreduce
    assert strategy.fuse_grad_size_in_MB == 16
    assert strategy.amp_configs["custom_white_list"] == ["conv2d", "matmul"]
    assert strategy.amp_configs["incr_ratio"] == 3.0
    assert strategy.execution_strategy.num_threads == 3
    assert strategy.build_strategy.is_assigned("fuse_broadcast_ops")


def test_enums_may_be_numbers_as_later_paddles_write_them(tmp_path: Path) -> None:
    path = tmp_path / "s.prototxt"
    path.write_text("mode: COLLECTIVE build_strategy { reduce_strategy: 0 gradient_scale_strategy: 1 }")
    strategy = DistributedStrategy()
    strategy.load_from_prototxt(path)
    assert strategy.build_strategy.gradient_scale_strategy is BuildStrategy.GradientScaleStrategy.One


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sync_batch_norm: true\nnccl_com_num: 2\n", "line 2: .* no field 'nccl_com_num'.*'nccl_comm_num'"),
        ("amp_configs {\n  decr_ration: 1\n}", "line 2: AMPConfig has no field 'decr_ration'.*'decr_ratio'"),
        ("sync_batch_norm: true\namp_configs {\n", "line 2: .*correct the line"),
        ("sync_batch_norm: 7", "line 1: "),
        ("mode: SOMETHING", "line 1: "),
        ("sync_batch_norm: true\nnccl_comm_num: 0", "nccl_comm_num is 0; use an integer of at least 1"),
        ("sync_batch_norm: true\nelastic: true", "elastic is True, which is not supported"),
        ("sync_batch_norm: true\namp_configs { incr_ratio: nan }", r"amp_configs\['incr_ratio'\] is nan"),
    ],
)
def test_a_wrong_file_is_refused_with_its_path_and_changes_nothing(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "wrong.prototxt"
    path.write_text(text)
    strategy = DistributedStrategy()
    with pytest.raises(ConfigError, match=f"(?s)wrong.prototxt.*{words}"):
        strategy.load_from_prototxt(path)
    assert strategy == DistributedStrategy()


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    options = DistributedStrategy()
    with pytest.raises(ConfigError, match="cannot read the strategy .*gone.prototxt: No such file"):
        options.load_from_prototxt(tmp_path / "gone.prototxt")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="bytes is not UTF-8 text"):
        options.load_from_prototxt(tmp_path / "bytes")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="cannot write the strategy to .*folder"):
        options.save_to_prototxt(tmp_path / "folder")


def test_every_field_has_its_place_in_a_file(tmp_path: Path) -> None:
    there = {n: replace(f, status="works") for n, f in DistributedStrategy.fields.items()}
    strategy = type("AllThere", (DistributedStrategy,), {"fields": there})()
    for name, field in there.items():
        if field.kind == "bool":
            setattr(strategy, name, not field.default)
    path = tmp_path / "all.prototxt"
    strategy.save_to_prototxt(path)
    again = type(strategy)()
    again.load_from_prototxt(path)
    assert again == strategy
