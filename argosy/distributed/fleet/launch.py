"""`python -m argosy.distributed.fleet.launch`, 2.0's other name of `argosy.distributed.launch`."""

# SPDX-License-Identifier: Apache-2.0
import sys

from argosy.distributed.launch import arguments_of_job
from argosy.engine.cluster import cli

if __name__ == "__main__":
    sys.exit(cli.main(arguments_of_job(sys.argv[1:])))
