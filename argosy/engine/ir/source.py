"""The source line of the user's script that a node was recorded at."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import sys
from dataclasses import dataclass

import torch

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_SKIPPED = (_OURS, _TORCH, contextlib.__file__, "<")


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's code: `train.py:41 in train_resnet`."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        where = "" if self.function == "<module>" else f" in {self.function}"
        return f"{os.path.basename(self.file)}:{self.line}{where}"


def user_line() -> SourceLine | None:
    """The innermost frame that is neither Argosy's nor torch's; None in an interactive shell."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    if frame is None:
        return None
    return SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
