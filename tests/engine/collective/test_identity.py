"""identity: what each launcher's environment says, which one counts, and what is rejected."""

# SPDX-License-Identifier: Apache-2.0

import pytest

from argosy.engine import env
from argosy.engine.collective.identity import Identity, read
from argosy.engine.errors import ConfigError
from argosy.engine.net import Endpoint
from tests.ranks import ForkServer

FLEETRUN = {
    "PADDLE_TRAINER_ID": "1",
    "PADDLE_TRAINERS_NUM": "3",
    "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:6170,10.0.0.1:6171,10.0.0.2:6170",
    "PADDLE_CURRENT_ENDPOINT": "10.0.0.1:6171",
}
TORCHRUN = {
    "RANK": "2",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "host-a",
    "MASTER_PORT": "4321",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SRUN = {
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "123456",
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "7",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_STEP_NODELIST": "node[01-03,7]",
}


def without(environ: dict[str, str], *names: str) -> dict[str, str]:
    return {key: value for key, value in environ.items() if key not in names}


def test_without_a_launcher_a_process_is_alone() -> None:
    assert read({}) == Identity(0, 1, 0, 1, (), "127.0.0.1:0", True, "none", 0, "")


def test_fleetrun_gives_endpoints_and_the_store_is_at_the_first() -> None:
    me = read(FLEETRUN | {"ARGOSY_JOB_TOKEN": "secret", "TORCHELASTIC_RESTART_COUNT": "2"})
    endpoints = ("10.0.0.1:6170", "10.0.0.1:6171", "10.0.0.2:6170")
    assert me == Identity(1, 3, 1, 2, endpoints, "10.0.0.1:6170", False, "fleetrun", 2, "secret")
    assert read(FLEETRUN | {"PADDLE_TRAINER_ID": "0", "PADDLE_CURRENT_ENDPOINT": "10.0.0.1:6170"}).hosts_store


def test_fleetruns_own_local_rank_counts_before_the_endpoints() -> None:
    assert read(FLEETRUN | {"PADDLE_RANK_IN_NODE": "0", "LOCAL_WORLD_SIZE": "1"}).local_rank == 0


def test_torchrun_respects_master_addr_and_port() -> None:
    me = read(TORCHRUN)
    assert (me.rank, me.size, me.local_rank, me.local_size) == (2, 4, 0, 2)
    assert (me.master, me.hosts_store, me.launcher) == ("host-a:4321", False, "torchrun")
    assert read(TORCHRUN | {"RANK": "0"}).hosts_store


def test_with_torchruns_agent_store_no_rank_hosts_it() -> None:
    assert not read(TORCHRUN | {"RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}).hosts_store


def test_ranks_started_by_hand_meet_on_the_loopback() -> None:
    me = read({"RANK": "1", "WORLD_SIZE": "2"})
    assert (me.local_rank, me.local_size, me.master) == (1, 2, "127.0.0.1:29500")


@pytest.mark.parametrize(("environ", "place"), [(OPENMPI, (3, 4, 3, 4)), (MPICH, (1, 2, 1, 2))])
def test_mpirun_on_one_host_meets_on_the_loopback(
    environ: dict[str, str], place: tuple[int, int, int, int]
) -> None:
    me = read(environ)
    assert (me.rank, me.size, me.local_rank, me.local_size) == place
    assert (me.launcher, me.master) == ("mpirun", "127.0.0.1:29500")


def test_two_mpirun_jobs_on_one_host_have_their_own_ports() -> None:
    one, two = (
        read(OPENMPI | {"PMIX_NAMESPACE": name}).master for name in ("prterun-a-1@1", "prterun-a-2@1")
    )
    assert one != two


def test_mpirun_on_several_hosts_wants_master_addr() -> None:
    several = OPENMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    with pytest.raises(ConfigError, match="set MASTER_ADDR"):
        read(several)
    assert read(several | {"MASTER_ADDR": "host-a"}).master == "host-a:29500"


def test_srun_meets_at_the_first_node_of_the_step_and_a_port_of_the_job() -> None:
    me = read(SRUN)
    assert (me.rank, me.size, me.local_rank, me.local_size, me.launcher) == (5, 7, 1, 2, "srun")
    host, port = Endpoint.parse(me.master)
    assert host == "node01"
    assert 12000 <= port < 32000
    assert read(SRUN | {"SLURM_JOB_ID": "123457"}).master != me.master


def test_srun_with_its_pmi_plugin_is_still_srun() -> None:
    assert read(SRUN | {"PMI_RANK": "5", "PMI_SIZE": "7"}).launcher == "srun"


def test_a_batch_script_outside_of_srun_is_alone() -> None:
    assert read({"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}).size == 1


def test_fleetrun_counts_before_torchrun_before_mpirun_before_srun() -> None:
    everything = SRUN | OPENMPI | TORCHRUN | FLEETRUN
    for names, launcher in (
        (FLEETRUN, "fleetrun"),
        (TORCHRUN, "torchrun"),
        (OPENMPI, "mpirun"),
        (SRUN, "srun"),
    ):
        assert env.launched(everything).launcher == launcher
        everything = without(everything, *names)
    assert env.launched(everything).launcher == "none"


def test_rank_and_size_understand_the_same_launchers() -> None:
    assert [env.rank_and_size(e) for e in (FLEETRUN, TORCHRUN, OPENMPI, MPICH, SRUN)] == [
        (1, 3),
        (2, 4),
        (3, 4),
        (1, 2),
        (5, 7),
    ]


def test_without_their_number_the_endpoints_are_counted() -> None:
    assert read(without(FLEETRUN, "PADDLE_TRAINERS_NUM")) == read(FLEETRUN)
    alone = {"PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:6170"}
    assert env.rank_and_size(alone) == (0, 1)
    with pytest.raises(ConfigError, match="PADDLE_TRAINERS_NUM=2 without PADDLE_TRAINER_ID"):
        read({"PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:6170,127.0.0.1:6171"})


def test_a_parameter_server_has_no_rank() -> None:
    assert env.rank_and_size({"TRAINING_ROLE": "PSERVER", "PADDLE_TRAINERS_NUM": "2"}) == (0, 2)


def test_an_ipv6_master_is_written_with_brackets() -> None:
    assert read(TORCHRUN | {"MASTER_ADDR": "fd00::1"}).master == "[fd00::1]:4321"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (FLEETRUN | {"PADDLE_TRAINER_ID": "one"}, "PADDLE_TRAINER_ID='one'"),
        (FLEETRUN | {"PADDLE_TRAINERS_NUM": "2"}, "has 3 endpoints and PADDLE_TRAINERS_NUM is 2"),
        (FLEETRUN | {"PADDLE_CURRENT_ENDPOINT": "10.0.0.2:6170"}, "PADDLE_TRAINER_ID=1 is 10.0.0.1:6171"),
        (FLEETRUN | {"PADDLE_TRAINER_ENDPOINTS": "a:1,a:1,b:1"}, "a:1 twice"),
        (
            FLEETRUN | {"PADDLE_TRAINER_ENDPOINTS": "a:1,b,c:1"},
            "PADDLE_TRAINER_ENDPOINTS: 'b' is not an endpoint; use host:port",
        ),
        (TORCHRUN | {"LOCAL_RANK": "3"}, "local rank 3 of 2"),
        (TORCHRUN | {"LOCAL_RANK": "-1"}, "LOCAL_RANK='-1'"),
        (TORCHRUN | {"MASTER_PORT": "http"}, "MASTER_PORT='http'"),
        (TORCHRUN | {"MASTER_PORT": "70000"}, "MASTER_PORT=70000"),
        (without(TORCHRUN, "RANK"), "WORLD_SIZE=4 without RANK"),
        (without(OPENMPI, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE=None"),
        (SRUN | {"SLURM_STEP_TASKS_PER_NODE": "2x3"}, "SLURM_STEP_TASKS_PER_NODE='2x3'"),
        (SRUN | {"SLURM_NODEID": "4"}, "SLURM_NODEID=4"),
        (SRUN | {"TORCHELASTIC_RESTART_COUNT": "x"}, "TORCHELASTIC_RESTART_COUNT='x'"),
    ],
)
def test_what_is_invalid_is_rejected_with_its_variables(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(environ)
    assert message in str(caught.value)


def test_a_process_reads_its_own_environment(ranks: ForkServer) -> None:
    code = "from argosy.engine.collective import identity; print(identity.read().rank)"
    assert ranks.python("-c", code, **OPENMPI).stdout == "3\n"
