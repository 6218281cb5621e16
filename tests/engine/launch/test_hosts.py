"""Which host of --ips this is."""

# SPDX-License-Identifier: Apache-2.0
import socket

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.hosts import addresses, local_addresses


def test_alone_by_default() -> None:
    assert addresses(Configuration("t.py")) == (0, ("127.0.0.1",))


def test_this_host_is_found_by_its_address() -> None:
    mine = next((a for a in local_addresses() if not a.startswith("127.")), None)
    if mine is None:
        pytest.skip("this host has no address but loopback")
    assert addresses(Configuration("t.py", ips=("203.0.113.7", mine))) == (1, ("203.0.113.7", mine))


def test_loopback_is_among_the_local_addresses() -> None:
    assert "127.0.0.1" in local_addresses()


def test_a_host_that_is_not_listed_gets_its_addresses_in_the_error() -> None:
    with pytest.raises(
        ConfigError, match="--ips=203.0.113.7,203.0.113.8: this host is not among them.*127.0.0.1"
    ):
        addresses(Configuration("t.py", ips=("203.0.113.7", "203.0.113.8")))


def test_two_entries_for_this_host_need_the_host_option() -> None:
    ips = ("127.0.0.1", "127.0.0.2")
    with pytest.raises(ConfigError, match="several of them are this host .127.0.0.1, 127.0.0.2.*--host"):
        addresses(Configuration("t.py", ips=ips))
    assert addresses(Configuration("t.py", ips=ips, host="127.0.0.2")) == (1, ips)


def test_a_host_that_is_not_this_one_is_rejected() -> None:
    with pytest.raises(ConfigError, match="--host=203.0.113.7 is not an address of this host"):
        addresses(Configuration("t.py", ips=("203.0.113.7", "127.0.0.1"), host="203.0.113.7"))


def test_a_name_that_resolves_to_loopback_becomes_the_reachable_address() -> None:
    """As on Debian, where /etc/hosts maps a host's own name to 127.0.1.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("203.0.113.7", 9))
        except OSError:
            pytest.skip("this host has no route to anywhere")
        outside = s.getsockname()[0]
    assert addresses(Configuration("t.py", ips=("localhost", "203.0.113.7"))) == (0, (outside, "203.0.113.7"))


def test_the_same_host_twice_is_rejected() -> None:
    with pytest.raises(ConfigError, match="several of them are this host|under two names"):
        addresses(Configuration("t.py", ips=("localhost", "127.0.0.1")))


@pytest.mark.parametrize("name", ["no-such-host.invalid", "0.0.0.0", "::1"])
def test_an_invalid_address_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="--ips"):
        addresses(Configuration("t.py", ips=(name,)))
