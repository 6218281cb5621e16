"""`python -m argosy.distributed.launch` is `fleetrun`."""

# SPDX-License-Identifier: Apache-2.0
import sys

from argosy.engine.launch.cli import main

if __name__ == "__main__":
    sys.exit(main())
