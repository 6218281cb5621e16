"""The only reader of environment variables; `env_table.py` lists them."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from argosy.engine.env_table import GROUPS
from argosy.engine.errors import ConfigError, closest, nearest

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})
TIMELINE_STEPS = "3-12"
"""The default steps of a timeline: the first two still compile and warm up."""

_PREFIX = "ARGOSY_"
KNOWN = frozenset(
    name for group in GROUPS for v in group.variables for name in v.names if name.startswith(_PREFIX)
)
"""Every variable with the prefix ARGOSY_."""


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """A warning for each variable with the prefix ARGOSY_ that Argosy does not read.

    Empty in a process that fleetrun has started: fleetrun has warned already.
    """
    source = os.environ if environ is None else environ
    if source.get("TORCHELASTIC_RUN_ID") == "fleetrun" or "ARGOSY_RESTART" in source:
        return []
    unknown = sorted(name for name in source if name.startswith(_PREFIX) and name not in KNOWN)
    return [
        f"the environment variable {name} has no effect: Argosy does not read it{_similar(name)}; see "
        "docs/reference/environment.md"
        for name in unknown
    ]


def _similar(name: str) -> str:
    """The suggestion for a variable; the common prefix must not make all of them similar."""
    close = closest(name.removeprefix(_PREFIX), sorted(known.removeprefix(_PREFIX) for known in KNOWN))
    return nearest(name, [_PREFIX + word for word in close], lists=False)


def flag(name: str, default: bool = False, environ: Mapping[str, str] | None = None) -> bool:
    """A boolean variable; raises ConfigError for anything but yes or no."""
    text = (os.environ if environ is None else environ).get(name)
    if text is None:
        return default
    if text.strip().lower() in _TRUE:
        return True
    if text.strip().lower() in _FALSE:
        return False
    raise ConfigError(f"{name}={text!r} is not a boolean; use 1 or 0")


def text(name: str, default: str) -> str:
    """A variable as a string, or the default."""
    return os.environ.get(name, default)


def cache_dir() -> Path:
    """The cache folder: ARGOSY_CACHE, else XDG_CACHE_HOME/argosy, else ~/.cache/argosy."""
    if folder := os.environ.get("ARGOSY_CACHE"):
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "argosy"


def set_inductor_cache(default: str) -> Callable[[], None]:
    """Set Inductor's cache to a folder of our cache, unless the user has set TORCHINDUCTOR_CACHE_DIR.

    Parts of torch write its `default` into the variable on import; that does not count as set by the user. Returns a
    function that restores the variable.
    """
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    if before in (None, default):
        os.environ[name] = str(cache_dir() / "inductor")

    def restore() -> None:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before

    return restore


def set_variables(values: Mapping[str, str]) -> Callable[[], None]:
    """Set variables of this process and of its children; returns a function that restores them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    return restore


def log_level() -> str:
    """ARGOSY_LOG: debug, info, notice (the default), warning or error."""
    level = os.environ.get("ARGOSY_LOG", "notice").upper()
    if level not in ("DEBUG", "INFO", "NOTICE", "WARNING", "ERROR"):
        raise ConfigError(
            f"ARGOSY_LOG={level.lower()!r} is not a level; use debug, info, notice, warning or error"
        )
    return level


@dataclass(frozen=True)
class Launched:
    """Rank and size of this process, as its launcher has set them."""

    launcher: str
    """fleetrun, torchrun, mpirun, srun, or none."""
    rank: int
    size: int
    local_rank: int | None
    """The rank among the processes of this host; None if the launcher does not set it."""
    local_size: int | None


# The launcher is the first row of which a variable is set. Each column lists the variables to try.
_LAUNCHERS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "fleetrun",
        ("PADDLE_TRAINER_ID",),
        ("PADDLE_TRAINERS_NUM",),
        ("PADDLE_RANK_IN_NODE", "LOCAL_RANK"),
        ("LOCAL_WORLD_SIZE",),
    ),
    ("torchrun", ("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",)),
    (
        "mpirun",
        ("OMPI_COMM_WORLD_RANK", "PMI_RANK"),
        ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
    ),
    ("srun", ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",), ()),
)


def variables() -> Mapping[str, str]:
    """The whole environment, for code that reads many variables of one launcher."""
    return os.environ


def launched(environ: Mapping[str, str] | None = None) -> Launched:
    """Rank and size of this process: fleetrun's variables, else torchrun's, mpirun's, srun's, else rank 0 of 1."""
    source = _with_trainers_num(os.environ if environ is None else environ)
    for launcher, *columns in _LAUNCHERS:
        rank_name, size_name, local_rank_name, local_size_name = (_first_set(source, c) for c in columns)
        if not (rank_name or size_name) or _is_inherited(launcher, source):
            continue
        # A variable that is not set is named in the messages, so that the user knows what is missing.
        names = (rank_name or columns[0][0], size_name or columns[1][0])
        rank, size = _rank_of_size(source, *names)
        if rank_name is None and size > 1 and not is_server(source):
            raise ConfigError(f"{size_name}={size} without {names[0]}; set both, or start with {launcher}")
        local_rank = None if local_rank_name is None else number(local_rank_name, source)
        local_size = None if local_size_name is None else number(local_size_name, source)
        return Launched(launcher, rank, size, local_rank, local_size)
    return Launched("none", 0, 1, 0, 1)


def _with_trainers_num(source: Mapping[str, str]) -> Mapping[str, str]:
    """The variables with PADDLE_TRAINERS_NUM, which is the number of PADDLE_TRAINER_ENDPOINTS if it is not set."""
    num = trainers_num(source)
    return source if num is None else {**source, "PADDLE_TRAINERS_NUM": num}


def trainers_num(source: Mapping[str, str]) -> str | None:
    """PADDLE_TRAINERS_NUM, else the number of PADDLE_TRAINER_ENDPOINTS, else None; as text, not checked."""
    endpoints = [e for e in source.get("PADDLE_TRAINER_ENDPOINTS", "").split(",") if e.strip()]
    return source.get("PADDLE_TRAINERS_NUM", str(len(endpoints)) if endpoints else None)


def _first_set(source: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in source), None)


def _is_inherited(launcher: str, source: Mapping[str, str]) -> bool:
    """Whether the variables are set although this launcher did not start this process."""
    in_step = "SLURM_STEP_ID" in source or "SLURM_STEPID" in source
    if launcher == "mpirun":  # srun with its PMI plugin sets PMI_RANK, but none of mpirun's variables
        return in_step and "OMPI_COMM_WORLD_RANK" not in source and "MPI_LOCALRANKID" not in source
    # In a batch script outside of srun SLURM_NTASKS is the size of the allocation, yet there is one process.
    return launcher == "srun" and not in_step


def is_server(source: Mapping[str, str]) -> bool:
    """True for a parameter server, which has the number of trainers in its environment but is not one of them."""
    return source.get("TRAINING_ROLE") in ("PSERVER", "HETER_TRAINER")


def _rank_of_size(source: Mapping[str, str], rank_name: str, size_name: str) -> tuple[int, int]:
    values = f"{rank_name}={source.get(rank_name)!r}, {size_name}={source.get(size_name)!r}"
    try:
        rank, size = int(source.get(rank_name, "0")), int(source.get(size_name, "1"))
    except ValueError as e:
        raise ConfigError(f"{values}: these are not numbers; unset them, or start with fleetrun") from e
    if not 0 <= rank < size:
        raise ConfigError(f"{values}: the rank must be 0 to size - 1; unset them, or start with fleetrun")
    return rank, size


def number(name: str, environ: Mapping[str, str] | None = None, default: int = 0) -> int:
    """A non-negative integer variable, or the default."""
    text = (os.environ if environ is None else environ).get(name)
    if text is None:
        return default
    if not text.strip().isdecimal():
        raise ConfigError(f"{name}={text!r} is not a number; use 0 or more, or unset it")
    return int(text)


def step_range(text: str, name: str) -> tuple[int, int]:
    """Parse the steps of a timeline, 3-12: the first and the last step; 5: one step."""
    match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise ConfigError(
            f"{name}={text!r} are not steps; use the first and the last from 1 on, such as 3-12"
        )
    return first, last


def timeline() -> tuple[Path, tuple[int, int]] | None:
    """ARGOSY_TIMELINE and ARGOSY_TIMELINE_STEPS: the directory and the steps; None: no timeline."""
    directory = os.environ.get("ARGOSY_TIMELINE")
    if not directory:
        return None
    steps = os.environ.get("ARGOSY_TIMELINE_STEPS", TIMELINE_STEPS)
    return Path(directory).absolute(), step_range(steps, "ARGOSY_TIMELINE_STEPS")


def rank_and_size(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Rank and world size of this process, as set by any launcher; 0 and 1 without one."""
    process = launched(environ)
    return process.rank, process.size


def reader_threads() -> int:
    """Threads that decode images: CPU_NUM (Paddle's), else one per usable core, at most 4."""
    number = os.environ.get("CPU_NUM")
    if number is None:
        return min(len(os.sched_getaffinity(0)), 4)
    if not number.isdecimal() or int(number) == 0:
        raise ConfigError(f"CPU_NUM={number!r} is not a number of threads; use 1 or more, or unset it")
    return int(number)


def seconds(name: str, default: float) -> float:
    """A variable with a time in seconds, more than 0."""
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"{name}={text!r} is not a time in seconds; use a number above 0, or unset it")
    return value


def for_pipe_command(modules: str | None = None) -> dict[str, str]:
    """The environment of a data set's pipe_command: that of this process, with three changes.

    `python` is the one that runs this process. Unless PYTHONHASHSEED is set, hash("text") is the same in all
    readers, else each file would have different ids. `modules` is a folder to import from first.
    """
    variables = dict(os.environ)
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables.get("PATH", os.defpath)])
    variables.setdefault("PYTHONHASHSEED", "0")
    if modules is not None:
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [modules, variables.get("PYTHONPATH")]))
    return variables


def server_state() -> Path | None:
    """ARGOSY_SERVER_STATE: the directory in which parameter servers persist their state; None: they do not."""
    folder = os.environ.get("ARGOSY_SERVER_STATE")
    return Path(folder).absolute() if folder else None


def metrics_dir() -> Path | None:
    """ARGOSY_METRICS_DIR: the log directory of the job, in which processes write records; None: they do not."""
    folder = os.environ.get("ARGOSY_METRICS_DIR")
    return Path(folder).absolute() if folder and flag("ARGOSY_METRICS", default=True) else None


def restart() -> int:
    """How often fleetrun has restarted this process: ARGOSY_RESTART of servers and workers, else torchrun's name."""
    name = "ARGOSY_RESTART" if "ARGOSY_RESTART" in os.environ else "TORCHELASTIC_RESTART_COUNT"
    return number(name)


def is_worker() -> bool:
    """True for a worker of a job with parameter servers."""
    return os.environ.get("TRAINING_ROLE") == "TRAINER" and "PADDLE_PSERVERS_IP_PORT_LIST" in os.environ


def dead_workers() -> Path | None:
    """ARGOSY_DEAD_WORKERS: a file in which the launcher lists dropped workers; None: there is none."""
    path = os.environ.get("ARGOSY_DEAD_WORKERS")
    return Path(path) if path else None


def requeue_code() -> int | None:
    """ARGOSY_REQUEUE_CODE: the exit code after a preemption; None: SIGTERM terminates this process."""
    code = number("ARGOSY_REQUEUE_CODE")
    if code > 255:
        raise ConfigError(f"ARGOSY_REQUEUE_CODE={code} is not an exit code; use 1 to 255, or unset it")
    return code or None


def drops_dead_workers() -> bool:
    """ARGOSY_DEAD_WORKER: with "drop" the job continues without a dead worker, with "end" (the default) it ends."""
    action = os.environ.get("ARGOSY_DEAD_WORKER", "end")
    if action not in ("end", "drop"):
        raise ConfigError(f"ARGOSY_DEAD_WORKER={action!r} is invalid; use end or drop")
    return action == "drop"
