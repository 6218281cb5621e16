"""A ShapeEnv and a FakeTensorMode that do not import torch._dynamo.

torch's constructors, and the dispatch of fake ops, import it to read options of torch.compile that have no effect on
programs: whether z3 checks guards (a program has none), whether fake results are cached (Argosy has a cache of its
own), profiles of custom ops, and what Dynamo must not trace. The import takes 0.5 to 1 s, a quarter of the time from
the start of a process to its first step.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

from argosy.engine import process_effects


class _Options(ModuleType):
    """The options of a module of torch, in place of the module."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name)
        vars(self).update(options)

    def __getattr__(self, name: str) -> Any:
        """Load the module for any other name: another thread may use torch.compile at this moment."""
        is_package = self is _DYNAMO and name == "__path__"  # a module of torch._dynamo is imported
        if name.startswith("__") and not is_package:
            raise AttributeError(name)
        _remove()
        return getattr(importlib.import_module(self.__name__), name)


def _disable(fn: Callable[..., Any], recursive: bool = True, wrapping: bool = True) -> Callable[..., Any]:
    """torch._dynamo.disable, which has nothing to disable before torch._dynamo is imported.

    torch keeps the result for `fn`, so it replaces itself by that of the real function as soon as there is one.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if sys.modules.get("torch._dynamo", _DYNAMO) is _DYNAMO:
            return fn(*args, **kwargs)
        disabled = sys.modules["torch._dynamo"].disable(fn, recursive, wrapping=wrapping)
        vars(fn)["__dynamo_disable"] = disabled
        return disabled(*args, **kwargs)

    return call


_CONFIG = _Options(
    "torch._dynamo.config",
    fake_tensor_cache_enabled=False,
    fake_tensor_cache_crosscheck_enabled=False,
    _custom_ops_profile=None,
)
_DYNAMO = _Options("torch._dynamo", config=_CONFIG, disable=_disable)
_VALIDATOR = _Options("torch.fx.experimental.validator", translation_validation_enabled=lambda: False)
_STAND_INS = {module.__name__: module for module in (_DYNAMO, _CONFIG, _VALIDATOR)}


@contextmanager
def without_dynamo() -> Iterator[None]:
    """Inside, torch reads the options from here, unless torch._dynamo is imported already."""
    if "torch._dynamo" in sys.modules:
        yield
        return
    with process_effects.during("without-dynamo"):
        sys.modules.update(_STAND_INS)
        try:
            yield
        finally:
            _remove()


def _remove() -> None:
    for name, module in _STAND_INS.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


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
