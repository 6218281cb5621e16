"""TrainerRuntimeConfig: the flags of 1.x's communicator, which sends the gradients of a worker."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping
from typing import Any

from argosy.engine.errors import UnknownNameError, nearest
from argosy.engine.log import logger

_FLAGS: dict[str, int] = {
    "rpc_deadline": 180000,
    "rpc_retry_times": 3,
    "communicator_max_merge_var_num": 1,
    "communicator_send_queue_size": 16,
    "communicator_independent_recv_thread": 0,
    "communicator_min_send_grad_num_before_recv": 1,
    "communicator_thread_pool_size": 5,
    "communicator_send_wait_times": 5,
    "communicator_is_sgd_optimizer": 1,
}
"""The flags and their defaults."""
_A_SYNC_CONFIGS: dict[str, type] = {
    "max_merge_var_num": int,
    "send_queue_size": int,
    "independent_recv_thread": bool,
    "min_send_grad_num_before_recv": int,
    "thread_pool_size": int,
    "send_wait_times": int,
}
"""The flags `communicator_…` that are settings of fleet 2.0."""


class TrainerRuntimeConfig:
    """The flags of the communicator, by name in `runtime_configs`; numbers, or strings of them."""

    def __init__(self) -> None:
        self.runtime_configs: dict[str, Any] = dict(_FLAGS)

    def update(self, flags: Mapping[str, Any]) -> None:
        """Set some of the flags."""
        for name in flags:
            _check(name)
        self.runtime_configs.update(flags)

    def get_communicator_flags(self) -> dict[str, Any]:
        """All flags with their values."""
        return dict(self.runtime_configs)

    def a_sync_configs(self) -> dict[str, Any]:
        """The flags that differ from their defaults as settings of fleet 2.0; logs those that have no effect."""
        changed = {
            name: int(value) for name, value in self.runtime_configs.items() if _is_changed(name, value)
        }
        known = {f"communicator_{name}": (name, kind) for name, kind in _A_SYNC_CONFIGS.items()}
        if ignored := sorted(changed.keys() - known.keys()):
            logger.warning(
                "TrainerRuntimeConfig: %s: no effect; FLAGS_rpc_deadline is an environment variable",
                ", ".join(ignored),
            )
        return {
            known[flag][0]: known[flag][1](value) for flag, value in changed.items() if flag not in ignored
        }

    def __repr__(self) -> str:
        return f"TrainerRuntimeConfig({self.runtime_configs})"


def _check(name: str) -> None:
    if name not in _FLAGS:
        raise UnknownNameError(f"TrainerRuntimeConfig has no flag {name!r}{nearest(name, _FLAGS)}")


def _is_changed(name: str, value: Any) -> bool:
    _check(name)
    return int(value) != _FLAGS[name]
