"""Compile the sources into one library, for this very machine, and keep it."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from argosy.engine import env
from argosy.engine.errors import KernelError
from argosy.engine.log import NOTICE, logger

SOURCE = Path(__file__).parent / "source"
# No -ffast-math: a NaN must stay one, and linking with it would change how the whole process rounds.
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
    "-shared",
)
_TIMEOUT_S = 300


def compiler() -> list[str]:
    """The C++ compiler: the words of CXX, else g++, c++ or clang++; KernelError if there is none."""
    wanted = env.text("CXX", "")
    for name in [wanted] if wanted else ["g++", "c++", "clang++"]:
        words = shlex.split(name)
        if words and shutil.which(words[0]):
            return words
    tried = f"CXX={wanted}" if wanted else "g++, c++ and clang++"
    raise KernelError(f"there is no C++ compiler ({tried} not found); install g++, or set CXX")


def built() -> Path:
    """The library, built now if it is not there yet; ranks that come at once wait for the first."""
    path = library_path()
    if path.exists():
        return path
    command = compiler()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise KernelError(
            f"{path.parent} cannot be made: {e.strerror}; set ARGOSY_CACHE to a folder that you may write to"
        ) from e
    with (path.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _compile(command, path)
    return path


def library_path() -> Path:
    """Where the library of these sources lies: another CPU, another source, another file."""
    digest = hashlib.sha256("\n".join((*_FLAGS, platform.machine(), _cpu())).encode())
    for source in sorted(SOURCE.iterdir()):
        digest.update(source.read_bytes())
    return env.cache_dir() / "kernels" / f"argosy-{digest.hexdigest()[:16]}.so"


def _compile(command: list[str], path: Path) -> None:
    logger.log(NOTICE, "building Argosy's kernels with %s, once; some 15 seconds", command[0])
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        sources = [str(source) for source in sorted(SOURCE.glob("*.cpp"))]
        try:
            said, status = _run([*command, *_FLAGS, *sources, "-o", str(made)])
        except (OSError, subprocess.TimeoutExpired) as e:
            raise KernelError(
                f"{command[0]} could not compile Argosy's kernels: {e}; set CXX to another one"
            ) from e
        if status:
            raise KernelError(
                f"{command[0]} could not compile Argosy's kernels; set CXX to another compiler, or ARGOSY_KERNELS=0 to "
                f"do without:\n{said[-2000:].strip()}"
            )
        os.replace(made, path)


def _run(command: list[str]) -> tuple[str, int]:
    """What a compiler says and its exit code; if it takes too long, it and what it has started are ended."""
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        try:
            _, said = process.communicate(timeout=_TIMEOUT_S)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return said, process.returncode


def _cpu() -> str:
    """What -march=native means here."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    first = {line.split(":", 1)[0].strip(): line for line in lines[:40] if ":" in line}
    return "\n".join(first.get(key, "") for key in ("model name", "flags", "Features"))
