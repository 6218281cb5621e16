"""Compile the sources into one shared library for this machine's CPU, cache it, and load it."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import torch

from argosy.engine import env
from argosy.engine.errors import KernelError
from argosy.engine.files import locked, replacement
from argosy.engine.log import NOTICE, logger

SOURCE = Path(__file__).parent / "source"
# No -ffast-math: NaNs must propagate, and linking with it would change the rounding mode of the whole process.
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fvisibility=hidden",
    "-fPIC",
)
_SANITIZER = ("-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer")
_TIMEOUT_S = 300


def flags() -> tuple[str, ...]:
    """The compiler flags; with ARGOSY_SANITIZE=1 for AddressSanitizer, which needs libasan preloaded."""
    return (*_FLAGS, *_SANITIZER) if env.flag("ARGOSY_SANITIZE") else _FLAGS


def compiler() -> list[str]:
    """The C++ compiler: the words of CXX, else g++, c++ or clang++; raises KernelError if there is none."""
    wanted = env.text("CXX", "")
    for name in [wanted] if wanted else ["g++", "c++", "clang++"]:
        words = shlex.split(name)
        if words and shutil.which(words[0]):
            return words
    tried = f"CXX={wanted}" if wanted else "g++, c++ and clang++"
    raise KernelError(f"there is no C++ compiler ({tried} not found); install g++, or set CXX")


def built() -> Path:
    """The path of the library, which is built if it does not exist; concurrent ranks wait for the first."""
    path = library_path()
    if path.exists():
        return path
    command = compiler()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise KernelError(
            f"{path.parent} cannot be created: {e.strerror}; set ARGOSY_CACHE to a writable directory"
        ) from e
    with locked(path.parent / "lock", waiting=_log_waiting):
        if not path.exists():
            _compile(command, path)
    return path


def _log_waiting() -> None:
    logger.log(NOTICE, "another process is building Argosy's kernels; waiting for it")


def library_path() -> Path:
    """The path of the library for these sources, flags and this CPU."""
    digest = hashlib.sha256("\n".join((*flags(), platform.machine(), _cpu())).encode())
    for source in sorted(SOURCE.iterdir()):
        digest.update(source.read_bytes())
    return env.cache_dir() / "kernels" / f"argosy-{digest.hexdigest()[:16]}.so"


def _compile(command: list[str], path: Path) -> None:
    """Compile each source, as many at a time as there are cores, and link them; logs the progress."""
    sources, began = sorted(SOURCE.glob("*.cpp")), time.monotonic()
    logger.log(NOTICE, "building Argosy's kernels with %s, once: %d files", command[0], len(sources))
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, replacement(path) as temporary:
        objects = [os.path.join(folder, f"{source.stem}.o") for source in sources]
        compiling = [*command, *flags(), "-c"]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            calls = [
                pool.submit(_checked_run, [*compiling, str(source), "-o", target])
                for source, target in zip(sources, objects, strict=True)
            ]
            try:
                for number, call in enumerate(as_completed(calls), start=1):
                    call.result()
                    seconds = time.monotonic() - began
                    logger.log(NOTICE, "kernels: %d of %d files, %.0f s", number, len(sources), seconds)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        _checked_run([*command, *flags(), "-shared", *objects, "-o", str(temporary)])


def _checked_run(command: list[str]) -> None:
    try:
        errors, status = _run(command)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise KernelError(
            f"{command[0]} could not compile Argosy's kernels: {e}; set CXX to another one"
        ) from e
    if status:
        raise KernelError(
            f"{command[0]} could not compile Argosy's kernels; set CXX to another compiler, or ARGOSY_KERNELS=0 to "
            f"do without:\n{errors[-2000:].strip()}"
        )


def _run(command: list[str]) -> tuple[str, int]:
    """The compiler's stderr and exit code; after a timeout its whole process group is killed."""
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        try:
            _, errors = process.communicate(timeout=_TIMEOUT_S)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return errors, process.returncode


def _cpu() -> str:
    """The CPU model and its features, which -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    first = {line.split(":", 1)[0].strip(): line for line in lines[:40] if ":" in line}
    return "\n".join(first.get(key, "") for key in ("model name", "flags", "Features"))


@functools.cache
def _loaded() -> ctypes.CDLL | str:
    """The library, or the reason why it is unavailable."""
    if not env.flag("ARGOSY_KERNELS", default=True):
        return "ARGOSY_KERNELS=0"
    torch.get_num_threads()  # load torch's OpenMP first, so that the library uses the same runtime
    try:
        return ctypes.CDLL(str(built()))
    except (KernelError, OSError) as e:
        logger.warning("Argosy's C++ kernels are unavailable: %s", e)
        return str(e).splitlines()[0]


def library() -> ctypes.CDLL:
    """The library; raises KernelError if it is unavailable."""
    loaded = _loaded()
    if isinstance(loaded, str):
        raise KernelError(f"Argosy's C++ kernels are unavailable: {loaded}")
    return loaded


def unavailable() -> str | None:
    """Why the library is unavailable; None if it is available."""
    loaded = _loaded()
    return loaded if isinstance(loaded, str) else None


# --- for default fusions, which must not delay the first step --------------------------------------------


def are_ready(waits: bool) -> bool:
    """True if default fusions may use the library. If it is not built yet, `waits` builds it now; otherwise a
    background process builds it for the next start, and this process runs unfused to its end."""
    if not env.flag("ARGOSY_KERNELS", default=True):
        return False
    return (waits or _was_built()) and unavailable() is None


@functools.cache
def _was_built() -> bool:
    """True if the library existed at the first call. One answer per process: all its programs round alike."""
    if library_path().exists():
        return True
    try:
        compiler()
    except KernelError as e:
        logger.info("default fusions are off: %s", e)
        return False
    _build_in_background()
    return False


_builders: list[subprocess.Popen[bytes]] = []
"""Referenced, because Python warns about the destruction of a Popen whose process still runs."""


def _build_in_background() -> None:
    logger.log(
        NOTICE,
        "building Argosy's kernels in the background, once; this process runs without fusions. "
        "`python -m argosy.engine.kernels` builds them ahead",
    )
    root = str(Path(__file__).parents[3])
    program = (
        f"import sys; sys.path.insert(0, {root!r}); from argosy.engine.kernels.__main__ import main; main()"
    )
    _builders.append(
        subprocess.Popen(
            [sys.executable, "-c", program, "--background"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    )
