"""One logger for all of Argosy, in the format of Paddle's launcher, on stderr.

WARNING 2026-01-04 17:59:08,725 executor.py:31] message
"""

# SPDX-License-Identifier: Apache-2.0
import logging
import sys

from argosy.engine import env

NOTICE = 25
"""Between info and warning: what a run tells by default without anything being wrong."""
_FORMAT = "%(levelname)s %(asctime)s %(filename)s:%(lineno)d] %(message)s"


def _make() -> logging.Logger:
    made = logging.getLogger("argosy")
    logging.addLevelName(NOTICE, "NOTICE")
    if not made.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(_FORMAT))
        made.addHandler(handler)
    made.setLevel(env.log_level())
    return made


logger = _make()
