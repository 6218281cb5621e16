"""`python -m argosy.distributed.launch_ps`: the launcher of 1.8 for parameter servers; fleetrun has more options."""

# SPDX-License-Identifier: Apache-2.0
import sys

from argosy.distributed.launch import arguments_of_job
from argosy.engine.errors import ConfigError
from argosy.engine.launch import cli, cli_ps


def main(argv: list[str]) -> int:
    """The exit code, as of fleetrun: 0, 1 if a process failed, 2 for invalid arguments."""
    try:
        arguments = cli_ps.fleetrun_arguments(argv)
    except ConfigError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    return cli.main(arguments_of_job(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
