"""Run a script or a module as Python would, with `import paddle` giving Argosy.

python -m argosy.paddle script.py arguments…
python -m argosy.paddle -m module arguments…
"""

# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from argosy.engine.errors import ConfigError
from argosy.paddle.hook import install

_OURS = (
    __file__,
    "<frozen runpy>",
    "<frozen importlib._bootstrap>",
    "<frozen importlib._bootstrap_external>",
)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 if the script raised, 2 if there is no such script; `sys.exit` passes through."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(__doc__.strip() if __doc__ else "", file=sys.stderr if not words else sys.stdout)
        return 0 if words else 2
    try:
        run = _prepare_module(words[1:]) if words[0] == "-m" else _prepare_script(words)
    except ConfigError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    return _reported(run)


def _prepare_script(words: list[str]) -> Callable[[], object]:
    """Set sys.argv, sys.path and the hook; returns what runs the script."""
    path = words[0]
    if path.startswith("-"):
        raise ConfigError(f"no option {path!r}; write python -m argosy.paddle script.py, or -m module")
    if not Path(path).is_file():
        raise ConfigError(f"no script {path!r} in {Path.cwd()}; give the path of a Python file, or -m module")
    sys.argv = words
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    install()
    return lambda: _run_script(path)


def _prepare_module(words: list[str]) -> Callable[[], object]:
    """Set sys.argv and the hook; returns what runs the module."""
    if not words:
        raise ConfigError("-m without a module; write python -m argosy.paddle -m module")
    sys.argv = words
    install()
    try:
        found = importlib.util.find_spec(words[0])
    except ModuleNotFoundError as e:
        raise ConfigError(f"no module {words[0]!r} ({e}); give one that is on sys.path") from e
    if found is None:
        raise ConfigError(
            f"no module {words[0]!r} in {sys.path[0]} or installed; give one that is on sys.path"
        )
    return lambda: runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def _run_script(path: str) -> None:
    """Run the file in a fresh `__main__` that stays until the end, as threads and exit functions want it."""
    loader = SourceFileLoader("__main__", path)
    code = loader.source_to_code(loader.get_data(path), path)
    script = ModuleType("__main__")
    script.__file__, script.__loader__ = path, loader
    sys.modules["__main__"] = script
    exec(code, vars(script))


def _reported(run: Callable[[], object]) -> int:
    """Run it; an exception is shown as if there were nothing between Python and the script."""
    try:
        run()
    except Exception as e:
        e.__traceback__ = _below_here(e.__traceback__)
        sys.excepthook(type(e), e, e.__traceback__)
        return 1
    return 0


def _below_here(trace: TracebackType | None) -> TracebackType | None:
    """The part of the traceback that belongs to the user; nothing of it for a syntax error."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _OURS:
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    sys.exit(main())
