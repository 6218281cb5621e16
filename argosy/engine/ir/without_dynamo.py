"""A ShapeEnv and a FakeTensorMode that do not import torch._dynamo.

torch's constructors, and the dispatch of fake ops, import it to read options of torch.compile that have no effect on
programs: whether z3 checks guards (a program has none), whether fake results are cached (Argosy has a cache of its
own), profiles of custom ops, and what Dynamo must not trace. The import takes 0.5 to 1 s, a quarter of the time from
the start of a process to its first step.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

from argosy.engine import process_effects


class _StandIn(ModuleType):
    """A module of torch that is not imported: a few options; any other use imports the module and is passed to it.

    Code of other threads, or of a user's fake function, may import it at this moment, and keep it: as soon as it is not
    in sys.modules any more, the options are those of the module, too.
    """

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name)
        vars(self)["_options"] = options

    def __getattr__(self, name: str) -> Any:
        options = vars(self)["_options"]
        if name in options and sys.modules.get(self.__name__) is self:
            return options[name]
        is_package = self is _DYNAMO and name == "__path__"  # a module of torch._dynamo is imported
        if name.startswith("__") and not is_package:
            raise AttributeError(name)
        return getattr(_import(self.__name__), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_import(self.__name__), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_import(self.__name__), name)


def _disable(fn: Callable[..., Any], recursive: bool = True, wrapping: bool = True) -> Callable[..., Any]:
    """torch._dynamo.disable, which has nothing to disable before torch._dynamo is imported.

    torch keeps the result for `fn`, so it replaces itself by that of the real function as soon as there is one.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if sys.modules.get("torch._dynamo", _DYNAMO) is _DYNAMO:
            return fn(*args, **kwargs)
        dynamo = importlib.import_module("torch._dynamo")  # waits if another thread is importing it
        disabled = dynamo.disable(fn, recursive, wrapping=wrapping)
        vars(fn)["__dynamo_disable"] = disabled
        return disabled(*args, **kwargs)

    return call


_CONFIG = _StandIn(
    "torch._dynamo.config",
    fake_tensor_cache_enabled=False,
    fake_tensor_cache_crosscheck_enabled=False,
    _custom_ops_profile=None,
)
_DYNAMO = _StandIn("torch._dynamo", config=_CONFIG, disable=_disable)
_VALIDATOR = _StandIn("torch.fx.experimental.validator", translation_validation_enabled=lambda: False)
_STAND_INS = {module.__name__: module for module in (_DYNAMO, _CONFIG, _VALIDATOR)}


class _Installation:
    """The stand-ins in sys.modules, while at least one thread needs them, and until one needs the modules."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._is_over = False

    def enter(self) -> bool:
        """Put the stand-ins there; False if torch._dynamo is imported, or is being imported by another thread."""
        if sys.modules.get("torch._dynamo", _DYNAMO) is not _DYNAMO:
            return False
        with self._lock:
            # setdefault is atomic: another thread may begin to import the module at any time. From here on, it gets the
            # stand-in, and no module is imported without `end`.
            if self._is_over or sys.modules.setdefault("torch._dynamo", _DYNAMO) is not _DYNAMO:
                return False
            for name, module in _STAND_INS.items():
                sys.modules.setdefault(name, module)
            self._users += 1
        return True

    def leave(self) -> None:
        """Remove them, if no other thread needs them."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                _remove()

    def end(self) -> None:
        """Remove them for good, for the modules."""
        with self._lock:
            self._is_over = True
            _remove()


_installation = _Installation()


def _remove() -> None:
    for name, module in _STAND_INS.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


def _import(name: str) -> ModuleType:
    """Import a module in place of its stand-in."""
    _installation.end()
    return importlib.import_module(name)


@contextmanager
def without_dynamo() -> Iterator[None]:
    """Inside, torch reads the options from here, unless torch._dynamo is imported already."""
    if not _installation.enter():
        yield
        return
    try:
        with process_effects.during("without-dynamo"):
            yield
    finally:
        _installation.leave()


class ProgramFakeMode(FakeTensorMode):
    """The mode of a program's fake tensors."""

    def __init__(self, shape_env: Any = None) -> None:
        with without_dynamo():
            super().__init__(shape_env=shape_env, allow_non_fake_inputs=True)
        # A program is built once: torch's cache of fake results costs more than it saves.
        self.cache_enabled = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch.compile never runs around the building of a program."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with without_dynamo():
            return self.dispatch(func, types, args, kwargs)
