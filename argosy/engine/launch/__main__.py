"""`python -m argosy.engine.launch`: the launcher of one node; what the engines of a cluster start."""

# SPDX-License-Identifier: Apache-2.0
import sys

from argosy.engine.launch.cli import main

if __name__ == "__main__":
    sys.exit(main())
