"""Which devices each rank gets, on hosts with and without GPUs."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.devices import assign, count_gpus


def test_without_a_gpu_one_rank_runs_on_the_cpu() -> None:
    assert assign(Configuration("t.py"), 0, {}).per_rank == ((),)
    assert not assign(Configuration("t.py", nproc_per_node=3), 0, {}).gpu
    assert len(assign(Configuration("t.py", nproc_per_node=3), 0, {}).per_rank) == 3


def test_gpus_that_are_not_there_become_cpu_ranks_with_one_warning() -> None:
    got = assign(Configuration("t.py", gpus=("0", "1")), 0, {})
    assert (got.per_rank, got.gpu) == (((), ()), False)
    assert got.warnings == ("--gpus=0,1: this host has no GPU; 2 ranks on the CPU instead",)
    assert got.selected == (("0",), ("1",))
    assert assign(Configuration("t.py", nproc_per_node=2), 0, {}).selected is None


def test_each_gpu_has_a_rank() -> None:
    assert assign(Configuration("t.py"), 3, {}).per_rank == (("0",), ("1",), ("2",))
    assert assign(Configuration("t.py", gpus=("2", "0")), 3, {}).per_rank == (("2",), ("0",))


def test_fewer_ranks_get_contiguous_slices() -> None:
    assert assign(Configuration("t.py", nproc_per_node=2), 4, {}).per_rank == (("0", "1"), ("2", "3"))


def test_gpus_are_relative_to_the_visible_ones() -> None:
    got = assign(Configuration("t.py", gpus=("6", "4")), 8, {"CUDA_VISIBLE_DEVICES": "4,5,6"})
    assert got.per_rank == (("2",), ("0",))
    assert got.notes == ("devices 6,4 are 2,0 for the ranks",)


def test_hidden_gpus_mean_cpu() -> None:
    got = assign(Configuration("t.py", gpus=("0",)), 8, {"CUDA_VISIBLE_DEVICES": ""})
    assert not got.gpu
    assert "CUDA_VISIBLE_DEVICES hides every GPU" in got.warnings[0]


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="no such device: 7; visible devices: 0,1"):
        assign(Configuration("t.py", gpus=("0", "7")), 2, {})
    with pytest.raises(
        ConfigError, match="no such device: 0; visible devices: 4,5 .CUDA_VISIBLE_DEVICES=4,5"
    ):
        assign(Configuration("t.py", gpus=("0",)), 8, {"CUDA_VISIBLE_DEVICES": "4,5"})
    with pytest.raises(ConfigError, match="a device is a number"):
        assign(Configuration("t.py", gpus=("gpu0",)), 2, {})


@pytest.mark.parametrize("num_gpus", [0, 4])
def test_ranks_must_divide_the_devices(num_gpus: int) -> None:
    with pytest.raises(
        ConfigError, match="--nproc_per_node=3 does not divide the 4 devices .*use one of 1, 2, 4"
    ):
        assign(Configuration("t.py", gpus=("0", "1", "2", "3"), nproc_per_node=3), num_gpus, {})


def test_counting_gpus_gives_a_number_everywhere() -> None:
    assert count_gpus() >= 0
