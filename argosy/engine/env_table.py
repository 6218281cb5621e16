"""Every environment variable that Argosy reads or sets: name, default, effect.

`env.py` reads them. `docs/scripts/reference.py` writes `docs/reference/environment.md` from this table, and
`tests/docs/test_reference.py` compares the table with the names in the code.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass


@dataclass(frozen=True)
class EnvVariable:
    """One environment variable, or several with the same meaning."""

    names: tuple[str, ...]
    default: str
    """As it is written in a shell; "" if the variable is unset by default."""
    help: str
    """What it does, in Markdown; links are relative to docs/reference/."""


@dataclass(frozen=True)
class EnvGroup:
    """Variables that are documented together."""

    title: str
    text: str
    variables: tuple[EnvVariable, ...]


def _variable(names: str, default: str, text: str) -> EnvVariable:
    return EnvVariable(tuple(names.split()), default, text)


GROUPS = (
    EnvGroup(
        "General",
        "",
        (
            _variable(
                "ARGOSY_LOG",
                "notice",
                "log level: `debug`, `info`, `notice`, `warning` or `error`. `info` shows the passes, `debug` every "
                "compilation",
            ),
            _variable(
                "ARGOSY_CACHE",
                "$XDG_CACHE_HOME/argosy",
                "folder of data sets, built kernels and measurements; `~/.cache/argosy` if `XDG_CACHE_HOME` is unset",
            ),
            _variable(
                "FLAGS_check_nan_inf",
                "0",
                "`1`: stop at the first node that computes a NaN or an infinity, and report its source line",
            ),
            _variable(
                "ARGOSY_CHECK_PASSES",
                "0",
                "`1`: after each pass, infer the values of changed nodes and compare dtypes, shapes, strides and "
                "aliases with their meta; for developing passes, and on in the tests",
            ),
            _variable(
                "ARGOSY_KEEP_MEMORY",
                "1",
                "keep freed memory for the next step (glibc); `0`: return it to the kernel each time",
            ),
            _variable(
                "CPU_NUM",
                "number of cores, at most 4",
                "threads of `xmap_readers` in the data sets; `num_threads` of 1.x strategies, which has no effect",
            ),
            _variable(
                "FLAGS_sync_nccl_allreduce",
                "1 with one communicator",
                "in the collective fleet of 1.x: `strategy.sync_nccl_allreduce` of 2.0",
            ),
            _variable(
                "PYTHONHASHSEED",
                "0",
                'value of `hash("text")` in the `pipe_command` of a [dataset](../how-to/datasets.md)',
            ),
            _variable(
                "ARGOSY_CLUSTERS",
                "`~/.config/argosy/clusters.toml`",
                "the file of named clusters for [fleetrun --on](../how-to/clusters/index.md)",
            ),
            _variable(
                "ARGOSY_METRICS",
                "1",
                "`0`: processes write no [records](job-directory.md), and the views of the job show no steps",
            ),
            _variable(
                "ARGOSY_AUTOTUNE",
                "0",
                "`1`: as `strategy.auto = True` ([autotune](../how-to/autotune.md), `fleetrun --autotune`)",
            ),
            _variable(
                "ARGOSY_TIMELINE",
                "",
                "record a [timeline](../how-to/timeline.md) of steps in this directory (`fleetrun --timeline`)",
            ),
            _variable(
                "ARGOSY_TIMELINE_STEPS",
                "3-12",
                "the steps that a timeline records (`fleetrun --timeline_steps`)",
            ),
        ),
    ),
    EnvGroup(
        "Kernels",
        "",
        (
            _variable(
                "ARGOSY_KERNELS",
                "1",
                "`0`: do not use Argosy's C++ kernels; fused ops run unfused",
            ),
            _variable(
                "CXX",
                "g++, c++ or clang++",
                "C++ compiler of these kernels. It runs once; the result is cached in `ARGOSY_CACHE`",
            ),
            _variable(
                "ARGOSY_WINOGRAD",
                "4",
                "largest tile of Winograd's algorithm that [kernel search](../how-to/kernel-search.md) may choose for "
                "3x3 convolutions: `4`, `2`, or `0` for none",
            ),
            _variable(
                "ARGOSY_SANITIZE",
                "0",
                "`1`: build the kernels with AddressSanitizer (`make fuzz`); libasan must be preloaded",
            ),
            _variable(
                "FLAGS_cudnn_exhaustive_search",
                "0",
                "`1`: [search for the fastest kernels](../how-to/kernel-search.md) in the first steps, and use them",
            ),
            _variable(
                "ARGOSY_BACKGROUND_SEARCH",
                "1",
                "search in at most 5 % of the time of training, for [the processes that start later]"
                "(../how-to/kernel-search.md#the-search-in-the-background); `0`: do not",
            ),
            _variable("ARGOSY_SEARCH_S", "30", "seconds that a process may spend on either search"),
            _variable(
                "TORCHINDUCTOR_CACHE_DIR",
                "$ARGOSY_CACHE/inductor",
                "cache of [Inductor](../how-to/inductor.md)",
            ),
        ),
    ),
    EnvGroup(
        "Collectives",
        "",
        (
            _variable("ARGOSY_CONNECT_TIMEOUT_S", "300", "how long ranks try to connect to each other"),
            _variable(
                "ARGOSY_COLLECTIVE_TIMEOUT_S",
                "1800",
                "how long a collective waits for a rank that is alive (`fleetrun --timeout`)",
            ),
            _variable(
                "ARGOSY_HEARTBEAT_TIMEOUT_S",
                "60",
                "how long a collective waits for a rank that sends no heartbeat",
            ),
            _variable(
                "ARGOSY_SHM", "1", "collectives inside a host use shared memory; `0`: they use sockets"
            ),
            _variable(
                "GLOO_SOCKET_IFNAME", "the route to the other hosts", "network interface of the collectives"
            ),
        ),
    ),
    EnvGroup(
        "Parameter servers",
        "",
        (
            _variable(
                "FLAGS_rpc_send_thread_num FLAGS_rpc_get_thread_num FLAGS_rpc_prefetch_thread_num",
                "12",
                "threads of a server for pushes, pulls and row lookups",
            ),
            _variable(
                "FLAGS_rpc_deadline",
                "180000",
                "milliseconds without a message of the server after which a request fails",
            ),
            _variable(
                "FLAGS_rpc_retry_times",
                "3",
                "how often a responsive server is queried about a request without a reply (after 2, 4, 8 s)",
            ),
            _variable(
                "FLAGS_communicator_max_merge_var_num FLAGS_communicator_min_send_grad_num_before_recv",
                "those of a_sync_configs",
                "async mode: steps that are summed before they are sent; pushes between two pulls "
                "([modes](../how-to/parameter-servers.md#choose-a-mode))",
            ),
            _variable(
                "FLAGS_LAUNCH_BARRIER",
                "1",
                "`0`: `fleet.init_worker` does not wait until all servers listen",
            ),
            _variable(
                "ARGOSY_HEARTBEAT_S",
                "1",
                "interval of the heartbeats between trainers and servers, in seconds",
            ),
            _variable(
                "ARGOSY_PS_HEARTBEAT_TIMEOUT_S",
                "20",
                "seconds without a message after which a server considers a trainer unresponsive",
            ),
            _variable(
                "ARGOSY_PS_MAX_MESSAGE_MB", "2048", "largest message that a trainer or a server accepts"
            ),
            _variable("ARGOSY_PS_ENCRYPT", "0", "`1`: encrypt trainer-server traffic (`fleetrun --encrypt`)"),
            _variable(
                "ARGOSY_TABLE_MEMORY_ROWS",
                "0",
                "rows of each table that a server keeps in memory, the rest is on disk; 0: all",
            ),
            _variable(
                "ARGOSY_SERVER_STATE",
                "",
                "directory in which servers persist their state (`fleetrun --server_state`, `--max_restarts`)",
            ),
            _variable(
                "ARGOSY_SERVER_DURABILITY",
                "log",
                "what a server does before it acknowledges a push (`fleetrun --server_durability`, "
                "[guarantees](../explanation/guarantees.md))",
            ),
            _variable(
                "ARGOSY_SNAPSHOT_S",
                "60",
                "with `ARGOSY_SERVER_DURABILITY=snapshot`: seconds between snapshots of an asynchronous server",
            ),
            _variable(
                "ARGOSY_DEAD_WORKER",
                "end",
                "`drop`: continue without a dead worker (`fleetrun --dead_worker`)",
            ),
        ),
    ),
    EnvGroup(
        "fleetrun",
        "`fleetrun` reads these.",
        (
            _variable("FLAGS_START_PORT", "", "`--start_port`"),
            _variable("CUDA_VISIBLE_DEVICES", "all", "the GPUs that fleetrun may use"),
            _variable(
                "ARGOSY_JOB_TOKEN",
                "random on one host",
                "a secret that separates the keys of two jobs in the store and authenticates processes to parameter "
                "servers. On several hosts set the same value on each",
            ),
            _variable(
                "POD_IP",
                "",
                "which host this is, in a job with servers on several hosts (`--host`). For each process fleetrun sets "
                "it to the address of its endpoint",
            ),
        ),
    ),
    EnvGroup(
        "Set by fleetrun for each process",
        "Scripts may read these. Everything else is inherited from the shell, except `http_proxy` and `https_proxy`.",
        (
            _variable("PADDLE_TRAINER_ID RANK", "", "the rank; workers only in a job with servers"),
            _variable("PADDLE_TRAINERS_NUM WORLD_SIZE", "", "the number of ranks, or of workers"),
            _variable("PADDLE_RANK_IN_NODE LOCAL_RANK", "", "the rank on this host"),
            _variable("LOCAL_WORLD_SIZE", "", "the number of ranks on this host"),
            _variable("GROUP_RANK NODE_RANK", "", "the index of this host"),
            _variable("GROUP_WORLD_SIZE", "", "the number of hosts"),
            _variable("PADDLE_TRAINER_ENDPOINTS", "", "the endpoints of all ranks, or of all workers"),
            _variable("PADDLE_CURRENT_ENDPOINT", "", "the endpoint of this rank"),
            _variable(
                "MASTER_ADDR MASTER_PORT",
                "",
                "a free endpoint, for scripts that call `torch.distributed` themselves; Argosy uses rank 0's endpoint",
            ),
            _variable(
                "FLAGS_selected_gpus",
                "",
                "the devices of this rank, with GPUs or `--gpus`; else a value that you set is kept",
            ),
            _variable("PADDLE_LOCAL_DEVICE_IDS", "", "the devices of this rank; empty without GPUs"),
            _variable("PADDLE_WORLD_DEVICE_IDS", "", "the devices of all ranks"),
            _variable("TRAINING_ROLE", "", "`TRAINER` or `PSERVER`"),
            _variable("PADDLE_TRAINING_ROLE", "", "the same, for scripts that read this name"),
            _variable("PADDLE_PSERVERS_IP_PORT_LIST", "", "the endpoints of all parameter servers"),
            _variable("PADDLE_PORT", "", "with `POD_IP`: the endpoint of this server or worker"),
            _variable(
                "PADDLE_GLOO_HTTP_ENDPOINT PADDLE_GLOO_RENDEZVOUS PADDLE_WITH_GLOO",
                "",
                "in a job with servers: the first server's address with `--http_port`, `3`, `0`",
            ),
            _variable(
                "OMP_NUM_THREADS",
                "",
                "cores / processes of this host, at least 1; a value that you set is kept",
            ),
            _variable(
                "TORCH_CPP_LOG_LEVEL",
                "",
                "`ERROR`, because a lost rank would fill the log with C++ stack frames; a value that you set is kept",
            ),
            _variable(
                "TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS",
                "",
                "`fleetrun`, the number of restarts so far, `--max_restarts`",
            ),
            _variable("ARGOSY_RESTART", "", "how often this server or worker was restarted"),
            _variable(
                "ARGOSY_JOB_ID",
                "",
                "identifies one launch of a job: a server whose state has another id begins a new job with it",
            ),
            _variable(
                "ARGOSY_METRICS_DIR",
                "",
                "the log directory, in which processes write [records](job-directory.md) for the views of the job; "
                "unset: they write none",
            ),
            _variable(
                "ARGOSY_RAY_CHANNEL", "", "in a job on Ray: the socket of the node's supervising actor"
            ),
            _variable(
                "ARGOSY_REQUEUE_CODE",
                "",
                "only with `--grace`: the exit code of a [preempted](../how-to/preemption.md) process that has saved a "
                "checkpoint. Set it yourself under other launchers",
            ),
            _variable("ARGOSY_STORE_FD", "", "rank 0 only: the listening socket that it inherits"),
            _variable(
                "ARGOSY_SERVER_STAYS",
                "",
                "`1` on one host: a server runs until SIGTERM, also when all workers have left",
            ),
            _variable(
                "ARGOSY_DEAD_WORKERS",
                "",
                "with `--dead_worker=drop`: a file in which fleetrun lists the dropped workers of its host",
            ),
        ),
    ),
    EnvGroup(
        "Other launchers",
        "`fleet.init` reads rank and size from the first launcher in this order that has set its variables: fleetrun, "
        "torchrun, mpirun, srun.",
        (
            _variable(
                "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE",
                "",
                "Open MPI's `mpirun`",
            ),
            _variable("PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS", "", "MPICH's `mpirun`"),
            _variable(
                "SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_NTASKS SLURM_LOCALID SLURM_STEP_TASKS_PER_NODE "
                "SLURM_STEP_NODELIST SLURM_STEP_ID SLURM_STEPID",
                "",
                "`srun`",
            ),
            _variable("TORCHELASTIC_USE_AGENT_STORE", "", "torchrun: whether its agent offers the store"),
        ),
    ),
)
"""All variables, in the order of the page."""
