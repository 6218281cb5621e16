"""The size of /dev/shm in a pod: given, measured by an earlier run, or by the number of processes.

/dev/shm holds batches on their way from worker processes of a DataLoader. Gradients are in segments of their own
(collective/shm.py), which it does not limit; the pages of both count as memory of the pod.
"""

# SPDX-License-Identifier: Apache-2.0
import os

from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.node_roles import NodeRole
from argosy.engine.cluster.sizes import mebibytes
from argosy.engine.errors import ConfigError
from argosy.engine.metrics.job_directory import JobDirectory, read_json

PER_PROCESS = 256
"""MiB; below this, the doctor warns. A batch of 256 images of 224 x 224 has 147 MiB."""
_MARGIN = 2.0
"""Over the measured value: a sample sees the batches of one moment, and the queues of a loader may be fuller later."""
_LEAST = 64
"""MiB, the default of containers: semaphores and small files of other libraries."""


def shm_mebibytes(job: ClusterJob, role: NodeRole) -> int:
    """--shm_size; else PER_PROCESS for each process of the pod, but at most half of --memory."""
    memory, text = job.settings.get("memory"), job.settings.get("shm_size")
    limit = mebibytes(memory, "memory") if memory else None
    processes = num_processes(role)
    if text is None:
        size = PER_PROCESS * processes
        return size if limit is None else max(1, min(size, limit // 2))
    size = measured(text, processes) if os.path.isdir(text) else mebibytes(text, "shm_size")
    if limit is not None and size > limit:
        source = f"{size}M of {processes} processes" if os.path.isdir(text) else "it"
        raise ConfigError(
            f"--shm_size={text}: {source} is more than --memory={memory}, which contains it; use a larger --memory"
        )
    return size


def num_processes(role: NodeRole) -> int:
    """Processes of a pod of this role: ranks, or the servers and workers that are spread over the pods."""
    config = role.config
    if config.server_num is None or config.worker_num is None:
        return config.nproc_per_node or len(config.gpus or ()) or 1
    counts = {"server": config.server_num, "worker": config.worker_num}
    if config.node_role is not None:
        return -(-counts[config.node_role] // role.nodes)
    return sum(-(-count // role.nodes) for count in counts.values())


def measured(log_dir: str, processes: int) -> int:
    """The size for so many processes as the largest of an earlier run, from its log directory; MiB."""
    folder = JobDirectory.find(log_dir).metrics
    profiles = [read_json(path) or {} for path in sorted(folder.glob("*.profile.json"))]
    used = [profile["shared_memory"]["dev_shm_bytes"] for profile in profiles if "shared_memory" in profile]
    if not used:
        raise ConfigError(
            f"--shm_size={log_dir}: no rank of that job has measured a step, the first of which is step 5; run more "
            "steps, or give a size, such as 2G"
        )
    return max(_LEAST, -(-int(_MARGIN * max(used) * processes) // 2**20))
