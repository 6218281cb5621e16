"""DistributeTranspilerConfig: the options of the transpiler; ServerRuntimeConfig: the threads of a server."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.engine.errors import ArgumentTypeError, ConfigError, UnknownNameError, nearest
from argosy.fluid.transpiler.dispatchers import dispatcher
from argosy.framework.checks import integer, number

_FIELDS: dict[str, Any] = {
    "slice_var_up": True,
    "split_method": None,
    "min_block_size": 8192,
    "enable_dc_asgd": False,
    "dc_asgd_lambda": 0.04,
    "dc_asgd_adaptive": False,
    "dc_asgd_decay": 0.95,
    "mode": "pserver",
    "print_log": False,
    "wait_port": True,
    "runtime_split_send_recv": False,
    "sync_mode": True,
    "half_async": False,
    "completely_not_async": False,
    "geo_sgd_mode": False,
    "geo_sgd_need_push_nums": 100,
    "nccl_comm_num": 1,
    "use_hierarchical_allreduce": False,
    "hierarchical_allreduce_inter_nranks": 0,
    "collective_mode": None,
}
_LEAST = {
    "min_block_size": 8192,
    "geo_sgd_need_push_nums": 1,
    "nccl_comm_num": 1,
    "hierarchical_allreduce_inter_nranks": 0,
}
_THREADS = ("_rpc_send_thread_num", "_rpc_get_thread_num", "_rpc_prefetch_thread_num")
_DEFAULT_THREADS = 12
_MODES = ("pserver", "nccl2", "collective")
_COLLECTIVE_MODES = (None, "grad_allreduce", "local_sgd")


class DistributeTranspilerConfig:
    """The fields of Paddle's class, with its defaults; unknown names and invalid values raise.

    Beyond Paddle: `dc_asgd_lambda` (0.04; 2 is the paper's with `dc_asgd_adaptive`), `dc_asgd_decay`.
    """

    def __init__(self) -> None:
        for name, value in _FIELDS.items():
            object.__setattr__(self, name, value)
        self._assigned: set[str]
        object.__setattr__(self, "_assigned", set())

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _FIELDS:
            raise UnknownNameError(
                f"DistributeTranspilerConfig has no field {name!r}{nearest(name, _FIELDS)}"
            )
        object.__setattr__(self, name, _checked(name, value))
        self._assigned.add(name)
        if (
            self.runtime_split_send_recv
            and self.sync_mode
            and {"runtime_split_send_recv", "sync_mode"} <= self._assigned
        ):
            raise ConfigError(
                "runtime_split_send_recv=True needs asynchronous training; set sync_mode=False first, or leave it "
                "out"
            )

    def __getattr__(self, name: str) -> Any:
        raise UnknownNameError(f"DistributeTranspilerConfig has no field {name!r}{nearest(name, _FIELDS)}")

    def is_assigned(self, name: str) -> bool:
        """True if the user has set the field."""
        return name in self._assigned

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in _FIELDS)
        return f"DistributeTranspilerConfig({shown})"


class ServerRuntimeConfig:
    """The numbers of threads of a server, which in Argosy the environment sets (FLAGS_rpc_send_thread_num, …)."""

    def __init__(self) -> None:
        for name in _THREADS:
            object.__setattr__(self, name, _DEFAULT_THREADS)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _THREADS:
            raise UnknownNameError(f"ServerRuntimeConfig has no field {name!r}{nearest(name, _THREADS)}")
        object.__setattr__(self, name, integer(f"ServerRuntimeConfig.{name}", value, least=1))

    def changed(self) -> list[str]:
        """The fields that differ from their defaults."""
        return [name for name in _THREADS if getattr(self, name) != _DEFAULT_THREADS]


def _checked(name: str, value: Any) -> Any:
    what = f"DistributeTranspilerConfig.{name}"
    if name == "split_method":
        dispatcher(value, ["127.0.0.1:6174"])
    elif name == "mode":
        _one_of(what, value, _MODES)
    elif name == "collective_mode":
        _one_of(what, value, _COLLECTIVE_MODES)
    elif name in _LEAST:
        return integer(what, value, least=_LEAST[name])
    elif name in ("dc_asgd_lambda", "dc_asgd_decay"):
        number(what, value, least=0)
    elif not isinstance(value, bool):
        raise ArgumentTypeError(f"{what} is {value!r}; use True or False")
    return value


def _one_of(what: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{what} is {value!r}; use one of {', '.join(map(repr, known))}")
