"""Sizes of memory on the command line: 512M, 16G."""

# SPDX-License-Identifier: Apache-2.0
import re

from argosy.engine.errors import ConfigError

_MEBIBYTES = {"M": 1, "G": 1024, "T": 1024**2}


def mebibytes(text: str, option: str) -> int:
    """The number of MiB: units are powers of 1024, as in Slurm; `16G`, `16GB`, `16Gi` and `16GiB` are the same."""
    if not (size := re.fullmatch(r"([1-9]\d*)([MGT])(?:i?B?)", text.strip(), re.IGNORECASE)):
        raise ConfigError(f"--{option}={text} is not a size; write a whole number and M, G or T, such as 16G")
    return int(size[1]) * _MEBIBYTES[size[2].upper()]


def whole_number(text: str, option: str, least: int = 1) -> int:
    """The number; raises ConfigError for anything else."""
    if not text.strip().isdecimal() or int(text) < least:
        raise ConfigError(f"--{option}={text}: use a whole number, {least} or more")
    return int(text)
