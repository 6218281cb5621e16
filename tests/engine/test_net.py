"""Addresses of this host, and which one another host reaches."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine import net
from argosy.engine.errors import ConfigError


def test_the_route_to_the_loopback_starts_at_the_loopback() -> None:
    assert net.local_address("127.0.0.1") == "127.0.0.1"
    assert net.local_address("localhost") in ("127.0.0.1", "::1")


def test_an_address_of_this_host_is_reached_from_itself() -> None:
    assert net.local_address("127.0.0.5") == "127.0.0.5" or net.is_loopback(net.local_address("127.0.0.5"))


def test_an_unknown_name_is_an_error_that_contains_it() -> None:
    with pytest.raises(ConfigError, match="no route from this host to 'nowhere.invalid': .*; check the name"):
        net.local_address("nowhere.invalid")


@pytest.mark.parametrize(("address", "is_it"), [("127.0.0.1", True), ("127.9.8.7", True), ("::1", True)])
def test_loopback_addresses_are_recognised(address: str, is_it: bool) -> None:
    assert net.is_loopback(address) is is_it
    assert not net.is_loopback("10.77.0.1")


def test_only_addresses_of_this_host_are_local() -> None:
    assert net.is_local("127.0.0.1")
    assert not net.is_local("203.0.113.7")  # of the range for documentation
    assert not net.is_local("nowhere.invalid")
