"""The script or module that a rank runs, checked before any process is started."""

# SPDX-License-Identifier: Apache-2.0
import os
import sys

from argosy.engine.errors import ConfigError, closest
from argosy.engine.launch.configuration import Configuration

_BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap.py")


def command(config: Configuration) -> list[str]:
    """The arguments of the bootstrap: the script or module with its arguments; raises if it does not exist."""
    if config.module:
        check_module(config.script)
    else:
        check_script(config.script)
    hook = ["--install", "argosy.paddle.hook"] if config.paddle else []
    module = ["-m"] if config.module else []
    return [*hook, *module, config.script, *config.script_args, *_report_options(config)]


def _report_options(config: Configuration) -> list[str]:
    """How the doctor prints its report: its output passes through a log file, so it cannot see the terminal."""
    if config.json:
        return ["--json"]
    if config.doctor and sys.stdout.isatty():
        return [f"--columns={os.get_terminal_size(sys.stdout.fileno()).columns}"]
    return []


def bootstrap_command(args: list[str], error_file: str) -> list[str]:
    """The command of a process that runs the bootstrap with these arguments, and writes this error file if it fails."""
    return [sys.executable, "-u", _BOOTSTRAP, os.path.abspath(error_file), str(os.getpid()), *args]


def check_script(script: str) -> None:
    """Raise unless the script is a readable file; suggests the most similar name in its directory."""
    if os.path.isdir(script):
        raise ConfigError(f"the script {script!r} is a directory; give a Python file in it")
    if not os.path.exists(script):
        raise ConfigError(f"no script {script!r} (in {os.getcwd()}); {_nearest_file(script)}")
    if not os.path.isfile(script):
        raise ConfigError(f"the script {script!r} is not a file; give a Python file")
    if not os.access(script, os.R_OK):
        raise ConfigError(f"the script {script!r} is not readable; try chmod +r")


def _nearest_file(script: str) -> str:
    folder, name = os.path.split(script)
    try:
        there = sorted(os.listdir(folder or "."))
    except OSError:
        return f"there is no directory {folder!r} either"
    if close := closest(name, there, at_most=1):
        return f"did you mean {os.path.join(folder, close[0])!r}?"
    scripts = [n for n in there if n.endswith(".py")]
    return f"Python files there: {', '.join(scripts[:8]) or 'none'}"


def check_module(name: str) -> None:
    """Raise unless `python -m name` could run; nothing is imported for the check."""
    from importlib.machinery import PathFinder
    from importlib.util import find_spec

    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"{name!r} is not a module name; write package.module, or leave out -m for a script"
        )
    first, *rest = name.split(".")
    # A rank's search path begins with the working directory; that of an installed command does not.
    spec = PathFinder.find_spec(first, [os.getcwd()]) or find_spec(first)
    path = first
    for part in rest:
        inside = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(f"{path}.{part}", inside) if inside else None
        path += f".{part}"
    if spec is None:
        raise ConfigError(f"no module {name!r} (searched {os.getcwd()} and sys.path); check its name")
    if spec.submodule_search_locations and not PathFinder.find_spec(
        f"{name}.__main__", spec.submodule_search_locations
    ):
        raise ConfigError(f"the package {name!r} has no __main__.py; give a module in it")
