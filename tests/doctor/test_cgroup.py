"""Limits of control groups, read from directories as the kernel has them."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from argosy.doctor import cgroup
from argosy.doctor.cgroup import CgroupLimits


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_version_2_limits_of_a_group_and_of_those_above_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc": "0::/pod/worker\n",
            "sys/pod/cpu.max": "150000 100000\n",
            "sys/pod/worker/cpu.max": "max 100000\n",
            "sys/pod/worker/memory.max": "1000000000\n",
            "sys/pod/worker/memory.current": "600000000\n",
            "sys/pod/worker/memory.stat": "anon 1\ninactive_file 100000000\n",
            "sys/pod/memory.max": "max\n",
            "sys/pod/pids.max": "100\n",
            "sys/pod/pids.current": "40\n",
        },
    )
    limits = cgroup.read(tmp_path / "proc", tmp_path / "sys")
    assert limits == CgroupLimits(1.5, 1_000_000_000, 500_000_000, 100, 40)


def test_version_1_limits_with_a_version_2_hierarchy_beside_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc": "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n",
            "sys/unified/cgroup.procs": "",
            "sys/cpu/job/cpu.cfs_quota_us": "50000\n",
            "sys/cpu/job/cpu.cfs_period_us": "100000\n",
            "sys/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/memory/job/memory.limit_in_bytes": "2000\n",
            "sys/memory/job/memory.usage_in_bytes": "1500\n",
            "sys/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    limits = cgroup.read(tmp_path / "proc", tmp_path / "sys")
    assert limits == CgroupLimits(0.5, 2000, 500)


def test_in_a_container_the_path_of_the_host_is_ignored_and_its_own_root_counts(tmp_path: Path) -> None:
    write(tmp_path, {"proc": "0::/../../host/path\n", "sys/cpu.max": "200000 100000\n"})
    assert cgroup.read(tmp_path / "proc", tmp_path / "sys").cores == 2.0


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert cgroup.read(tmp_path / "none", tmp_path) == CgroupLimits()


def test_the_limits_of_this_process_can_be_read() -> None:
    limits = cgroup.read()
    assert limits.cores is None or limits.cores > 0
    assert limits.memory is None or limits.memory > 0
