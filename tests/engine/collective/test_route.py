"""Which address of this host another one would see."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.collective import route
from argosy.engine.errors import ConfigError


def test_the_way_to_the_loopback_leaves_from_the_loopback() -> None:
    assert route.local_address("127.0.0.1") == "127.0.0.1"
    assert route.local_address("localhost") in ("127.0.0.1", "::1")


def test_an_address_of_this_host_is_reached_from_itself() -> None:
    assert route.local_address("127.0.0.5") == "127.0.0.5" or route.is_loopback(
        route.local_address("127.0.0.5")
    )


def test_a_name_that_nobody_knows_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match="no route from this host to 'nowhere.invalid': .*; check the name"):
        route.local_address("nowhere.invalid")


@pytest.mark.parametrize(("address", "is_it"), [("127.0.0.1", True), ("127.9.8.7", True), ("::1", True)])
def test_loopback_addresses_are_known(address: str, is_it: bool) -> None:
    assert route.is_loopback(address) is is_it
    assert not route.is_loopback("10.77.0.1")


def test_only_addresses_of_this_host_are_its_own() -> None:
    assert route.is_own("127.0.0.1")
    assert not route.is_own("203.0.113.7")  # of the range for documentation
    assert not route.is_own("nowhere.invalid")
