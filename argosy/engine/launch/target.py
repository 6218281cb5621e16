"""What a rank runs: the script or module, checked before anything is started."""

# SPDX-License-Identifier: Apache-2.0
import os
import sys

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration


def command(config: Configuration) -> list[str]:
    """The words that start one rank; raises if there is no such script or module."""
    if config.module:
        check_module(config.script)
    else:
        check_script(config.script)
    hook = ["-m", "argosy.paddle"] if config.paddle else []
    module = ["-m"] if config.module else []
    return [sys.executable, "-u", *hook, *module, config.script, *config.script_args]


def check_script(script: str) -> None:
    """Raise unless the script is a readable file; the nearest name in its directory is suggested."""
    if os.path.isdir(script):
        raise ConfigError(f"the script {script!r} is a directory; name the Python file in it")
    if not os.path.exists(script):
        raise ConfigError(f"no script {script!r} (in {os.getcwd()}); {_nearest_file(script)}")
    if not os.path.isfile(script):
        raise ConfigError(f"the script {script!r} is not a file; name a Python file")
    if not os.access(script, os.R_OK):
        raise ConfigError(f"the script {script!r} may not be read; try chmod +r")


def _nearest_file(script: str) -> str:
    import difflib

    folder, name = os.path.split(script)
    try:
        there = sorted(os.listdir(folder or "."))
    except OSError:
        return f"there is no directory {folder!r} either"
    if close := difflib.get_close_matches(name, there, n=1):
        return f"did you mean {os.path.join(folder, close[0])!r}?"
    scripts = [n for n in there if n.endswith(".py")]
    return f"Python files there: {', '.join(scripts[:8]) or 'none'}"


def check_module(name: str) -> None:
    """Raise unless `python -m name` would find something to run; nothing is imported for that."""
    from importlib.machinery import PathFinder
    from importlib.util import find_spec

    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"{name!r} is no module name; write package.module, or leave out -m for a script")
    first, *rest = name.split(".")
    # A rank's search path begins with the working directory; that of an installed command does not.
    spec = PathFinder.find_spec(first, [os.getcwd()]) or find_spec(first)
    found = first
    for part in rest:
        inside = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(f"{found}.{part}", inside) if inside else None
        found += f".{part}"
    if spec is None:
        raise ConfigError(f"no module {name!r} (searched {os.getcwd()} and sys.path); check its name")
    if spec.submodule_search_locations and not PathFinder.find_spec(
        f"{name}.__main__", spec.submodule_search_locations
    ):
        raise ConfigError(f"the package {name!r} has no __main__.py; name a module in it")
