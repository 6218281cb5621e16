"""Role makers with the arguments of 1.x."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.errors import ConfigError
from argosy.fluid.incubate.fleet.base import role_maker
from argosy.fluid.incubate.fleet.base.role_maker import Role


def test_roles_by_their_arguments() -> None:
    worker = role_maker.UserDefinedRoleMaker(1, Role.WORKER, 2, ["127.0.0.1:6174"], path="/tmp/rendezvous")
    assert (worker.is_worker(), worker.worker_index(), worker.worker_num()) == (True, 1, 2)
    collective = role_maker.UserDefinedCollectiveRoleMaker(1, ["127.0.0.1:6170", "127.0.0.1:6171"])
    assert (collective._is_collective, collective.worker_num()) == (True, 2)


def test_general_roles_are_those_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:6174,127.0.0.1:6175",
        "PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:6170",
        "TRAINING_ROLE": "PSERVER",
        "POD_IP": "127.0.0.1",
        "PADDLE_PORT": "6175",
    }
    monkeypatch.delenv("PADDLE_TRAINERS_NUM", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    role = role_maker.GeneralRoleMaker(path="./tmp", init_timeout_seconds=5, run_timeout_seconds=9)
    assert (role.is_server(), role.server_index(), role.worker_num()) == (True, 1, 1)


def test_what_is_not_supported_raises() -> None:
    with pytest.raises(ConfigError, match="GeneralRoleMaker has no argument 'paths' .did you mean 'path'"):
        role_maker.GeneralRoleMaker(paths="./tmp")
    with pytest.raises(
        ConfigError, match=r"MPISymetricRoleMaker is not supported: start the job with fleetrun"
    ):
        role_maker.MPISymetricRoleMaker()
