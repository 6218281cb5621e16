"""Puts the simulated world in the place of threads, clock, sockets and random names, in the parameter server's modules.

The code under test is the code that runs in production: only the modules that it imports are others.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import argosy.engine.ps
from tests.simulation.network import Network
from tests.simulation.scheduler import World
from tests.simulation.threads import SimpleQueue, threading_of, time_of

_REPLACED = ("threading", "time", "zmq", "select", "os", "uuid", "SimpleQueue")


def _modules() -> list[ModuleType]:
    path, prefix = argosy.engine.ps.__path__, argosy.engine.ps.__name__ + "."
    names = [actual.name for actual in pkgutil.walk_packages(path, prefix) if not actual.ispkg]
    return [importlib.import_module(name) for name in names if not name.endswith(_REAL)]


_REAL = (".wire", ".spill")
"""Modules without threads or sockets of their own."""


@contextmanager
def installed(world: World, network: Network, **settings: Any) -> Iterator[None]:
    """Inside, trainers and servers that simulated threads make live in this world.

    `settings`: other values for names of modules, as `snapshots._LOG_BYTES`, with the dot written as two underscores.
    """
    replacements: dict[str, Any] = {
        "threading": threading_of(world),
        "time": time_of(world),
        "zmq": network.zmq(),
        "select": network.select(),
        "os": network.os(),
        "uuid": SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{world.random.getrandbits(128):032x}")),
        "SimpleQueue": lambda: SimpleQueue(world),
    }
    changed: list[tuple[Any, str, Any]] = []

    def change(owner: Any, name: str, value: Any) -> None:
        changed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    modules = _modules()
    for module in modules:
        for name in _REPLACED:
            if name in vars(module):
                change(module, name, replacements[name])
    by_name = {module.__name__.rpartition(".")[2]: module for module in modules}
    for key, value in settings.items():
        module_name, _, name = key.partition("__")
        change(by_name[module_name], f"_{name}", value)
    try:
        yield
    finally:
        for owner, name, value in reversed(changed):
            setattr(owner, name, value)
