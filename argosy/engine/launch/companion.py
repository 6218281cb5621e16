"""`python -m argosy.engine.launch.companion LAUNCHER MODULE …`: run a module until it, or the launcher, ends."""

# SPDX-License-Identifier: Apache-2.0
import runpy
import sys

from argosy.engine.launch.guard import die_with

if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
