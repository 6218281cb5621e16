"""The only reader of environment variables; `docs/env.md` lists them."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from argosy.engine.errors import ConfigError

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})
TIMELINE_STEPS = "3-12"
"""The steps of a timeline unless others are asked for: the first two still compile and warm up."""


def flag(name: str, default: bool = False, environ: Mapping[str, str] | None = None) -> bool:
    """A yes-or-no variable; anything but a clear yes or no is an error."""
    text = (os.environ if environ is None else environ).get(name)
    if text is None:
        return default
    if text.strip().lower() in _TRUE:
        return True
    if text.strip().lower() in _FALSE:
        return False
    raise ConfigError(f"{name}={text!r} is neither yes nor no; use 1 or 0")


def text(name: str, default: str) -> str:
    """A variable as it stands, or the default."""
    return os.environ.get(name, default)


def cache_dir() -> Path:
    """Where data sets, kernels and choices lie: ARGOSY_CACHE, else XDG_CACHE_HOME/argosy, else ~/.cache/argosy."""
    if own := os.environ.get("ARGOSY_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "argosy"


def set_inductor_cache(default: str) -> None:
    """Let Inductor keep what it compiles in our cache, unless TORCHINDUCTOR_CACHE_DIR names a directory.

    Parts of torch write its `default` into the variable when they are loaded; that is nobody's choice.
    """
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR", default) == default:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_dir() / "inductor")


def log_level() -> str:
    """ARGOSY_LOG: debug, info, notice (the default), warning or error."""
    level = os.environ.get("ARGOSY_LOG", "notice").upper()
    if level not in ("DEBUG", "INFO", "NOTICE", "WARNING", "ERROR"):
        raise ConfigError(
            f"ARGOSY_LOG={level.lower()!r} is no level; use debug, info, notice, warning or error"
        )
    return level


@dataclass(frozen=True)
class Launched:
    """What the launcher of this process says about its place in the job."""

    launcher: str
    """fleetrun, torchrun, mpirun, srun, or none."""
    rank: int
    size: int
    local_rank: int | None
    """The rank among the processes of this host; None if the launcher does not tell."""
    local_size: int | None


# Who started us: the first row of which a variable is set. Each column lists the variables to try.
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
    """The whole environment, for those who read many variables of one launcher."""
    return os.environ


def launched(environ: Mapping[str, str] | None = None) -> Launched:
    """This process's place in the job: fleetrun's variables, else torchrun's, mpirun's, srun's, else alone."""
    source = os.environ if environ is None else environ
    for launcher, *columns in _LAUNCHERS:
        rank_name, size_name, local_rank_name, local_size_name = (_first_set(source, c) for c in columns)
        if not (rank_name or size_name) or _not_really(launcher, source):
            continue
        # A name that is not set still stands in the messages: the user has to know what is missing.
        names = (rank_name or columns[0][0], size_name or columns[1][0])
        rank, size = _rank_of_size(source, *names)
        if rank_name is None and size > 1 and not is_server(source):
            raise ConfigError(f"{size_name}={size} without {names[0]}; set both, or start with {launcher}")
        local_rank = None if local_rank_name is None else number(local_rank_name, source)
        local_size = None if local_size_name is None else number(local_size_name, source)
        return Launched(launcher, rank, size, local_rank, local_size)
    return Launched("none", 0, 1, 0, 1)


def _first_set(source: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in source), None)


def _not_really(launcher: str, source: Mapping[str, str]) -> bool:
    """Whether the variables are there although another one, or nobody, started this process."""
    in_step = "SLURM_STEP_ID" in source or "SLURM_STEPID" in source
    if launcher == "mpirun":  # srun with its PMI plugin sets PMI_RANK, but none of mpirun's own
        return in_step and "OMPI_COMM_WORLD_RANK" not in source and "MPI_LOCALRANKID" not in source
    # In a batch script outside of srun SLURM_NTASKS tells the size of the allocation, yet we are alone.
    return launcher == "srun" and not in_step


def is_server(source: Mapping[str, str]) -> bool:
    """Parameter servers know the number of trainers and are none of them."""
    return source.get("TRAINING_ROLE") in ("PSERVER", "HETER_TRAINER")


def _rank_of_size(source: Mapping[str, str], rank_name: str, size_name: str) -> tuple[int, int]:
    found = f"{rank_name}={source.get(rank_name)!r}, {size_name}={source.get(size_name)!r}"
    try:
        rank, size = int(source.get(rank_name, "0")), int(source.get(size_name, "1"))
    except ValueError as e:
        raise ConfigError(f"{found}: these are no numbers; unset them, or start with fleetrun") from e
    if not 0 <= rank < size:
        raise ConfigError(f"{found}: the rank must be 0 to size - 1; unset them, or start with fleetrun")
    return rank, size


def number(name: str, environ: Mapping[str, str] | None = None, default: int = 0) -> int:
    """A variable that holds a whole number from 0 on, or the default."""
    text = (os.environ if environ is None else environ).get(name)
    if text is None:
        return default
    if not text.strip().isdecimal():
        raise ConfigError(f"{name}={text!r} is no number; use 0 or more, or unset it")
    return int(text)


def step_range(text: str, name: str) -> tuple[int, int]:
    """3-12: the first and the last step of a timeline; 5: one step."""
    found = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last:
        raise ConfigError(f"{name}={text!r} are no steps; use the first and the last from 1 on, such as 3-12")
    return first, last


def timeline() -> tuple[Path, tuple[int, int]] | None:
    """ARGOSY_TIMELINE and ARGOSY_TIMELINE_STEPS: where to and of which steps; None: no timeline is asked for."""
    directory = os.environ.get("ARGOSY_TIMELINE")
    if not directory:
        return None
    steps = os.environ.get("ARGOSY_TIMELINE_STEPS", TIMELINE_STEPS)
    return Path(directory).absolute(), step_range(steps, "ARGOSY_TIMELINE_STEPS")


def rank_and_size(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """This process's rank and how many there are, by whichever launcher; 0 of 1 without one."""
    place = launched(environ)
    return place.rank, place.size


def reader_threads() -> int:
    """Threads that decode images: CPU_NUM (Paddle's), else one per usable core, at most 4."""
    number = os.environ.get("CPU_NUM")
    if number is None:
        return min(len(os.sched_getaffinity(0)), 4)
    if not number.isdecimal() or int(number) == 0:
        raise ConfigError(f"CPU_NUM={number!r} is no number of threads; use 1 or more, or unset it")
    return int(number)


def seconds(name: str, default: float) -> float:
    """A variable that holds a time in seconds, more than 0."""
    found = os.environ.get(name)
    if found is None:
        return default
    try:
        value = float(found)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"{name}={found!r} is no time in seconds; use a number above 0, or unset it")
    return value


def for_pipe_command(modules: str | None = None) -> dict[str, str]:
    """The environment of a data set's pipe_command: ours, and three things that scripts rely on.

    `python` is the one that runs this process. Unless PYTHONHASHSEED says otherwise, hash("text") is the same in all
    of them, else each file would have ids of its own. `modules` is a folder to import from first.
    """
    made = dict(os.environ)
    made["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), made.get("PATH", os.defpath)])
    made.setdefault("PYTHONHASHSEED", "0")
    if modules is not None:
        made["PYTHONPATH"] = os.pathsep.join(filter(None, [modules, made.get("PYTHONPATH")]))
    return made


def server_state() -> Path | None:
    """ARGOSY_SERVER_STATE: where parameter servers keep what must survive a kill; None: nowhere."""
    found = os.environ.get("ARGOSY_SERVER_STATE")
    return Path(found).absolute() if found else None


def dead_workers() -> Path | None:
    """ARGOSY_DEAD_WORKERS: a file in which the launcher names the workers that are dropped; None: there is none."""
    found = os.environ.get("ARGOSY_DEAD_WORKERS")
    return Path(found) if found else None


def drops_dead_workers() -> bool:
    """ARGOSY_DEAD_WORKER: "drop" lets the others go on without a worker that is dead, "end" (the default) does not."""
    found = os.environ.get("ARGOSY_DEAD_WORKER", "end")
    if found not in ("end", "drop"):
        raise ConfigError(f"ARGOSY_DEAD_WORKER={found!r} is no choice; use end or drop")
    return found == "drop"
