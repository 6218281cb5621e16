"""The launcher's own lines: the format of Argosy's log, but always from INFO on, and kept in fleetrun.log."""

# SPDX-License-Identifier: Apache-2.0
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from argosy.engine import log

logger = log.logger.getChild("launch")
logger.setLevel(logging.INFO)  # Paddle's launcher always shows these, whatever ARGOSY_LOG is


@contextmanager
def kept_in(path: str) -> Iterator[None]:
    """Write the launcher's lines to this file, too."""
    handler = logging.FileHandler(path)
    handler.setFormatter(log.logger.handlers[0].formatter)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def out(text: str) -> None:
    """A line on stdout; nobody may be reading it any more (`fleetrun … | head -3`)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)


def block(text: str, path: str) -> None:
    """Several lines without the log's prefix, on stderr and in the launcher's file."""
    print(text, file=sys.stderr, flush=True)
    with open(path, "a") as f:
        f.write(text + "\n")
