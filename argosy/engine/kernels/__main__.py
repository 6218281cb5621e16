"""Build the kernels ahead of their first use: `python -m argosy.engine.kernels`."""

# SPDX-License-Identifier: Apache-2.0
import sys

from argosy.engine.errors import KernelError
from argosy.engine.kernels.build import built


def main() -> int:
    """Always returns 0: without a compiler programs run too, only unfused."""
    try:
        print(f"kernels: {built()}")
    except (KernelError, OSError) as e:
        print(f"kernels: none, programs run unfused: {e}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
