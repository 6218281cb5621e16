"""The entry point of every process of a job: runs the script as Python would, and writes an error file if it fails.

    python -u bootstrap.py ERROR_FILE LAUNCHER [--install MODULE] [-m] script.py arguments…

The error file is written as soon as an exception, or an exit code other than 0, leaves the script: before atexit
functions run, which may take long. failure_report.py reads it. LAUNCHER is the pid of the parent: the kernel kills this
process when the launcher dies. MODULE has a function `install` that is called before the script runs.

This file is run by its path and uses the standard library only, so that it works for any script. When imported,
it is the part of `python -m argosy.paddle` that runs scripts and modules.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import ctypes
import importlib
import json
import os
import runpy
import signal
import sys
import time
import traceback
import zipimport
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType

_PR_SET_PDEATHSIG = 1
_BOOTSTRAP_FILES = (
    __file__,
    "<frozen runpy>",
    "<frozen importlib._bootstrap>",
    "<frozen importlib._bootstrap_external>",
)
_LIBRARY_PATHS = ("site-packages", "dist-packages", "<frozen", "<string>", "<argosy", f"lib{os.sep}python")
_ARGOSY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_MAX_MESSAGE, _MAX_TRACEBACK = 4_000, 100_000


def main(argv: Sequence[str]) -> int:
    """Run the script or module of the command line; returns the exit code."""
    error_file, launcher, *args = argv
    _die_with(int(launcher))
    module, args = (args[1], args[2:]) if args[0] == "--install" else ("", args)
    run_script, pid = prepare(args), os.getpid()

    def run() -> None:
        if module:
            importlib.import_module(module).install()
        run_script()

    def record(error: BaseException) -> None:
        if os.getpid() == pid:  # the exit of a forked child is not that of the rank
            write(error_file, error)

    return reported(run, record)


def prepare(args: Sequence[str]) -> Callable[[], object]:
    """Set sys.argv and sys.path as Python does; returns a function that runs the script or module."""
    if args[0] == "-m":
        sys.argv = list(args[1:])
        _set_first_path(os.getcwd())
        return lambda: _run_module(args[1])
    sys.argv = list(args)
    _set_first_path(os.path.dirname(os.path.realpath(args[0])))
    return lambda: _run_script(os.path.abspath(args[0]))


def reported(run: Callable[[], object], record: Callable[[BaseException], None], *hidden: str) -> int:
    """Call `run`; record an exception, and print it without the frames of the bootstrap. Returns the exit code.

    SystemExit and KeyboardInterrupt are raised again, since they decide how the process exits. `hidden`: further
    files whose frames are not printed.
    """
    try:
        run()
    except (SystemExit, KeyboardInterrupt) as e:
        sys.last_value = e  # atexit functions read the exit code from it
        record(e)
        raise
    except BaseException as e:
        e.__traceback__ = _strip(e.__traceback__, (*_BOOTSTRAP_FILES, *hidden))
        sys.last_type, sys.last_value, sys.last_traceback = type(e), e, e.__traceback__
        record(e)
        sys.excepthook(type(e), e, e.__traceback__)
        return 1
    return 0


def write(path: str, error: BaseException) -> None:
    """Write the error file, atomically; nothing for an exit with code 0."""
    code = _exit_code(error)
    if code == 0:
        return
    kind, trace = type(error), _strip(error.__traceback__, _BOOTSTRAP_FILES)
    blamed = next((e for e in _chain(error) if getattr(e, "ranks", ())), None)
    fields = {
        "type": kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else _full_name(kind),
        "message": _text(error)[:_MAX_MESSAGE],
        "where": _where(error),
        "traceback": "".join(traceback.format_exception(kind, error, trace))[-_MAX_TRACEBACK:],
        "exit_code": code,
        "pid": os.getpid(),
        "time": time.time(),
        "step": _step(),
        "ranks": list(getattr(blamed, "ranks", ())),
        "state": getattr(blamed, "state", ""),
    }
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "w") as file:
            json.dump(fields, file)
        os.replace(temporary, path)
    except OSError as e:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        with contextlib.suppress(OSError):  # the log may be on the same disk
            print(f"cannot write the error file {path}: {e.strerror}", file=sys.stderr)


def _die_with(launcher: int) -> None:
    """Let the kernel kill this process when the launcher dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it died before the line above took effect
        os._exit(1)


def _set_first_path(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _run_script(path: str) -> None:
    """Run the file in a new `__main__`, which threads and atexit functions can use until the process exits."""
    if path.endswith(".pyc") or _is_zip(path):
        runpy.run_path(path, run_name="__main__")
        return
    loader = SourceFileLoader("__main__", path)
    code = loader.source_to_code(loader.get_data(path), path)
    script = ModuleType("__main__")
    script.__file__, script.__loader__ = path, loader
    sys.modules["__main__"] = script
    exec(code, vars(script))


def _is_zip(path: str) -> bool:
    try:
        zipimport.zipimporter(path)
    except zipimport.ZipImportError:
        return False
    return True


def _run_module(name: str) -> None:
    sys.modules["__main__"] = ModuleType("__main__")
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # what `python -m` calls


def _strip(trace: TracebackType | None, files: tuple[str, ...]) -> TracebackType | None:
    """The traceback without the outermost frames of these files; None for a syntax error of the script."""
    while trace is not None and trace.tb_frame.f_code.co_filename in files:
        trace = trace.tb_next
    return trace


def _exit_code(error: BaseException) -> int:
    """The exit code of Python for this exception; negative: a signal number."""
    if isinstance(error, KeyboardInterrupt):
        return -signal.SIGINT
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    return 1


def _where(error: BaseException) -> str:
    """The innermost line of the user's code."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in _BOOTSTRAP_FILES]
    users = [f for f in frames if not f.filename.startswith(_ARGOSY)]
    users = [f for f in users if not any(part in f.filename for part in _LIBRARY_PATHS)]
    return "".join(f"{f.filename}:{f.lineno}, in {f.name}" for f in (users or frames)[-1:])


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that led to it."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        yield current
        seen.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _step() -> int | None:
    """How many steps this rank has finished; None if it has not imported argosy.engine.collective."""
    world = getattr(sys.modules.get("argosy.engine.collective"), "world", None)
    return world().step if callable(world) else None


def _full_name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as e:
        return f"<its message cannot be printed: {type(e).__name__}>"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
