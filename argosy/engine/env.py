"""The only reader of environment variables; `docs/env.md` lists them."""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Mapping
from pathlib import Path

from argosy.engine.errors import ConfigError

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


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
    """Where data sets lie: ARGOSY_CACHE, else XDG_CACHE_HOME/argosy, else ~/.cache/argosy."""
    if own := os.environ.get("ARGOSY_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "argosy"


def log_level() -> str:
    """ARGOSY_LOG: debug, info, warning (the default) or error."""
    level = os.environ.get("ARGOSY_LOG", "warning").upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise ConfigError(f"ARGOSY_LOG={level.lower()!r} is no level; use debug, info, warning or error")
    return level


def rank_and_size(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """This process's rank and how many there are.

    PADDLE_TRAINER_ID of PADDLE_TRAINERS_NUM (set by fleetrun), else RANK of WORLD_SIZE (set by
    torchrun), else 0 of 1.
    """
    source = os.environ if environ is None else environ
    for rank_name, size_name in (("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"), ("RANK", "WORLD_SIZE")):
        if rank_name not in source and size_name not in source:
            continue
        found = f"{rank_name}={source.get(rank_name)!r}, {size_name}={source.get(size_name)!r}"
        try:
            rank, size = int(source.get(rank_name, "0")), int(source.get(size_name, "1"))
        except ValueError as e:
            raise ConfigError(f"{found}: these are no numbers; unset them, or start with fleetrun") from e
        if not 0 <= rank < size:
            raise ConfigError(f"{found}: the rank must be 0 to size - 1; unset them, or start with fleetrun")
        return rank, size
    return 0, 1


def reader_threads() -> int:
    """Threads that decode images: CPU_NUM (Paddle's), else one per usable core, at most 4."""
    number = os.environ.get("CPU_NUM")
    if number is None:
        return min(len(os.sched_getaffinity(0)), 4)
    if not number.isdecimal() or int(number) == 0:
        raise ConfigError(f"CPU_NUM={number!r} is no number of threads; use 1 or more, or unset it")
    return int(number)
