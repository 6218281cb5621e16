"""Checks of one host: cores, memory, limits, software, network, disk; with real inputs and those of other hosts."""

# SPDX-License-Identifier: Apache-2.0
import os
import resource
import socket
from pathlib import Path

import pytest

from argosy.doctor import cpu, disk, limits, memory, network, software
from argosy.doctor.cgroup import CgroupLimits
from argosy.doctor.check import Check, decode, encode, guarded, in_bits, in_bytes, in_seconds, worst

FREE = CgroupLimits()
GB = 10**9


def test_a_check_that_raises_is_a_failure_with_its_exception() -> None:
    def raises() -> Check:
        raise PermissionError(13, "Permission denied", "/proc/1/fd")

    (check,) = guarded("leftovers", raises)
    assert (check.name, check.status) == ("leftovers", "failure")
    assert check.figure == "PermissionError: [Errno 13] Permission denied: '/proc/1/fd'"


def test_the_worst_status_is_that_of_the_report() -> None:
    good, bad, odd = Check("a", "ok", ""), Check("b", "failure", ""), Check("c", "warning", "")
    assert (worst([]), worst([good]), worst([good, odd]), worst([good, bad, odd])) == (
        *("ok", "ok"),
        *("warning", "failure"),
    )


def test_checks_survive_the_way_to_another_rank() -> None:
    checks = [Check("link", "warning", "1 Gbit/s … ±", "a", 1e9, "bit/s", "a -> b"), Check("x", "ok", "y")]
    assert decode(encode(checks)) == checks


def test_quantities_have_three_digits_and_a_unit() -> None:
    assert (in_bytes(25.3e9), in_bytes(64 << 20), in_bytes(500)) == ("25.3 GB", "67.1 MB", "0.5 kB")
    assert (in_bits(9.41e9), in_bits(47.8e6)) == ("9.41 Gbit/s", "47.8 Mbit/s")
    assert (in_seconds(2.0), in_seconds(0.0031), in_seconds(25e-6)) == ("2 s", "3.1 ms", "25 us")


# --- cores ----------------------------------------------------------------------------------------


def test_a_quota_below_the_visible_cores_is_a_warning() -> None:
    check = cpu.cores({0, 1, 2, 3}, 8, CgroupLimits(cores=1.5))
    assert (check.status, check.figure, check.value) == ("warning", "4 of 8, but the cgroup allows 1.5", 1.5)
    assert cpu.cores({0, 1}, 8, FREE).figure == "2 of 8, by CPU affinity"
    assert cpu.cores({0, 1}, 2, FREE).figure == "2 of 2"


def test_hyper_threads_matter_if_the_ranks_use_them(tmp_path: Path) -> None:
    for number in range(4):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{number % 2},{number % 2 + 2}\n")
    assert cpu.physical_cores(range(4), tmp_path) == 2
    assert cpu.physical_cores({0, 1}, tmp_path) == 2
    assert cpu.physical_cores({9}, tmp_path) is None
    assert cpu.hyper_threads(range(4), 2, busy_threads=2).status == "ok"
    check = cpu.hyper_threads(range(4), 2, busy_threads=4)
    assert check.status == "warning"
    assert "OMP_NUM_THREADS = 2" in check.advice
    assert cpu.hyper_threads(range(4), 4, busy_threads=4).status == "ok"


def test_more_threads_than_cores_are_a_warning_that_says_how_many_would_be_right() -> None:
    assert cpu.threads(2, 2, 4).status == "ok"
    assert "OMP_NUM_THREADS=2" in cpu.threads(2, 4, 4).advice
    assert cpu.threads(2, 1, 1.5).advice == "use at most 1 ranks on this host"
    assert cpu.threads(1, 1, 0.5).status == "ok"


def test_a_busy_host_is_a_warning() -> None:
    assert [cpu.load(average, 4).status for average in (0.0, 1.9, 2.1)] == ["ok", "ok", "warning"]


def test_the_cores_of_this_host_can_be_checked() -> None:
    assert [check.name for check in cpu.check(FREE, 1, 1)] == [
        *("cores", "hyper-threads", "threads of ranks", "load"),
    ]


# --- memory ---------------------------------------------------------------------------------------


def test_the_smaller_one_of_the_memory_of_host_and_cgroup_counts() -> None:
    assert memory.memory(64 * GB, 32 * GB, FREE, 4).status == "ok"
    check = memory.memory(64 * GB, 32 * GB, CgroupLimits(memory=4 * GB, memory_free=2 * GB), 4)
    assert check.status == "warning"
    assert check.figure == "2 GB free of 4 GB, the limit of the cgroup, 4 ranks"
    assert memory.memory(64 * GB, GB // 2, FREE, 4).status == "failure"
    total, available = memory.meminfo()
    assert 0 < available <= total


def test_a_small_dev_shm_is_a_warning(tmp_path: Path) -> None:
    assert memory.dev_shm(1, str(tmp_path / "none")).status == "warning"
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    ranks = int(free / memory.LITTLE_SHM) + 1
    assert (memory.dev_shm(0, str(tmp_path)).status, memory.dev_shm(ranks, str(tmp_path)).status) == (
        *("ok", "warning"),
    )


# --- limits ---------------------------------------------------------------------------------------


def test_a_hard_limit_of_files_below_what_rank_0_needs_is_a_failure() -> None:
    assert limits.files(1024, 4096, size=8).status == "ok"
    assert limits.files(256, 4096, size=8).status == "warning"
    check = limits.files(256, 300, size=64)
    assert check.status == "failure"
    assert "rank 0 needs 384 open files for 64 ranks" in check.advice
    assert limits.files(1024, resource.RLIM_INFINITY, size=10_000).status == "ok"


def test_processes_are_limited_by_the_user_and_by_the_cgroup() -> None:
    assert limits.processes(10_000, 100, FREE, 2, is_root=False).status == "ok"
    assert limits.processes(200, 150, FREE, 2, is_root=False).status == "warning"
    assert limits.processes(200, 150, FREE, 2, is_root=True).status == "ok"
    check = limits.processes(10_000, 100, CgroupLimits(tasks=100, tasks_used=30), 2, is_root=True)
    assert (check.status, check.figure) == ("warning", "100 in the cgroup (pids.max), 30 used")


def test_locked_memory_matters_for_rdma_only() -> None:
    assert limits.locked_memory(65536, has_rdma=False).status == "ok"
    assert limits.locked_memory(65536, has_rdma=True).status == "warning"
    assert limits.locked_memory(resource.RLIM_INFINITY, has_rdma=True).status == "ok"


def test_the_limits_of_this_process_can_be_checked() -> None:
    assert [check.name for check in limits.check(FREE, 1, 1)] == ["ulimit -n", "ulimit -u", "ulimit -l"]
    assert limits.own_tasks() >= 1


# --- software -------------------------------------------------------------------------------------


def test_the_software_of_this_host_is_fit() -> None:
    checks = {check.name: check for check in software.check()}
    assert list(checks) == ["python", "argosy", "torch", "compiler", "kernels"]
    assert checks["torch"].figure.startswith("2.13")
    assert worst(checks[name] for name in ("python", "argosy", "torch")) == "ok"


def test_a_missing_and_a_broken_compiler_are_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert software.compiler().figure == "there is no C++ compiler (CXX=no-such-compiler not found)"
    monkeypatch.setenv("CXX", "false")
    check = software.compiler()
    assert (check.status, check.advice) == ("warning", "repair it, or set CXX to another compiler")


def test_kernels_that_are_not_built_yet_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path))
    assert software.kernels().figure == "not built on this host yet"
    monkeypatch.setenv("ARGOSY_KERNELS", "0")
    assert software.kernels().figure == "off: ARGOSY_KERNELS=0"


# --- network --------------------------------------------------------------------------------------


def test_the_interface_of_an_address_is_named() -> None:
    check = network.interface("127.0.0.1")
    assert check.status == "ok"
    assert check.figure.startswith("lo 127.0.0.1, MTU ")
    check = network.interface("192.0.2.77")
    assert check.status == "failure"
    assert check.figure.startswith("192.0.2.77 is not an address of this host, which has ")


def test_the_speed_of_a_virtual_interface_has_no_meaning(tmp_path: Path) -> None:
    for name, text in (("eth0", "25000"), ("veth0", "10000"), ("down", "-1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text(f"{text}\n")
    for name in ("eth0", "down"):
        (tmp_path / name / "device").mkdir()
    assert [network.link_speed(name, tmp_path) for name in ("eth0", "veth0", "down", "none")] == [
        *(25e9, None),
        *(None, None),
    ]


def test_a_default_port_in_use_is_a_warning_with_its_process() -> None:
    with socket.create_server(("127.0.0.77", 0)) as server:
        port = server.getsockname()[1]
        assert not network._is_free("127.0.0.77", port)
    assert network._is_free("127.0.0.77", port)
    with socket.create_server(("127.0.0.77", network.SERVER_PORT)):
        check = network.ports("127.0.0.77", 1, ())[0]
        assert check.status == "warning"
        assert check.figure.startswith(f"in use: {network.SERVER_PORT}")
        assert str(os.getpid()) in check.figure
        assert network.ports("127.0.0.77", 1, {network.SERVER_PORT})[0].status == "ok"


# --- disk -----------------------------------------------------------------------------------------


def test_the_disk_of_a_directory_is_measured_and_nothing_is_left_there(tmp_path: Path) -> None:
    checks = disk.check(str(tmp_path))
    assert [check.name for check in checks] == ["disk space", "disk write", "disk fsync"]
    assert all(check.value > 0 for check in checks)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    for path in (tmp_path / "none", Path("/proc")):
        (check,) = disk.check(str(path))
        assert check.status == "failure", check
        assert str(path) in check.figure
