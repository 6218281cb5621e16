"""Run a script or a module as Python would, with `import paddle` loading Argosy.

python -m argosy.paddle script.py arguments…
python -m argosy.paddle -m module arguments…
"""

# SPDX-License-Identifier: Apache-2.0
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from argosy.engine.errors import ConfigError
from argosy.engine.launch.bootstrap import prepare, reported
from argosy.paddle.hook import install


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 if the script raised, 2 if there is no such script; `sys.exit` passes through."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__.strip() if __doc__ else "", file=sys.stderr if not arguments else sys.stdout)
        return 0 if arguments else 2
    try:
        _check_arguments(arguments)
        run = prepare(arguments)
        install()
        if arguments[0] == "-m":
            _check_module(arguments[1])  # after `install`: its package may import paddle
    except ConfigError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    return reported(run, lambda error: None, __file__)


def _check_arguments(arguments: list[str]) -> None:
    """Raise unless the arguments name a module, or a script that exists."""
    if arguments == ["-m"]:
        raise ConfigError("-m without a module; write python -m argosy.paddle -m module")
    if arguments[0] == "-m":
        return
    if arguments[0].startswith("-"):
        raise ConfigError(
            f"no option {arguments[0]!r}; write python -m argosy.paddle script.py, or -m module"
        )
    if not Path(arguments[0]).is_file():
        raise ConfigError(
            f"no script {arguments[0]!r} in {Path.cwd()}; give the path of a Python file, or -m module"
        )


def _check_module(name: str) -> None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as e:
        raise ConfigError(f"no module {name!r} ({e}); give one that is on sys.path") from e
    if spec is None:
        raise ConfigError(f"no module {name!r} in {sys.path[0]} or installed; give one that is on sys.path")


if __name__ == "__main__":
    sys.exit(main())
