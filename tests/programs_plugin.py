"""A pytest plugin for all tests: every test has its own programs, names and scope.

A test that asks for `kernels` runs with and without those of our own, and one that asks for `two_threads` computes with
two.
"""

# SPDX-License-Identifier: Apache-2.0
import functools
import gc
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from torch._dynamo import config as fake_tensors

from argosy.engine import collective
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.kernels.shared_library import _loaded, are_ready, unavailable
from argosy.engine.runtime.scope import Scope, scope_guard

gc.disable()  # the modules and items that are collected stay: a garbage collection would find nothing

# On a busy machine an example may take long for no reason of its own.
hypothesis.settings.register_profile("argosy", deadline=None)
hypothesis.settings.load_profile("argosy")


FUNCTIONS = {"fluid", "metric", "nn", "optimizer", "tensor"}
"""Folders whose tests build a small program for each function."""


@functools.cache
def folder_of(path: Path) -> str:
    """The folder below tests/ that a test file is in."""
    return path.relative_to(Path(__file__).parent).parts[0]


LONG = ("simulation", "jobs", "torch_db", "docs")
"""Folders with tests of many seconds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long tests: one that begins last keeps a worker busy while the others are idle."""
    items.sort(key=lambda item: folder_of(item.path) not in LONG)


def freeze_heap() -> None:
    """Take what is alive out of garbage collection, which would look at it again and again.

    Torch, sympy and the tests themselves are millions of objects, and caches grow with every test: after some thousand
    tests a full collection takes a second.
    """
    gc.collect()
    gc.freeze()


def pytest_sessionstart() -> None:
    """Build the kernels, if this machine can: a program without them would run unfused, and build them itself."""
    unavailable()


def propagate_logs_of_torch() -> None:
    """Let torch's loggers pass records on to the root logger, where pytest captures them.

    To each logger that does not propagate, of which torch has dozens, pytest adds two handlers in each phase of each
    test: a quarter of the time of a small test. And torch writes traces, with call stacks, if the logger of traces has
    any handler.
    """
    logging.getLogger("torch.__trace").handlers.clear()
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and logger.name.startswith("torch."):
            logger.propagate = True


def pytest_collection_finish() -> None:
    propagate_logs_of_torch()
    are_ready(waits=False)  # one answer for all tests of a process, also those with a cache of their own
    freeze_heap()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


_TESTS_PER_FREEZE = 100
_num_tests = itertools.count(1)


def pytest_runtest_teardown() -> None:
    if next(_num_tests) % _TESTS_PER_FREEZE == 0:
        freeze_heap()


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> Iterator[None]:
    """Default programs, name counters, scope and world are the test's own; torch draws from a fixed seed."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed formats a traceback for each kind of device
    # Torch keeps the shapes of each op for the next time, which in these programs hardly comes: a third of the time.
    fake_tensors.fake_tensor_cache_enabled = folder_of(request.path) not in FUNCTIONS
    with program_guard(Program("main"), Program("startup")), names.guard(), scope_guard(Scope()):
        yield
    collective.disconnect()


@pytest.fixture(params=["own kernels", "torch's"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With our library, if this machine can build it, and without."""
    if request.param == "torch's":
        monkeypatch.setenv("ARGOSY_KERNELS", "0")
    _loaded.cache_clear()
    if request.param == "own kernels" and (why := unavailable()):
        pytest.skip(why)
    yield str(request.param)
    _loaded.cache_clear()


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Torch and our kernels share work among two threads."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)
