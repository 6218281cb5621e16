"""TrainerRuntimeConfig: the flags that are settings of fleet 2.0, and those without effect."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.errors import ConfigError
from argosy.fluid.incubate.fleet.parameter_server.distribute_transpiler.runtime_configs import (
    TrainerRuntimeConfig,
)


def test_flags_that_were_changed_are_settings_of_fleet(caplog: pytest.LogCaptureFixture) -> None:
    config = TrainerRuntimeConfig()
    assert config.a_sync_configs() == {}
    config.update({"communicator_max_merge_var_num": 4, "rpc_deadline": 1000})
    config.runtime_configs["communicator_independent_recv_thread"] = "1"  # a string, as from the environment
    assert config.a_sync_configs() == {"max_merge_var_num": 4, "independent_recv_thread": True}
    assert config.get_communicator_flags()["communicator_max_merge_var_num"] == 4
    assert "TrainerRuntimeConfig: rpc_deadline: no effect" in caplog.text
    assert "'rpc_deadline': 1000" in repr(config)


def test_unknown_flags_are_rejected() -> None:
    config = TrainerRuntimeConfig()
    with pytest.raises(ConfigError, match="no flag 'communicator_queue_size' .did you mean"):
        config.update({"communicator_queue_size": 4})
    config.runtime_configs["rpc"] = 1
    with pytest.raises(ConfigError, match="no flag 'rpc'"):
        config.a_sync_configs()
