"""Process-wide effects: importing Argosy has none, the list names those in force, undoing restores the originals."""

# SPDX-License-Identifier: Apache-2.0
import re
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.engine import process_effects
from argosy.engine.process_effects import EFFECTS
from tests.ranks import ForkServer

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "process-effects.md"
SNAPSHOT = """
import atexit, ctypes, gc, logging, os, signal, sys, threading, warnings

registered, register, unregister = [], atexit.register, atexit.unregister
atexit.register = lambda function, *args: (registered.append(function), register(function, *args))[0]
atexit.unregister = lambda function: (function in registered and registered.remove(function), unregister(function))[0]

def snapshot():
    import torch
    import torch.fx.experimental._config as symbolic
    subreaper, death = ctypes.c_int(), ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(subreaper), 0, 0, 0)
    ctypes.CDLL(None).prctl(2, ctypes.byref(death), 0, 0, 0)
    return {
        "module call": torch.nn.Module.__call__,
        "exit": (sys.exit, sys.excepthook, sys.unraisablehook, threading.excepthook),
        "atexit": [f for f in registered if (f.__module__ or "").startswith("argosy")],
        "meta path": [type(f) for f in sys.meta_path],
        "path": list(sys.path),
        "signals": {s: signal.getsignal(s) for s in signal.valid_signals()},
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "prctl": (subreaper.value, death.value),
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        "loggers": {n: (l.level, l.propagate, list(l.handlers), l.disabled) for n, l in
                    logging.root.manager.loggerDict.items() if isinstance(l, logging.Logger) and
                    not n.startswith("argosy")},
        "root logger": (logging.root.level, list(logging.root.handlers), logging.root.manager.disable),
        "levels": logging.getLevelNamesMapping(),
        "environment": dict(os.environ),
        "torch": (torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(),
                  torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled(), torch.initial_seed(),
                  torch.get_rng_state().sum().item(), torch.get_flush_denormal()
                  if hasattr(torch, "get_flush_denormal") else None, symbolic.backed_size_oblivious),
        "threads": [t.name for t in threading.enumerate()],
        "recursion": sys.getrecursionlimit(),
        "switch": sys.getswitchinterval(),
        "directory": os.getcwd(),
        "umask": (lambda mask: os.umask(mask) and mask)(os.umask(0o22)),
    }

def differences(before, after):
    return {key: (before[key], after[key]) for key in before if before[key] != after[key]}

import torch, torch.distributed, torch._inductor.config, torch.fx.experimental.symbolic_shapes
import numpy
"""


def run(code: str) -> str:
    """The output of a new Python process that has imported torch, but not Argosy."""
    done = subprocess.run(
        [sys.executable, "-c", SNAPSHOT + code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


IMPORTS = """
before = snapshot()
import argosy, argosy.static, argosy.distributed.fleet, argosy.nn, argosy.paddle
argosy.fluid, argosy.distributed.fleet.DistributedStrategy, argosy.static.Executor
changed = differences(before, snapshot())
added = changed.pop("loggers", ({}, {}))
changed |= {n: v for n, v in added[1].items() if n in added[0] and added[0][n] != v}
assert not changed, changed
from argosy.engine import process_effects
assert process_effects.installed() == []
"""
HOOK = """
path = list(sys.meta_path)
import argosy.paddle
argosy.paddle.install()
import paddle.nn
from argosy.engine import process_effects
assert [effect.name for effect in process_effects.installed()] == ["paddle-import"]
argosy.paddle.uninstall()
assert sys.meta_path == path and not [name for name in sys.modules if name.split(".")[0] == "paddle"]
assert process_effects.installed() == []
"""
PROGRAM = """
before = snapshot()
import argosy.static as static
from argosy.distributed import fleet
from argosy.engine import process_effects
names = lambda: [effect.name for effect in process_effects.installed()]
fleet.init(is_collective=True)
assert names() == []
x = static.data("x", [None, 3])
assert names() == ["module-call", "gc-freeze"], names()
assert torch.nn.Module.__call__ is not before["module call"]
loss = torch.nn.Linear(3, 1)(x).sum()
assert names() == ["module-call", "gc-freeze", "fake-tensor-log"], names()
exe = static.Executor()
exe.run(static.default_startup_program())
for _ in range(2):
    exe.run(feed={"x": numpy.ones((2, 3), "float32")}, fetch_list=[loss])
assert names() == ["module-call", "gc-freeze", "fake-tensor-log", "malloc"], names()
fleet.shutdown()
assert names() == []
changed = differences({k: v for k, v in before.items() if k not in ("loggers", "torch")}, snapshot())
assert not changed, changed
assert logging.getLogger("torch._subclasses.fake_tensor").level == before["loggers"].get(
    "torch._subclasses.fake_tensor", (0,))[0]
assert torch.nn.Linear(3, 1)(torch.ones(1, 3)).shape == (1, 1)
fleet.shutdown()  # a second time: nothing
torch.nn.Linear(3, 1)(static.data("y", [None, 3]))  # and a new Variable installs it again
assert names() == ["module-call", "gc-freeze", "fake-tensor-log"], names()
"""


def test_imports_change_nothing_and_what_the_import_hook_and_a_program_install_can_be_removed() -> None:
    """In one process, one after the other: to import torch takes longer than all three."""
    assert run(IMPORTS + HOOK + PROGRAM) == ""


EXITS = """
import sys
before = sys.exit, sys.excepthook
from argosy.distributed import fleet
from argosy.engine import process_effects
fleet.init(is_collective=True)
fleet.util.barrier()
names = [effect.name for effect in process_effects.installed()]
assert "exit-hooks" in names and "process-groups" in names, names
assert ("random-seed" in names) == (fleet.worker_index() == 1), names
assert sys.exit is not before[0] and sys.excepthook is not before[1]
fleet.shutdown()
assert (sys.exit, sys.excepthook) == before
assert "exit-hooks" not in [effect.name for effect in process_effects.installed()]
"""


def two_ranks() -> None:
    exec(EXITS, {})


def test_the_exit_hooks_of_a_job_of_two_ranks_are_removed_by_shutdown(ranks: ForkServer) -> None:
    ranks.check(2, two_ranks)


def test_effects_of_a_scope_are_listed_inside_of_it() -> None:
    before = process_effects.installed()
    with process_effects.during("num-threads"):
        assert [e.name for e in process_effects.installed() if e not in before] == ["num-threads"]
    assert process_effects.installed() == before


def test_an_effect_that_is_not_in_the_list_cannot_be_installed() -> None:
    with pytest.raises(AssertionError, match="'monkey' is not in the list"):
        process_effects.install("monkey", lambda: None)


def test_the_page_has_the_same_list() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \| (.+) \| (.+) \|$", PAGE.read_text(), re.M)
    listed = [(e.name, e.what, e.begins, e.ends) for e in EFFECTS]
    assert [(n, *(cell.replace("`", "") for cell in cells)) for n, *cells in rows] == [
        (n, *(cell.replace("`", "") for cell in cells)) for n, *cells in listed
    ]
