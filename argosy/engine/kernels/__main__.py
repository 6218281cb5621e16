"""Build the kernels ahead of their first use: `python -m argosy.engine.kernels`.

With `--background` at the lowest priority, for a program that does not wait for them.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import sys

from argosy.engine.errors import KernelError
from argosy.engine.kernels.shared_library import built


def main() -> int:
    """Always returns 0: without a compiler programs run too, only unfused."""
    if "--background" in sys.argv[1:]:
        os.nice(19)
    try:
        print(f"kernels: {built()}")
    except (KernelError, OSError) as e:
        print(f"kernels: none, programs run unfused: {e}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
