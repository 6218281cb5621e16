"""Named clusters: `~/.config/argosy/clusters.toml` (or $ARGOSY_CLUSTERS).

[mycluster]                          # fleetrun --on mycluster
engine = "slurm"
partition = "cpu"                    # any option of the engine
python = "/shared/venv/bin/python"   # on the nodes; default: this one
setup = ["module load gcc"]          # shell lines before the launcher
[mycluster.environment]
OMP_NUM_THREADS = "4"
"""

# SPDX-License-Identifier: Apache-2.0
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from argosy.engine import env
from argosy.engine.cluster.engines import ENGINES
from argosy.engine.errors import ConfigError, nearest


@dataclass(frozen=True)
class Profile:
    """The defaults of a named cluster."""

    engine: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Options of the command line, by name; the command line overrides them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    python: str | None = None
    directory: str | None = None


def profile(name: str, options: tuple[str, ...]) -> Profile:
    """The cluster of this name in the file, else the engine of this name without defaults.

    `options`: the names that a profile may set.
    """
    path = profiles_file()
    clusters = _read(path)
    if name not in clusters:
        if name not in ENGINES:
            known = (*clusters, *ENGINES)
            raise ConfigError(
                f"--on={name} is neither an engine nor a cluster in {path}{nearest(name, known)}"
            )
        return Profile(name)
    table = clusters[name]
    where = f"[{name}] in {path}"
    if not isinstance(table, dict):
        raise ConfigError(f'{where} is no table; write [{name}] on a line of its own, then engine = "slurm"')
    engine = table.pop("engine", name)
    if engine not in ENGINES:
        raise ConfigError(f"{where}: engine = {engine!r}; use one of {', '.join(ENGINES)}")
    environment = _strings(table.pop("environment", {}), f"{where}: environment")
    setup = table.pop("setup", [])
    if not isinstance(setup, list) or not all(isinstance(line, str) for line in setup):
        raise ConfigError(f'{where}: setup must be a list of shell lines, such as ["module load gcc"]')
    python, directory = (_string(table.pop(key, None), f"{where}: {key}") for key in ("python", "directory"))
    settings = _strings(table, where)
    for key in settings:
        if key not in options:
            raise ConfigError(f"{where}: {key} is no option{nearest(key, options)}")
    return Profile(engine, settings, environment, tuple(setup), python, directory)


def profiles_file() -> Path:
    """$ARGOSY_CLUSTERS, else clusters.toml in the user's configuration directory."""
    if given := env.variables().get("ARGOSY_CLUSTERS"):
        return Path(given)
    folder = env.variables().get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "argosy" / "clusters.toml"


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(
            f"cannot read {path}: {e}; correct it, or set ARGOSY_CLUSTERS to another file"
        ) from e


def _string(value: object, where: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{where} = {value!r}; write a string")
    return value


def _strings(table: object, where: str) -> dict[str, str]:
    """The values of a table as the command line writes them: 4 is "4", ["a", "b"] is "a,b"."""
    if not isinstance(table, dict):
        raise ConfigError(f'{where} is no table; write NAME = "value" in it')
    texts = {}
    for name, value in table.items():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            texts[name] = ",".join(value)
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            texts[name] = str(value)
        else:
            raise ConfigError(f"{where}: {name} = {value!r}; write a string, a number or a list of strings")
    return texts
