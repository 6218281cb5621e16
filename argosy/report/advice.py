"""What to try after a failure, derived from its kind: a table of patterns over the exception, the exit and the log."""

# SPDX-License-Identifier: Apache-2.0
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """A kind of failure, and what to try."""

    kind: str
    explanation: str
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """Applies if the pattern is found in the exception or, for patterns that are certain, in the end of the log."""

    pattern: str
    advice: Advice
    reads_log: bool = False


_MEMORY = Advice(
    "out of memory",
    "The process needed more memory than the host, or its memory limit, had.",
    (
        "See the section Memory: what was live at the peak, and which rank had how much.",
        "Halve the batch size; gradient_merge keeps the global batch: strategy.gradient_merge = True.",
        "Recompute activations (strategy.recompute = True) or shard the optimizer state (strategy.sharding = True).",
        "dmesg -T | grep -i 'killed process' says whether the kernel killed it; a container's limit is in "
        "/sys/fs/cgroup/memory.max.",
        "Start fewer ranks per host (--nproc_per_node).",
    ),
)
_DISK = Advice(
    "disk full",
    "A file could not be written because its disk or quota was full.",
    (
        "df -h and df -i of the directory in the message show what is left.",
        "Delete old checkpoints, or keep fewer of them.",
        "Write logs elsewhere: --log_dir DIR.",
    ),
)
_SHM = Advice(
    "shared memory full",
    "Ranks of one host exchange data in /dev/shm, and it was full: SIGBUS is how the kernel reports that.",
    (
        "df -h /dev/shm; in a container start it with a larger one: docker run --shm-size=8g.",
        "ls -l /dev/shm shows leftovers of earlier jobs; fleetrun --doctor lists those of Argosy.",
    ),
)
_PORT = Advice(
    "port in use",
    "Another process listens on a port that this job needs.",
    (
        "ss -ltnp shows which one; end it if it is left over from an earlier job.",
        "Choose other ports: --start_port P, or none at all so that fleetrun finds free ones.",
    ),
)
_NAN = Advice(
    "NaN or infinity",
    "A computed value was not finite.",
    (
        "The curves show when the loss or another watched value left its range.",
        "Lower the learning rate, warm it up, or clip gradients (grad_clip=nn.ClipGradByGlobalNorm(1.0)).",
        "FLAGS_check_nan_inf=1 names the node and the source line that first computed it.",
        "In float16: use bfloat16, or dynamic loss scaling (strategy.amp_configs).",
        "Check the input for NaN, and for labels out of range.",
    ),
)
_IMPORT = Advice(
    "import failed",
    "A module or a name in it was not found by this process.",
    (
        "Install it into the environment of the rank: the versions and the Python of each rank are listed below.",
        "If only one host fails, its environment differs: compare pip list.",
        "For `import paddle` start with fleetrun --paddle.",
        "A module next to the script needs the same working directory on each host, or PYTHONPATH.",
    ),
)
_DIFFERENT_PROGRAMS = Advice(
    "different programs",
    "The ranks built different programs, so their collectives do not match.",
    (
        "Build the same model with the same arguments and strategy on every rank; branch on the rank only for output.",
        "The message names the first collective that differs.",
    ),
)
_RAN_OUT = Advice(
    "a rank ended early",
    "A rank had fewer batches than the others, and left while they still trained.",
    (
        "Give every rank the same number of batches: DistributedBatchSampler, or drop_last=True.",
        "The table of ranks shows how many steps each one made.",
    ),
)
_SERVER = Advice(
    "a server ended early",
    "A parameter server returned from its script while workers still trained.",
    ("Let the servers call fleet.init_server() and fleet.run_server(), which returns when the job ends.",),
)
_DEADLOCK = Advice(
    "deadlock",
    "Two ranks waited for each other in different collectives.",
    (
        "Call collectives on all ranks in the same order; a barrier or save inside `if rank == 0:` is the usual cause.",
    ),
)
_TIMEOUT = Advice(
    "timeout",
    "A process did not join, or did not reply, in time.",
    (
        "See what the others waited for, and the last lines of the process they waited for.",
        "If it evaluates or saves for that long, raise --timeout (collectives) or FLAGS_rpc_deadline (servers).",
        "If it should have been fast: its host may swap or be overloaded; fleetrun --doctor measures it.",
    ),
)
_UNRESPONSIVE = Advice(
    "unresponsive process",
    "The process existed but sent no heartbeat.",
    (
        "A stopped process (SIGSTOP, a debugger) is resumed with kill -CONT.",
        "A host that swaps or lost its network looks the same: fleetrun --doctor --ips A,B checks hosts and links.",
        "ARGOSY_HEARTBEAT_TIMEOUT_S sets how long a process may be unresponsive.",
    ),
)
_CONNECTION = Advice(
    "connection lost",
    "A connection to another process broke. Usually that process failed; its own log has the cause.",
    (
        "Look at the other end first: its last lines are below, or in the logs of its host.",
        "If all processes were well: fleetrun --doctor --ips A,B measures every link, ports and name resolution.",
        "On unreliable links use --max_restarts N with checkpoints.",
    ),
)
_REFUSED = Advice(
    "no connection",
    "Nothing accepted the connection at this address, or the name could not be resolved.",
    (
        "Check that the other process runs, and that the address in the message is one of its host.",
        "A firewall between hosts must let the ports through; fleetrun --doctor --ips A,B tests them.",
    ),
)
_FILE = Advice(
    "missing file",
    "A file or directory does not exist for this process.",
    (
        "A relative path is relative to the directory in which fleetrun was started.",
        "On several hosts each one needs the file, or all of them the same shared file system.",
    ),
)
_PERMISSION = Advice(
    "permission denied",
    "The user of the job must not read or write this file.",
    ("ls -l the path in the message, on the host of this rank.",),
)
_FILES = Advice(
    "too many open files",
    "The process reached its limit of open files.",
    ("ulimit -n 65536 before fleetrun.", "Fewer reader processes (num_workers)."),
)
_CRASH = Advice(
    "crash in native code",
    "The process was ended by a signal of the processor or by abort, not by an exception.",
    (
        "PYTHONFAULTHANDLER=1 prints the Python line at which it happened.",
        "SIGILL: compiled for another processor; remove the cache of kernels (make clean-cache) on this host.",
        "If it repeats at the same line, report it with the program (exe.run of the last step) and the versions below.",
    ),
)
_TERMINATED = Advice(
    "terminated from outside",
    "Another process ended it: a scheduler, a time limit, or a user.",
    (
        "With --grace S a job that gets SIGTERM saves a checkpoint and exits with a code for requeueing.",
        "Ask the scheduler why (Slurm: sacct -j JOB; Kubernetes: kubectl describe pod).",
    ),
)
_INPUT = Advice(
    "invalid input",
    "A batch did not fit the program.",
    (
        "The message names the feed, its shape or dtype, and what the program expects.",
        "Run the reader alone to find the batch: the step at which it happened is above.",
    ),
)
_CORRUPT = Advice(
    "corrupt file",
    "A file is truncated, altered, or has another format than expected.",
    ("Delete it and resume from an older checkpoint; the message names the file.",),
)
_KERNELS = Advice(
    "kernels not built",
    "The C++ kernels could not be built or loaded on this host.",
    ("python -m argosy.engine.kernels builds them and shows the compiler's errors.",),
)
_CONFIG = Advice(
    "invalid setting",
    "An argument or setting is not valid; the message says what is.",
    ("Change the line that is shown under `where`.",),
)
_SCRIPT = Advice(
    "exception in the script",
    "The script, or a library that it called, raised an exception.",
    (
        "The line under `where` is the innermost one of your code; the traceback has the rest.",
        "If other ranks did not fail at that step, their input differs: look at the batch of this rank.",
    ),
)
_UNKNOWN = Advice(
    "unknown cause",
    "The process ended without an exception that was recorded.",
    (
        "Read its last lines below; os._exit and sys.exit in the script or a library leave no trace.",
        "fleetrun --doctor checks the host.",
    ),
)

_RULES = (
    Rule(
        r"No space left on device.*shm|/dev/shm.*No space|/dev/shm is full|\bSIGBUS\b|Bus error", _SHM, True
    ),
    Rule(r"No space left on device|ENOSPC|Disk quota exceeded|disk .{0,30}is full", _DISK, True),
    Rule(
        r"\bMemoryError\b|out of memory|can't allocate memory|Cannot allocate memory|\bOOM\b|bad_alloc",
        _MEMORY,
        True,
    ),
    Rule(r"\bScheduleError\b|ranks have different programs", _DIFFERENT_PROGRAMS),
    Rule(r"\bdeadlock\b", _DEADLOCK),
    Rule(r"Address already in use|EADDRINUSE|port \d+ is (?:in use|taken)", _PORT, True),
    Rule(r"\bNanInfError\b|\bFloatingPointError\b|\bnan\b|\binfinity\b|not finite|non-finite", _NAN),
    Rule(r"\bModuleNotFoundError\b|\bImportError\b", _IMPORT),
    Rule(r"Too many open files|EMFILE", _FILES, True),
    Rule(r"fleet\.run_server", _SERVER),
    Rule(r"without error|exit code 0\b|left the job", _RAN_OUT),
    Rule(r"no heartbeat|is stopped", _UNRESPONSIVE),
    Rule(r"has not (?:joined|replied)|did not join|\bTimeoutError\b|\btimed out\b|\bFSTimeOut\b", _TIMEOUT),
    Rule(r"Connection refused|Name or service not known|getaddrinfo|No route to host", _REFUSED),
    Rule(
        r"lost the connection|lost its connections|Connection reset|Broken pipe|PeerLostError|ConnectionError",
        _CONNECTION,
    ),
    Rule(r"\bCorruptFileError\b|\bBadMessage\b", _CORRUPT),
    Rule(r"\bKernelError\b", _KERNELS),
    Rule(r"\bFileNotFoundError\b|No such file or directory|FSFileNotExistsError", _FILE),
    Rule(r"\bPermissionError\b|Permission denied", _PERMISSION),
    Rule(r"\bFeed(?:Type)?Error\b|\bDataError\b", _INPUT),
    Rule(r"\bSIGSEGV\b|\bSIGILL\b|\bSIGABRT\b|\bSIGFPE\b|Segmentation fault", _CRASH, True),
    Rule(r"\bSIGKILL\b|exit code 137|for lack of memory", _MEMORY),
    Rule(
        r"\bSIGTERM\b|\bSIGHUP\b|\bSIGINT\b|exit code 143|terminated from outside|KeyboardInterrupt",
        _TERMINATED,
    ),
    Rule(r"\bConfigError\b|\bUnknownNameError\b|\bArgumentTypeError\b|\bUnsupportedError\b", _CONFIG),
)


def advise(what: str, log: Sequence[str] = (), *, has_exception: bool) -> Advice:
    """The advice for a failure. `what`: the exception, how the process ended, hints; `log`: its last lines."""
    for rule in _RULES:
        if re.search(rule.pattern, what, re.IGNORECASE):
            return rule.advice
    if not has_exception:  # the log may have what a library printed before it exited
        text = "\n".join(log)
        for rule in _RULES:
            if rule.reads_log and re.search(rule.pattern, text, re.IGNORECASE):
                return rule.advice
    return _SCRIPT if has_exception else _UNKNOWN
