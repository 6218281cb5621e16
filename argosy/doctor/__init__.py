"""Is this cluster healthy? Checks of hosts, links, collectives and disks, run as a job: `fleetrun --doctor`.

    every host   software, cores, memory, limits, network, disk, leftovers of earlier jobs      one process, no network
    every rank   GFLOPS
    together     shared-memory and gloo all-reduce; latency, bandwidth and clock difference of every link

The job is started as any other, so launcher, rendezvous and network interface are the ones that a training job uses.
"""

# SPDX-License-Identifier: Apache-2.0
from argosy.doctor.check import Check, worst

__all__ = ["Check", "worst"]
