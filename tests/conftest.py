"""Shared by all tests: the environment of the processes, the fixture `ranks`, and the plugin tests/programs_plugin.py.

Of pytest-xdist's processes the controller runs no test. It does not load the plugin, which imports torch for seconds
while no worker runs.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import sys

import pytest

from tests.ranks import pytest_configure_node, pytest_unconfigure, ranks

__all__ = ["pytest_configure_node", "pytest_unconfigure", "ranks"]

# Tests run beside each other, one a core: threads of each would wait for those of the others, and busily.
os.environ["OMP_NUM_THREADS"] = "1"
# After each pass, the values of changed nodes are inferred and compared with their meta, also in started processes.
os.environ.setdefault("ARGOSY_CHECK_PASSES", "1")
# Kernels are those of the rules: a search would choose by the clock, and leave files in the cache.
os.environ.setdefault("ARGOSY_BACKGROUND_SEARCH", "0")
# A shell lets what it starts in the background ignore SIGINT, and all that this starts would ignore it, too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # as under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Argosy's files, and those of tests, whose assertions pytest rewrites for ten seconds, are compiled once: not in each
# run, by each worker and each process that tests start.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False


def pytest_configure(config: pytest.Config) -> None:
    is_controller = bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")
    if not is_controller:
        config.pluginmanager.import_plugin("tests.programs_plugin")
