"""What this process has used of the host: processor time, memory, page faults, time without a core."""

# SPDX-License-Identifier: Apache-2.0
import os
import resource
from dataclasses import dataclass
from typing import Any

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """Totals since the start of the process."""

    cpu_s: float
    delay_s: float
    """The main thread was ready to run, and other processes had the cores; 0 where the kernel does not count it."""
    minor_faults: int
    major_faults: int
    preempted: int
    """Involuntary context switches."""
    rss: int
    peak_rss: int

    def since(self, before: "Usage") -> dict[str, Any]:
        """The fields of a record: differences of the totals, and memory as it is now."""
        return {
            "cpu_s": round(self.cpu_s - before.cpu_s, 4),
            "delay_s": round(self.delay_s - before.delay_s, 4),
            "minor_faults": self.minor_faults - before.minor_faults,
            "major_faults": self.major_faults - before.major_faults,
            "preempted": self.preempted - before.preempted,
            "rss": self.rss,
            "peak_rss": self.peak_rss,
        }


def usage() -> Usage:
    """The totals of this process; some 30 us."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    schedstat = _numbers("/proc/self/schedstat")
    memory = _numbers("/proc/self/statm")
    return Usage(
        cpu_s=used.ru_utime + used.ru_stime,
        delay_s=schedstat[1] / 1e9 if len(schedstat) > 1 else 0.0,
        minor_faults=used.ru_minflt,
        major_faults=used.ru_majflt,
        preempted=used.ru_nivcsw,
        rss=memory[1] * _PAGE if len(memory) > 1 else 0,
        peak_rss=used.ru_maxrss * 1024,
    )


def frequency_mhz() -> float | None:
    """The frequency of the core that this thread runs on; None where the kernel does not export it, as in most VMs."""
    try:
        with open("/proc/thread-self/stat", "rb") as file:
            core = int(file.read().rpartition(b")")[2].split()[36])
        with open(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", "rb") as file:
            return int(file.read()) / 1000
    except (OSError, ValueError, IndexError):
        return None


def _numbers(path: str) -> list[int]:
    try:
        with open(path, "rb") as file:
            return [int(word) for word in file.read().split()]
    except (OSError, ValueError):
        return []
