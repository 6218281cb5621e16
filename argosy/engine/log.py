"""One logger for all of Argosy, in the format of Paddle's launcher, on stderr.

WARNING 2026-01-04 17:59:08,725 executor.py:31] message
"""

# SPDX-License-Identifier: Apache-2.0
import functools
import logging
import sys

from argosy.engine import env

NOTICE = 25
"""Between info and warning: logged by default, without indicating a problem."""
_FORMAT = "%(levelname)s %(asctime)s %(filename)s:%(lineno)d] %(message)s"


class _Formatter(logging.Formatter):
    """Knows the level NOTICE; `logging.addLevelName` would change it for the whole process."""

    def format(self, record: logging.LogRecord) -> str:
        if record.levelno == NOTICE:
            record.levelname = "NOTICE"
        return super().format(record)


def _create() -> logging.Logger:
    created = logging.getLogger("argosy")
    if not created.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Formatter(_FORMAT))
        created.addHandler(handler)
    level = env.log_level()
    created.setLevel(NOTICE if level == "NOTICE" else level)
    return created


logger = _create()


@functools.cache
def warn_unknown_variables() -> None:
    """Warn, once per process, about variables with the prefix ARGOSY_ that have no effect: misspelt or renamed ones."""
    for warning in env.unknown_variables():
        logger.warning("%s", warning)
