"""The example scripts run as a user runs them, and networks really learn the drawn flowers."""

# SPDX-License-Identifier: Apache-2.0
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import argosy as paddle
from argosy.engine.kernels.shared_library import unavailable
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


RESNET = ("--layers", "18")
LEAST = 10
"""Layers of a ResNet with two blocks, which `on_a_rank` knows: to build it takes a third of the time."""
SMALL = (
    "--image_size",
    "32",
    "--batch_size",
    "4",
    "--shuffle",
    "8",
    "--print_every",
    "1",
    "--test_batches",
    "2",
)


def run(script: str, *arguments: str) -> str:
    """Run an example; its output, or its error as the test's failure."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_quick_start_prints_the_lines_of_the_seeds_and_saves_a_model(tmp_path: Path) -> None:
    size = [*RESNET, *SMALL, "--print_every", "2", "--max_steps", "3"]
    out = run("resnet/train_static.py", *size, "--save", str(tmp_path / "model"))
    lines = re.findall(
        r"^\[Epoch 0, batch (\d+)\] loss: \d+\.\d{5}, acc1: \d\.\d{5}, acc5: \d\.\d{5}$", out, re.M
    )
    assert lines == ["0", "2"]
    assert re.search(r"^test acc1: \d\.\d{5}$", out, re.M)
    assert {p.name for p in tmp_path.iterdir()} == {"model.pdmodel", "model.pdiparams"}
    exe = paddle.static.Executor()
    program, feeds, fetches = paddle.static.load_inference_model(str(tmp_path / "model"), exe)
    (logits,) = exe.run(program, feed={feeds[0]: np.zeros((3, 3, 32, 32), "float32")}, fetch_list=fetches)
    assert logits.shape == (3, 102)


def on_a_rank() -> None:
    """Be the script, with the test's arguments: what Python or fleetrun would start, without seconds of imports."""
    sys.argv = json.loads(os.environ["ARGUMENTS"])
    os.chdir(os.environ["FOLDER"])
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    if "resnet" in sys.argv[0]:
        importlib.import_module("resnet").BLOCKS[LEAST] = [1, 1]
    runpy.run_path(sys.argv[0], run_name="__main__")


def run_on(ranks: ForkServer, size: int, script: str, folder: Path, *arguments: str) -> str:
    """Run an example on so many ranks; what rank 0 printed."""
    given = json.dumps([str(EXAMPLES / script), *arguments])
    cache = os.environ["ARGOSY_CACHE"]
    said = ranks.check(size, on_a_rank, 200.0, ARGUMENTS=given, FOLDER=str(folder), ARGOSY_CACHE=cache)
    return said[0]


@pytest.mark.parametrize(
    ("script", "size", "options"),
    [
        ("resnet/train_fleet_static_overlap.py", 2, ["--layers", str(LEAST)]),
        (
            "resnet/train_fleet_static_communication_topology.py",
            4,
            ["--layers", str(LEAST), "--inter_nranks", "2", "--algorithm", "leaders"],
        ),
        ("resnet/train_fleet_static_sharding.py", 2, ["--layers", str(LEAST)]),
        ("resnet/train_fleet_static_op_fusion.py", 2, ["--layers", str(LEAST)]),
        ("resnet/train_fleet_static_lars.py", 1, ["--layers", str(LEAST)]),
        ("resnet/train_fleet_static_lamb.py", 1, ["--layers", str(LEAST)]),
        ("resnet/train_fleet_static_dgc.py", 2, ["--layers", str(LEAST), "--rampup_begin_step", "1"]),
        ("resnet/train_fleet_static_gradient_merge.py", 2, ["--layers", str(LEAST), "--k_steps", "2"]),
        ("resnet/train_fleet_static_adaptive_localsgd.py", 2, ["--layers", str(LEAST)]),
        ("resnet/train_fleet_static_recompute.py", 1, ["--layers", str(LEAST)]),
        ("mobilenet/train_mobilenet.py", 2, ["--scale", "0.25"]),
        ("mobilenet/train_mobilenet.py", 1, ["--scale", "0.25", "--no_fuse", "--save", "model"]),
    ],
)
def test_the_examples_of_strategies_run(
    script: str, size: int, options: list[str], tmp_path: Path, ranks: ForkServer
) -> None:
    out = run_on(ranks, size, script, tmp_path, *SMALL, "--max_steps", "2", *options)
    assert re.search(rf"^2 steps on {size} ranks in .* images/s$", out, re.M)
    assert re.search(r"^test acc1: \d\.\d{5}$", out, re.M)
    fuses = "op_fusion" in script or ("mobilenet" in script and "--no_fuse" not in options)
    assert ("detected" in out) == (fuses and not unavailable())
    assert (tmp_path / "model.pdmodel").exists() == ("--save" in options)


def test_the_quick_start_on_two_ranks_resumes_from_its_checkpoint(tmp_path: Path, ranks: ForkServer) -> None:
    """The first run with fleetrun."""
    script, size = "resnet/train_fleet_static.py", [*RESNET, "--epochs", "1"]
    size += ["--checkpoint", "kept", "--checkpoint_every", "2", "--max_steps"]
    words = ("--nproc_per_node=2", str(EXAMPLES / script), *SMALL, *size, "3")
    cache = {"ARGOSY_CACHE": os.environ["ARGOSY_CACHE"]}
    job = WarmFleetrun(ranks, *words, cwd=tmp_path, environ=cache)
    first, errors = job.communicate(240.0)
    assert job.returncode == 0, first + errors
    second = run_on(ranks, 2, script, tmp_path, *SMALL, *size, "1")
    for out, steps, shown in (
        (first, 3, ["0", "1", "2"]),
        (second, 1, ["2"]),
    ):  # the second resumes from step 2
        assert re.findall(r"^\[Epoch 0, batch (\d+)\] loss: ", out, re.M) == shown
        assert re.search(rf"^{steps} steps on 2 ranks in .* images/s$", out, re.M)
    assert "resumed at step 2 (epoch 0, batch 2)" in second


def test_the_mlp_module_learns_digits(tmp_path: Path, ranks: ForkServer) -> None:
    out = run_on(ranks, 1, "torch_modules/train_mlp.py", tmp_path, "--epochs", "1", "--max_steps", "80")
    match = re.search(r"test accuracy: (\d\.\d+)", out)
    assert match is not None
    assert float(match[1]) > 0.5
    assert "the module itself, eager" in out


def test_the_transformer_learns_to_sort(tmp_path: Path, ranks: ForkServer) -> None:
    out = run_on(ranks, 1, "torch_modules/train_transformer.py", tmp_path, "--steps", "150")
    match = re.search(r"digits in the right place: (\d\.\d+)", out)
    assert match is not None
    assert float(match[1]) > 0.4, "guessing gives about 0.1 to 0.2"


def test_the_transformer_trains_in_mixed_precision(tmp_path: Path, ranks: ForkServer) -> None:
    """Few steps: most CPUs emulate 16-bit products."""
    out = run_on(ranks, 1, "torch_modules/train_transformer.py", tmp_path, "--steps", "41", "--amp")
    first, *_, last = (float(loss) for loss in re.findall(r"loss: (\d+\.\d+)", out))
    assert last < 0.9 * first


def test_a_small_network_learns_the_drawn_flowers() -> None:
    pixels, batch = 24, 32
    image = paddle.static.data("x", [None, 3, pixels, pixels], "float32")
    label = paddle.static.data("y", [None, 1], "int64")
    h = image
    for filters in (16, 32, 64):
        h = paddle.fluid.layers.conv2d(h, filters, 3, padding=1, bias_attr=False)
        h = paddle.fluid.layers.batch_norm(h, act="relu")
        h = paddle.fluid.layers.pool2d(h, 2, "max", 2)
    logits = paddle.static.nn.fc(h, 102)
    loss = paddle.nn.functional.cross_entropy(logits, label)
    right = paddle.metric.accuracy(logits, label)
    test_program = paddle.static.default_main_program().clone(for_test=True)
    paddle.optimizer.Adam(3e-3).minimize(loss)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    reader = paddle.reader.shuffle(paddle.dataset.flowers.train(image_size=pixels), 4096, seed=0)
    feeder = paddle.fluid.DataFeeder([image, label])
    for samples in paddle.batch(reader, batch, drop_last=True)():
        exe.run(feed=feeder.feed(samples))
    fetched = [
        exe.run(test_program, feed=feeder.feed(samples), fetch_list=[right])[0].item()
        for samples in paddle.batch(paddle.dataset.flowers.test(image_size=pixels), 102, drop_last=True)()
    ]
    assert np.mean(fetched) > 0.25, "one in 102 is chance"
