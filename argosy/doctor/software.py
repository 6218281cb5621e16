"""Python, Argosy, torch, the C++ compiler and Argosy's kernels."""

# SPDX-License-Identifier: Apache-2.0
import platform
import subprocess
import sys

from argosy.doctor.check import Check, guarded
from argosy.engine.errors import ConfigError, KernelError
from argosy.engine.version import VERSION, check_torch

_COMPILER_S = 10.0


def python() -> Check:
    """The interpreter of this rank."""
    return Check("python", "ok", f"{platform.python_version()} ({sys.executable})")


def argosy() -> Check:
    """The version of Argosy."""
    return Check("argosy", "ok", VERSION)


def torch() -> Check:
    """The version of torch, and the devices that it has."""
    import torch

    devices = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "CPU"
    figure = f"{torch.__version__}, {devices}"
    try:
        check_torch(torch.__version__)
    except ConfigError as e:
        return Check("torch", "failure", figure, str(e).partition("; ")[2])
    return Check("torch", "ok", figure)


def compiler() -> Check:
    """The C++ compiler that builds the kernels."""
    from argosy.engine.kernels import compiler as find

    try:
        words = find()
    except KernelError as e:
        problem, _, advice = str(e).partition("; ")
        return Check("compiler", "warning", problem, f"{advice}; without it nothing is fused")
    done = subprocess.run(
        [*words, "--version"], capture_output=True, text=True, check=False, timeout=_COMPILER_S
    )
    if done.returncode:
        text = (done.stderr or done.stdout).strip().splitlines()
        return Check(
            "compiler",
            "warning",
            f"{words[0]} --version ended with exit code {done.returncode}: {text[0] if text else ''}",
            "repair it, or set CXX to another compiler",
        )
    return Check("compiler", "ok", done.stdout.splitlines()[0])


def kernels() -> Check:
    """Argosy's kernels: built for this CPU, and loadable; not built here, which takes some 15 s."""
    from argosy.engine import env
    from argosy.engine.kernels import shared_library

    if not env.flag("ARGOSY_KERNELS", default=True):
        return Check("kernels", "warning", "off: ARGOSY_KERNELS=0", "unset it: programs run unfused")
    if not shared_library.library_path().exists():
        return Check(
            "kernels",
            "warning",
            "not built on this host yet",
            "python -m argosy.engine.kernels builds them; the first job would run unfused",
        )
    if (reason := shared_library.unavailable()) is not None:
        return Check(
            "kernels",
            "failure",
            reason,
            f"rm {shared_library.library_path()}, then python -m argosy.engine.kernels",
        )
    return Check("kernels", "ok", shared_library.library_path().name)


def check() -> list[Check]:
    """All checks of the software."""
    named = {"python": python, "argosy": argosy, "torch": torch, "compiler": compiler, "kernels": kernels}
    return [check for name, run in named.items() for check in guarded(name, run)]
