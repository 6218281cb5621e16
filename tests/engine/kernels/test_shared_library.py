"""The kernels: built once and kept, built by one of many at a time, and done without where there is no compiler."""

# SPDX-License-Identifier: Apache-2.0
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import argosy as paddle
from argosy.engine import kernels
from argosy.engine.kernels.shared_library import SOURCE, library_path
from tests.ranks import ForkServer


def train() -> None:
    """On a rank: print whether a small net is fused, and run it."""
    x = paddle.static.data("x", [4, 3, 6, 6], "float32")
    h = paddle.static.nn.batch_norm(paddle.static.nn.conv2d(x, 8, 3), act="relu")
    loss = paddle.mean(h)
    build = paddle.static.BuildStrategy()
    build.fuse_bn_act_ops = True
    paddle.optimizer.SGD(0.1).minimize(loss)
    main = paddle.static.CompiledProgram(paddle.static.default_main_program(), build_strategy=build)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    out = exe.run(main, feed={"x": np.ones([4, 3, 6, 6], "float32")}, fetch_list=[loss])
    print("fused" if "bn_act(" in str(main) else "plain", out[0].shape)


def test_with_a_compiler_the_program_is_fused(ranks: ForkServer) -> None:
    if why := kernels.unavailable():
        pytest.skip(why)
    assert ranks.check(1, train)[0].splitlines()[-1].startswith("fused")


def test_without_a_compiler_the_program_runs_unfused_and_says_so_once(
    tmp_path: Path, ranks: ForkServer
) -> None:
    (said,) = ranks.check(1, train, ARGOSY_CACHE=str(tmp_path), CXX="/nowhere/g++")
    assert said.splitlines()[-1].startswith("plain")
    assert said.count("there is no C++ compiler (CXX=/nowhere/g++ not found); install g++") == 1


def test_switched_off_the_program_runs_unfused(ranks: ForkServer) -> None:
    (said,) = ranks.check(1, train, ARGOSY_KERNELS="0")
    assert said.startswith("plain")


def test_a_failing_compiler_is_logged_and_torch_kernels_are_used(tmp_path: Path, ranks: ForkServer) -> None:
    broken = tmp_path / "broken-g++"
    broken.write_text("#!/bin/sh\necho 'no room on the shelf' >&2\nexit 1\n")
    broken.chmod(0o755)
    (said,) = ranks.check(1, train, ARGOSY_CACHE=str(tmp_path), CXX=str(broken))
    assert "could not compile Argosy's kernels" in said
    assert "no room on the shelf" in said
    assert not list((tmp_path / "kernels").glob("*.so"))


def build_kernels() -> None:
    """On a rank: `python -m argosy.engine.kernels`."""
    sys.argv = ["argosy.engine.kernels"]
    runpy.run_module("argosy.engine.kernels", run_name="__main__")


@pytest.mark.skipif(kernels.unavailable() is not None, reason=str(kernels.unavailable()))
def test_processes_that_come_at_once_build_one_library(tmp_path: Path, ranks: ForkServer) -> None:
    counting = (
        tmp_path / "counting-g++"
    )  # copies the library that this process has loaded to the path behind -o
    copy = f'while [ "$1" != -o ]; do shift; done\nexec cp {library_path()} "$2"'
    counting.write_text(f"#!/bin/sh\necho built >> {tmp_path}/count\nsleep 0.5\n{copy}\n")
    counting.chmod(0o755)
    said = ranks.check(3, build_kernels, 240.0, ARGOSY_CACHE=str(tmp_path), CXX=str(counting))
    assert len({text.splitlines()[-1] for text in said}) == 1
    calls = [*sorted(SOURCE.glob("*.cpp")), "link"]
    assert (tmp_path / "count").read_text().split() == ["built"] * len(calls)
    left = sorted(p.name for p in (tmp_path / "kernels").iterdir())
    assert left == [left[0], "lock"]
    assert left[0].endswith(".so")


@pytest.mark.skipif(kernels.unavailable() is not None, reason=str(kernels.unavailable()))
def test_the_kernels_use_the_threads_of_torch(ranks: ForkServer) -> None:
    code = (
        "import torch; from argosy.engine import kernels; kernels.library(); "
        "print({line.split()[-1] for line in open('/proc/self/maps') if 'libgomp' in line})"
    )
    said = ranks.python("-c", code).stdout
    assert said.count("libgomp") == 1, said
