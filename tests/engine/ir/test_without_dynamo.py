# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

from argosy.engine.ir.without_dynamo import without_dynamo

TRAIN = """
import sys
import numpy as np
import argosy as paddle
x = paddle.static.data("x", [None, 8])
loss = paddle.mean(paddle.static.nn.fc(paddle.static.nn.fc(x, 4, activation="relu"), 1))
paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
exe.run(feed={"x": np.ones((2, 8), "float32")}, fetch_list=[loss])
"""
"""Builds and runs a program, with unknown sizes, random weights, refs with type promotion and an optimizer."""


def run(code: str) -> str:
    """The output of a new process, which has imported nothing yet."""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_trains_without_importing_dynamo_inductor_or_the_data_sets() -> None:
    heavy = ("torch._dynamo", "torch._inductor", "torch.export._trace", "PIL", "scipy", "argosy.fluid")
    assert run(f"{TRAIN}\nprint([name for name in {heavy} if name in sys.modules])") == "[]\n"


def test_torch_compile_works_after_a_program_was_built() -> None:
    compile_after = """
import torch
import torch._dynamo.config
torch._dynamo.config.suppress_errors = False
graphs = []
double = torch.compile(lambda x: x * 2 + 1, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
assert double(torch.ones(3)).tolist() == [3, 3, 3] and len(graphs) == 1
assert torch._dynamo.config is sys.modules["torch._dynamo.config"] and torch._dynamo.__file__
from torch.fx.experimental.validator import bisect
with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
    print(paddle.static.nn.fc(paddle.static.data("z", [None, 3]), 2).shape)
"""
    assert run(TRAIN + compile_after).endswith("2)\n")


def test_dynamo_is_loaded_when_it_is_used_inside() -> None:
    code = """
import sys, torch
from argosy.engine.ir.without_dynamo import without_dynamo
with without_dynamo():
    import torch._dynamo
    assert not torch._dynamo.config.fake_tensor_cache_enabled  # a stand-in
    kept = torch._dynamo
    from torch._dynamo.eval_frame import OptimizedModule
    assert torch._dynamo.config.fake_tensor_cache_enabled
assert torch._dynamo is sys.modules["torch._dynamo"] and OptimizedModule.__module__ == "torch._dynamo.eval_frame"
kept.config.fake_tensor_cache_enabled = False  # a reference of user code to the stand-in sets the real option
assert kept is not torch._dynamo and not torch._dynamo.config.fake_tensor_cache_enabled
"""
    assert run(code) == ""


def test_an_option_that_is_set_inside_is_set_in_dynamo() -> None:
    code = """
import sys, torch
from argosy.engine.ir.without_dynamo import without_dynamo
try:
    with without_dynamo(), without_dynamo():
        torch._dynamo.config.suppress_errors = True
        raise KeyError
except KeyError:
    pass
assert torch._dynamo.__file__ and torch._dynamo.config.suppress_errors
"""
    assert run(code) == ""


def test_threads_enter_and_leave_in_any_order() -> None:
    code = """
import sys, threading, torch
from argosy.engine import process_effects
from argosy.engine.ir.without_dynamo import _DYNAMO, without_dynamo
inside, may_leave = threading.Barrier(2), threading.Event()

def other():
    with without_dynamo():
        inside.wait(60)
        assert may_leave.wait(60)
        replaced.append(sys.modules.get("torch._dynamo") is _DYNAMO)

replaced, thread = [], threading.Thread(target=other)
with without_dynamo():
    thread.start()
    inside.wait(60)
may_leave.set()
thread.join()
assert replaced == [True] and "torch._dynamo" not in sys.modules and not process_effects.installed()

def enter():
    while not stop.is_set():
        with without_dynamo():
            pass

stop = threading.Event()
sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=enter) for _ in range(3)]
for thread in threads:
    thread.start()
import torch._dynamo.config  # while the others put stand-ins there and remove them
compiled = torch.compile(lambda x: x * 2, backend="eager")
assert compiled(torch.ones(2)).tolist() == [2, 2]
stop.set()
for thread in threads:
    thread.join()
assert sys.modules["torch._dynamo"].__file__ and torch._dynamo.config is sys.modules["torch._dynamo.config"]
assert torch._dynamo.config.__file__ and torch._dynamo.config.fake_tensor_cache_enabled
"""
    assert run(code) == ""


def test_a_stand_in_for_disable_becomes_the_real_one_once_there_is_dynamo() -> None:
    code = """
import sys, torch
from argosy.engine.ir.without_dynamo import without_dynamo
def kernel(x): return x + 1
skipped = torch._disable_dynamo(kernel)
with without_dynamo():
    assert skipped(1) == 2
assert "torch._dynamo" not in sys.modules
import torch._dynamo
assert skipped(1) == 2
assert getattr(kernel, "__dynamo_disable")._torchdynamo_disable
"""
    assert run(code) == ""


def test_nothing_is_replaced_where_dynamo_is_imported() -> None:
    import torch._dynamo

    real = sys.modules["torch._dynamo"]
    with without_dynamo():
        assert sys.modules["torch._dynamo"] is real
        assert torch._dynamo.config.fake_tensor_cache_enabled
