"""Suggestions for misspelt names in error messages."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable


def closest(name: str, known: Iterable[str], at_most: int = 3) -> list[str]:
    """The known names that resemble the name, the most similar first."""
    import difflib  # rarely needed, and fleetrun --help is fast without it

    return difflib.get_close_matches(name, list(known), n=at_most)


def nearest(name: str, known: Iterable[str], lists: bool = True) -> str:
    """' (did you mean …?)' for a name with a typo, else, if `lists`, a short list of the known names."""
    names = list(known)
    if close := closest(name, names):
        return f" (did you mean {' or '.join(map(repr, close))}?)"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f" (there are: {shown})" if names and lists else ""
