"""Sizes on the command line."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.cluster.sizes import mebibytes, whole_number
from argosy.engine.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"), [("512M", 512), ("16G", 16384), ("16GiB", 16384), ("16gb", 16384), ("1T", 1048576)]
)
def test_units_are_powers_of_1024(text: str, size: int) -> None:
    assert mebibytes(text, "memory") == size


@pytest.mark.parametrize("text", ["16", "G", "0G", "1.5G", "-1G", "16K", "16 apples"])
def test_what_is_no_size_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="--memory=.* is not a size; .* such as 16G"):
        mebibytes(text, "memory")


def test_whole_numbers_have_a_least_value() -> None:
    assert whole_number("4", "cpus") == 4
    assert whole_number("0", "retries", least=0) == 0
    for text in ("0", "-1", "2.5", "two"):
        with pytest.raises(ConfigError, match="--cpus=.*: use a whole number, 1 or more"):
            whole_number(text, "cpus")
