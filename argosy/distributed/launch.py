"""`python -m argosy.distributed.launch` is `fleetrun`.

Under the import hook (`python -m argosy.paddle -m paddle.distributed.launch`) it is `fleetrun --paddle`: the scripts
that it starts import Argosy as paddle, too.
"""

# SPDX-License-Identifier: Apache-2.0
import sys

from argosy.engine.cluster import cli


def arguments_of_job(argv: list[str]) -> list[str]:
    """The arguments of fleetrun: under the import hook, with --paddle."""
    is_hooked = sys.modules.get("paddle") is sys.modules["argosy"]
    return ["--paddle", *argv] if is_hooked else argv


if __name__ == "__main__":
    sys.exit(cli.main(arguments_of_job(sys.argv[1:])))
