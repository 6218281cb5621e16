"""Suggestions for misspelt names in error messages."""

# SPDX-License-Identifier: Apache-2.0
import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """' (did you mean …?)' for a name with a typo, else a short list of the known names."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return f" (did you mean {' or '.join(map(repr, close))}?)"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f" (there are: {shown})" if names else ""
