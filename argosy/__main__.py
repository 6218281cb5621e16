"""`python -m argosy`: what is installed, and where to go from here."""

# SPDX-License-Identifier: Apache-2.0
import platform
from importlib.metadata import PackageNotFoundError, version

from argosy import __version__


def overview() -> str:
    """A few lines for the terminal."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "not installed"
    versions = f"torch {torch}, Python {platform.python_version()}"
    return f"""Argosy {__version__}: static-graph distributed training ({versions})

  import argosy as paddle               write a program with Paddle Fleet's static API
  fleetrun --nproc_per_node=2 train.py  train it on two ranks of this host (fleetrun --help)
  fleetrun --paddle train.py            run a script that says `import paddle`
  fleetrun status [DIR]                 a running or ended job; top: live; --dashboard: in the browser
  fleetrun --doctor                     check this host, or all hosts of a job, and the network
  python -m argosy.report DIR           a report of a job, or a comparison of two, as a page
  python -m argosy.timeline DIR         where the time of a step went (fleetrun --timeline DIR)
  python -m argosy.plan SCRIPT          choose the settings of a script for a cluster
  python -m argosy.plan simulate TRACE  predict the step of a recorded job on another cluster
  python -m argosy.engine.kernels       build the C++ kernels now instead of at their first use"""


def main() -> None:
    print(overview())


if __name__ == "__main__":
    main()
