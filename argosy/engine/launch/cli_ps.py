"""`python -m paddle.distributed.launch_ps` of 1.8: its options as those of fleetrun.

--worker_num=2 --server_num=2      the same, with these defaults
--endpoints=A:6170,B:6170          --servers
--start_port, --log_dir            the same
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
from collections.abc import Sequence
from typing import NoReturn

from argosy.engine.errors import ConfigError


class _LaunchPsParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"launch_ps: {message}; fleetrun has more options, see fleetrun --help")


def parser() -> argparse.ArgumentParser:
    """The options of 1.8, with its defaults."""
    p = _LaunchPsParser(
        prog="launch_ps",
        usage="launch_ps [options] script.py [arguments of the script]",
        description="Run a script on parameter servers and workers of this host; fleetrun has more options.",
        allow_abbrev=False,
    )
    p.add_argument("--worker_num", type=int, default=2, metavar="N", help="workers (default: 2)")
    p.add_argument(
        "--server_num", type=int, metavar="N", help="servers (default: 2, or those of --endpoints)"
    )
    p.add_argument("--endpoints", default="", metavar="HOST:PORT,…", help="the servers' endpoints")
    p.add_argument("--start_port", type=int, metavar="P", help="the first port (default: free ports)")
    p.add_argument("--log_dir", default="logs", metavar="DIR", help="default: logs")
    p.add_argument("--print_config", choices=("True", "False"), default="True", help="False: only warnings")
    for name in ("--cluster_node_ips", "--node_ip"):
        p.add_argument(name, default="127.0.0.1", metavar="A", help="must be one host, this one")
    p.add_argument("script", help="the training script")
    p.add_argument("args", nargs=argparse.REMAINDER, help="the script's arguments")
    return p


def fleetrun_arguments(argv: Sequence[str]) -> list[str]:
    """The arguments of fleetrun for those of launch_ps."""
    given = parser().parse_args(argv)
    if "," in given.cluster_node_ips or given.node_ip not in ("127.0.0.1", given.cluster_node_ips):
        raise ConfigError(
            f"--cluster_node_ips={given.cluster_node_ips} --node_ip={given.node_ip}: launch_ps starts the processes of "
            "one host; on each of several hosts run fleetrun --servers=host:port,… --workers=host,…"
        )
    servers = [f"--servers={given.endpoints}"] if given.endpoints else []
    if given.server_num is not None or not servers:
        servers.append(f"--server_num={given.server_num or 2}")
    ports = [] if given.start_port is None else [f"--start_port={given.start_port}"]
    options = [f"--worker_num={given.worker_num}", *ports, f"--log_dir={given.log_dir}"]
    return [*servers, *options, f"--print_config={given.print_config}", given.script, *given.args]
