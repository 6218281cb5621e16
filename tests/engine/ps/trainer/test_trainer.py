"""The one trainer of a process."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ps.trainer import trainer
from tests.engine.ps.served import served


def test_a_process_is_one_trainer_until_it_leaves() -> None:
    with pytest.raises(
        ProgramError, match="this process has no connection to them; run it with Executor.run"
    ):
        trainer.current()
    with served(trainers=2) as (service, plan):
        connected = trainer.connect(plan, 0)
        assert trainer.current() is connected is trainer.connect(plan, 0)
        with pytest.raises(
            ConfigError, match="this process is trainer 0 of another program.*leave the servers"
        ):
            trainer.connect(plan, 1)
        trainer.disconnect()
        assert not trainer.is_connected()
        assert service.membership.left == {0}


def test_a_trainer_that_exits_without_leaving_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with served(trainers=1, mode="geo") as (_, plan):
        trainer.connect(plan, 0)
        trainer._warn_if_connected()
        trainer.disconnect()
        said = caplog.text
        trainer._warn_if_connected()
    assert (
        "trainer 0 exits and has not left the servers: its changes since the last synchronization are lost"
        in said
    )
    assert "call fleet.stop_worker(), or exe.close()" in said
    assert caplog.text.count("has not left") == 1
