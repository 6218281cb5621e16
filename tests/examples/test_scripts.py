"""The example scripts run as a user runs them, and networks really learn the drawn flowers."""

# SPDX-License-Identifier: Apache-2.0
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import argosy as paddle

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(script: str, *arguments: str) -> str:
    """Run an example; its output, or its error as the test's failure."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_quick_start_prints_the_lines_of_the_seeds_and_saves_a_model(tmp_path: Path) -> None:
    size = ["--layers", "18", "--image_size", "32", "--batch_size", "16", "--max_steps", "6"]
    out = run("resnet/train_static.py", *size, "--save", str(tmp_path / "model"))
    lines = re.findall(
        r"^\[Epoch 0, batch (\d+)\] loss: \d+\.\d{5}, acc1: \d\.\d{5}, acc5: \d\.\d{5}$", out, re.M
    )
    assert lines == ["0", "5"]
    assert re.search(r"^test acc1: \d\.\d{5}$", out, re.M)
    assert {p.name for p in tmp_path.iterdir()} == {"model.pdmodel", "model.pdiparams"}
    exe = paddle.static.Executor()
    program, feeds, fetches = paddle.static.load_inference_model(str(tmp_path / "model"), exe)
    (logits,) = exe.run(program, feed={feeds[0]: np.zeros((3, 3, 32, 32), "float32")}, fetch_list=fetches)
    assert logits.shape == (3, 102)


@pytest.mark.parametrize(
    ("script", "ranks", "options"),
    [("overlap", 2, []), ("communication_topology", 4, ["--inter_nranks", "2", "--algorithm", "leaders"])],
)
def test_the_examples_of_communication_run(
    script: str, ranks: int, options: list[str], tmp_path: Path
) -> None:
    launch = [sys.executable, "-m", "argosy.distributed.launch", f"--nproc_per_node={ranks}"]
    size = [
        "--layers",
        "18",
        "--image_size",
        "32",
        "--batch_size",
        "4",
        "--print_every",
        "1",
        "--epochs",
        "1",
        "--max_steps",
        "2",
    ]
    done = subprocess.run(
        [*launch, str(EXAMPLES / f"resnet/train_fleet_static_{script}.py"), *size, *options],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^2 steps on {ranks} ranks in .* images/s$", done.stdout, re.M)


def test_the_quick_start_on_two_ranks_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    size = [
        "--layers",
        "18",
        "--image_size",
        "32",
        "--batch_size",
        "8",
        "--print_every",
        "1",
        "--epochs",
        "1",
    ]
    script = [
        str(EXAMPLES / "resnet/train_fleet_static.py"),
        *size,
        "--checkpoint",
        "kept",
        "--checkpoint_every",
        "2",
    ]
    launch = [sys.executable, "-m", "argosy.distributed.launch", "--nproc_per_node=2"]
    for max_steps, shown in ((3, ["0", "1", "2"]), (1, ["2"])):  # the second run has the checkpoint of step 2
        done = subprocess.run(
            [*launch, *script, "--max_steps", str(max_steps)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.findall(r"^\[Epoch 0, batch (\d+)\] loss: ", done.stdout, re.M) == shown
        assert re.search(rf"^{max_steps} steps on 2 ranks in .* images/s$", done.stdout, re.M)
    assert "resumed at step 2 (epoch 0, batch 2)" in done.stdout


def test_the_mlp_module_learns_digits() -> None:
    out = run("torch_modules/train_mlp.py", "--epochs", "1", "--max_steps", "80")
    found = re.search(r"test accuracy: (\d\.\d+)", out)
    assert found is not None
    assert float(found[1]) > 0.5
    assert "the module itself, eager" in out


def test_the_transformer_learns_to_sort() -> None:
    out = run("torch_modules/train_transformer.py", "--steps", "150")
    found = re.search(r"digits in the right place: (\d\.\d+)", out)
    assert found is not None
    assert float(found[1]) > 0.4, "guessing gives about 0.1 to 0.2"


def test_a_small_network_learns_the_drawn_flowers() -> None:
    pixels, batch = 32, 32
    image = paddle.static.data("x", [None, 3, pixels, pixels], "float32")
    label = paddle.static.data("y", [None, 1], "int64")
    h = image
    for filters in (32, 64, 128):
        h = paddle.fluid.layers.conv2d(h, filters, 3, padding=1, bias_attr=False)
        h = paddle.fluid.layers.batch_norm(h, act="relu")
        h = paddle.fluid.layers.pool2d(h, 2, "max", 2)
    logits = paddle.static.nn.fc(h, 102)
    loss = paddle.nn.functional.cross_entropy(logits, label)
    right = paddle.metric.accuracy(logits, label)
    test_program = paddle.static.default_main_program().clone(for_test=True)
    paddle.optimizer.Adam(2e-3).minimize(loss)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    reader = paddle.reader.shuffle(paddle.dataset.flowers.train(image_size=pixels), 4096, seed=0)
    feeder = paddle.fluid.DataFeeder([image, label])
    for _ in range(2):
        for samples in paddle.batch(reader, batch, drop_last=True)():
            exe.run(feed=feeder.feed(samples))
    found = [
        exe.run(test_program, feed=feeder.feed(samples), fetch_list=[right])[0].item()
        for samples in paddle.batch(paddle.dataset.flowers.test(image_size=pixels), 102, drop_last=True)()
    ]
    assert np.mean(found) > 0.25, "one in 102 is chance"
