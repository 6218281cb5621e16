"""`python -m argosy.dashboard [DIR]`: serve a page that shows the job in a log directory."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import importlib.util
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from argosy.engine import env
from argosy.engine.errors import ConfigError

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8640
INSTALL = "pip install 'argosy[dashboard]'"


def parser() -> argparse.ArgumentParser:
    """The arguments of `python -m argosy.dashboard`."""
    p = argparse.ArgumentParser(prog="python -m argosy.dashboard", description=__doc__)
    p.add_argument(
        "directory", metavar="DIR", nargs="?", default="log", help="the log directory of a job (default: log)"
    )
    p.add_argument(
        "--port",
        type=int,
        help=f"the port (default: {DEFAULT_PORT}, or a free one if it is taken; 0: a free one)",
    )
    p.add_argument(
        "--host",
        default=LOOPBACK,
        help="the address to listen on (default: %(default)s). Any other than a loopback address needs "
        "ARGOSY_JOB_TOKEN, and visitors need the URL with that token",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C. Exit codes: 0, or 2 if it cannot start."""
    known = parser().parse_args(argv)
    try:
        return serve(Path(known.directory), known.host, known.port)
    except ConfigError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2


def serve(directory: Path, host: str = LOOPBACK, port: int | None = None) -> int:
    """Serve the page of a job directory until the process is terminated; raises ConfigError if it cannot start."""
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"the dashboard needs {' and '.join(missing)}: {INSTALL}")
    from argosy.dashboard.app import create_app
    from argosy.dashboard.live_job import LiveJob
    from argosy.dashboard.security import Access

    if not directory.is_dir():
        raise ConfigError(
            f"{directory} is not a directory; give the log directory of a job (fleetrun --log_dir, default: log)"
        )
    with listen(host, port) as listener:
        access = Access(host, listener.getsockname()[1], env.text("ARGOSY_JOB_TOKEN", ""))
        if access.needs_login and not access.token:
            raise ConfigError(
                f"--host {host} is not a loopback address, and ARGOSY_JOB_TOKEN is not set: without it everyone in "
                "the network could read the logs. Set it, or leave out --host and use ssh -L"
            )
        print(f"dashboard: {url(access.host, access.port, access.needs_login)}", flush=True)
        return _run(create_app(LiveJob(directory), access), listener)


def _run(app: object, listener: socket.socket) -> int:
    import uvicorn

    # Open event streams would keep the server alive after SIGTERM: they get a second.
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]  # an ASGI application
        log_level="warning",
        access_log=False,  # it would have the token of /login
        timeout_graceful_shutdown=1,
        lifespan="on",
        server_header=False,
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def listen(host: str, port: int | None) -> socket.socket:
    """A listening socket; raises ConfigError. Without a port: the default one, or a free one if it is taken."""
    for candidate in [DEFAULT_PORT, 0] if port is None else [port]:
        try:
            family = socket.getaddrinfo(host, candidate, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, candidate), family=family)
        except (OSError, OverflowError) as e:
            error = e
    raise ConfigError(
        f"cannot listen on {host} port {port}: {error}; give another --port, or 0 for a free one"
    ) from error


def url(host: str, port: int, needs_login: bool) -> str:
    """What a visitor opens; the token itself is not printed."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}/" + ("login?token=$ARGOSY_JOB_TOKEN" if needs_login else "")


if __name__ == "__main__":
    sys.exit(main())
