"""Role makers: what they answer from the environment or from arguments, and what they refuse."""

# SPDX-License-Identifier: Apache-2.0
import os
from typing import Any

import pytest

from argosy.distributed.fleet.base.role_maker import (
    PaddleCloudRoleMaker,
    Role,
    RoleMakerBase,
    UserDefinedRoleMaker,
)
from argosy.engine.collective.identity import Identity
from argosy.engine.errors import ConfigError

WORKERS = ["10.0.0.1:6170", "10.0.0.1:6171", "10.0.0.2:6170"]
SERVERS = ["10.0.0.1:7000", "10.0.0.2:7000"]
PS = {
    "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(SERVERS),
    "PADDLE_TRAINERS_NUM": "3",
    "PADDLE_TRAINER_ENDPOINTS": ",".join(WORKERS),
}
TRAINER = PS | {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "2"}
SERVER = PS | {"TRAINING_ROLE": "PSERVER", "POD_IP": "10.0.0.2", "PADDLE_PORT": "7000"}


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without a launcher."""
    for name in list(os.environ):
        if name.startswith(("PADDLE_", "TRAINING_ROLE", "OMPI_", "PMI", "SLURM_")) or name == "POD_IP":
            monkeypatch.delenv(name)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def put(environ: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        environ.setenv(name, value)


def test_the_roles_have_paddles_numbers() -> None:
    assert (Role.WORKER, Role.SERVER, Role.HETER_WORKER, Role.ALL) == (1, 2, 3, 4)


def test_without_a_launcher_a_collective_worker_is_alone(environ: pytest.MonkeyPatch) -> None:
    role = PaddleCloudRoleMaker(is_collective=True)
    assert (role._worker_index(), role._worker_num(), role._is_first_worker()) == (0, 1, True)
    assert role._get_trainer_endpoints() == ["127.0.0.1:6170"]
    assert role._is_non_distributed()
    assert role.identity() == Identity()


def test_a_collective_worker_knows_the_others_from_fleetrun(environ: pytest.MonkeyPatch) -> None:
    put(environ, {"PADDLE_TRAINER_ID": "2", "PADDLE_TRAINERS_NUM": "3"})
    put(environ, {"PADDLE_TRAINER_ENDPOINTS": ",".join(WORKERS), "TRAINING_ROLE": "TRAINER"})
    role = PaddleCloudRoleMaker(is_collective=True)
    assert (role._worker_index(), role._worker_num(), role._is_worker(), role._is_server()) == (
        2,
        3,
        True,
        False,
    )
    assert role._get_trainer_endpoints() == WORKERS
    assert (role._node_num(), role._server_num(), role._is_non_distributed()) == (2, 0, False)
    assert (role.identity().rank, role.identity().master) == (2, WORKERS[0])


def test_a_collective_worker_of_torchrun_has_a_number_and_no_endpoints(environ: pytest.MonkeyPatch) -> None:
    put(environ, {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    role = PaddleCloudRoleMaker(is_collective=True)
    assert (role.worker_index(), role.worker_num(), role.node_num()) == (3, 4, 2)
    assert role.get_trainer_endpoints() == []


def test_the_environment_is_read_when_the_first_question_comes(environ: pytest.MonkeyPatch) -> None:
    role = PaddleCloudRoleMaker(is_collective=True)
    put(environ, {"PADDLE_TRAINER_ID": "x"})
    with pytest.raises(ConfigError, match="PADDLE_TRAINER_ID='x'"):
        role._generate_role()


@pytest.mark.parametrize("name", ["TRAINING_ROLE", "PADDLE_TRAINING_ROLE"])
def test_a_server_has_no_place_in_a_collective_job(name: str, environ: pytest.MonkeyPatch) -> None:
    put(environ, {name: "PSERVER"})
    with pytest.raises(ConfigError, match=f"{name}='PSERVER' in a collective job"):
        PaddleCloudRoleMaker(is_collective=True)._generate_role()


def test_without_servers_a_worker_trains_alone(environ: pytest.MonkeyPatch) -> None:
    role = PaddleCloudRoleMaker()
    assert (role._worker_num(), role._worker_index(), role._is_non_distributed()) == (1, 0, True)


def test_several_ranks_without_servers_get_an_error_that_names_is_collective(
    environ: pytest.MonkeyPatch,
) -> None:
    put(environ, {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "2"})
    with pytest.raises(ConfigError, match="is_collective=True"):
        PaddleCloudRoleMaker()._generate_role()


def test_a_trainer_of_a_job_with_servers(environ: pytest.MonkeyPatch) -> None:
    put(environ, TRAINER)
    role = PaddleCloudRoleMaker()
    assert (role._is_worker(), role._worker_index(), role._worker_num(), role._server_num()) == (
        True,
        2,
        3,
        2,
    )
    assert role._get_pserver_endpoints() == SERVERS
    assert role.to_string() == (
        f"role: WORKER, current_id: 2, worker_endpoints: {WORKERS}, server_endpoints: {SERVERS}"
    )


def test_a_server_is_found_by_its_address(environ: pytest.MonkeyPatch) -> None:
    put(environ, SERVER)
    role = PaddleCloudRoleMaker()
    assert (role._is_server(), role._server_index(), role._is_worker()) == (True, 1, False)
    assert not role._is_first_worker()
    assert role.identity() == Identity()


def test_workers_are_counted_by_their_endpoints_if_their_number_is_not_set(
    environ: pytest.MonkeyPatch,
) -> None:
    put(environ, {name: value for name, value in TRAINER.items() if name != "PADDLE_TRAINERS_NUM"})
    role = PaddleCloudRoleMaker()
    assert (role._worker_index(), role._worker_num()) == (2, 3)


def test_there_are_no_heter_workers(environ: pytest.MonkeyPatch) -> None:
    put(environ, SERVER)
    role = PaddleCloudRoleMaker()
    assert (role._is_heter_worker(), role._heter_worker_num()) == (False, 0)
    assert role._get_heter_worker_endpoints() == []


@pytest.mark.parametrize(
    ("variables", "dropped", "message"),
    [
        (
            {n: v for n, v in TRAINER.items() if n != "PADDLE_TRAINERS_NUM"},
            "PADDLE_TRAINER_ENDPOINTS",
            "PADDLE_TRAINERS_NUM is not set",
        ),
        (TRAINER, "TRAINING_ROLE", "TRAINING_ROLE is not set"),
        (TRAINER, "PADDLE_TRAINER_ID", "PADDLE_TRAINER_ID is not set"),
        (SERVER, "POD_IP", "POD_IP is not set"),
        (SERVER, "PADDLE_PORT", "PADDLE_PORT is not set"),
        (TRAINER | {"TRAINING_ROLE": "WORKER"}, "", "TRAINING_ROLE='WORKER'; use TRAINER or PSERVER, or"),
        (SERVER | {"TRAINING_ROLE": "HETER_TRAINER"}, "", "heter workers are not supported; use TRAINER or"),
        (TRAINER | {"PADDLE_TRAINER_ID": "3"}, "", "PADDLE_TRAINER_ID=3 of PADDLE_TRAINERS_NUM=3"),
        (TRAINER | {"PADDLE_TRAINERS_NUM": "many"}, "", "PADDLE_TRAINERS_NUM='many'"),
        (SERVER | {"PADDLE_PORT": "7001"}, "", "10.0.0.2:7001, which is not in PADDLE_PSERVERS_IP_PORT_LIST"),
        (SERVER | {"PADDLE_PSERVERS_IP_PORT_LIST": "a:1,a:1"}, "", "a:1 twice"),
    ],
)
def test_an_incomplete_job_with_servers_is_refused(
    variables: dict[str, str], dropped: str, message: str, environ: pytest.MonkeyPatch
) -> None:
    put(environ, {name: value for name, value in variables.items() if name != dropped})
    with pytest.raises(ConfigError, match=message):
        PaddleCloudRoleMaker()._generate_role()


def test_a_user_defined_collective_worker(environ: pytest.MonkeyPatch) -> None:
    role = UserDefinedRoleMaker(is_collective=True, current_id=1, worker_endpoints=WORKERS)
    assert (role._worker_index(), role._worker_num(), role._node_num()) == (1, 3, 2)
    actual = role.identity()
    assert (actual.rank, actual.size, actual.local_rank, actual.local_size) == (1, 3, 1, 2)
    assert (actual.master, actual.hosts_store) == (WORKERS[0], False)


def test_a_user_defined_server(environ: pytest.MonkeyPatch) -> None:
    role = UserDefinedRoleMaker(
        is_collective=False, current_id=1, role=Role.SERVER, worker_num=2, server_endpoints=SERVERS
    )
    assert (role._is_server(), role._server_index(), role._worker_num(), role._server_num()) == (
        True,
        1,
        2,
        2,
    )


def test_a_user_defined_worker_with_servers_needs_no_endpoints_of_workers(
    environ: pytest.MonkeyPatch,
) -> None:
    role = UserDefinedRoleMaker(current_id=1, role=Role.WORKER, worker_num=2, server_endpoints=SERVERS)
    assert (role._is_worker(), role._worker_index(), role._worker_num()) == (True, 1, 2)
    assert (role.identity(), role._get_trainer_endpoints()) == (Identity(), [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"current_id": 0}, "was given no workers"),
        ({"current_id": 3, "worker_endpoints": WORKERS}, "current_id is 3 of 3 workers"),
        ({"current_id": -1, "worker_endpoints": WORKERS}, "current_id is -1"),
        ({"current_id": 0, "worker_endpoints": WORKERS, "worker_num": 2}, "worker_num is 2"),
        ({"current_id": 0, "worker_endpoints": "a:1"}, "worker_endpoints is 'a:1'; use a list"),
        ({"current_id": 0, "worker_endpoints": ["a"]}, "is not an endpoint; use host:port"),
        ({"current_id": 0, "worker_endpoints": WORKERS, "role": Role.SERVER}, "use Role.WORKER with"),
        ({"current_id": 0, "worker_num": 2}, "give worker_endpoints"),
        ({"current_id": 0, "worker_num": 2, "is_collective": False}, "server_endpoints is empty"),
        ({"current_id": 0, "worker_num": 2, "is_collective": 1}, "is_collective is 1"),
    ],
)
def test_user_defined_roles_that_make_no_sense_are_refused(
    arguments: dict[str, Any], message: str, environ: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=message):
        UserDefinedRoleMaker(**{"is_collective": True} | arguments)._generate_role()


def test_an_unknown_argument_of_the_cloud_role_maker_is_refused() -> None:
    with pytest.raises(ConfigError, match="no argument 'current_id'"):
        PaddleCloudRoleMaker(is_collective=True, current_id=0)


def test_both_are_role_makers() -> None:
    assert issubclass(PaddleCloudRoleMaker, RoleMakerBase)
    assert issubclass(UserDefinedRoleMaker, RoleMakerBase)
