"""Which host of --ips this is."""

# SPDX-License-Identifier: Apache-2.0
import socket

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.hosts import (
    addresses,
    check_interface,
    collective_interface,
    describe_address,
    local_addresses,
    local_endpoints,
)
from argosy.engine.net import is_local, resolve


def test_alone_by_default() -> None:
    assert addresses(Configuration("t.py")) == (0, ("127.0.0.1",))


def test_this_host_is_found_by_its_address() -> None:
    mine = next((a for a in local_addresses() if not a.startswith("127.") and ":" not in a), None)
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


@pytest.mark.parametrize("name", ["no-such-host.invalid", "0.0.0.0", "::", "[::1", "2001:db8::7"])
def test_an_invalid_address_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="--ips"):
        addresses(Configuration("t.py", ips=(name,)))


needs_ipv6 = pytest.mark.skipif(not is_local("::1"), reason="this host has no IPv6")


@needs_ipv6
@pytest.mark.parametrize("written", ["::1", "[::1]"])
def test_an_ipv6_address_may_be_written_with_brackets(written: str) -> None:
    assert addresses(Configuration("t.py", ips=(written,))) == (0, ("::1",))
    assert addresses(Configuration("t.py", ips=("2001:db8::7", written))) == (1, ("2001:db8::7", "::1"))


@needs_ipv6
def test_a_name_is_resolved_in_the_family_of_the_addresses_beside_it() -> None:
    endpoints = ("[::1]:6174", "localhost:6175")
    try:
        assert resolve("localhost", socket.AF_INET6) == "::1"
    except OSError:  # /etc/hosts has it for IPv4 only
        with pytest.raises(ConfigError, match="'localhost' has no IPv6 address"):
            local_endpoints(endpoints, None)
    else:
        assert local_endpoints(endpoints, None) == (frozenset({"::1"}), ("[::1]:6174", "[::1]:6175"))


def test_addresses_of_two_families_are_rejected() -> None:
    with pytest.raises(ConfigError, match="127.0.0.1 is an IPv4 address and ::1 an IPv6 address; all hosts"):
        addresses(Configuration("t.py", ips=("127.0.0.1", "::1")))


def test_an_interface_is_for_jobs_of_several_hosts() -> None:
    config = Configuration("t.py", interface="lo")
    with pytest.raises(ConfigError, match="--interface=lo: the ranks of one host use shared memory"):
        collective_interface(config, ("127.0.0.1",), 0)
    with pytest.raises(ConfigError, match="--interface=lo: all servers and workers are on this host"):
        check_interface(config, frozenset({"127.0.0.1"}), is_several=False)
    assert collective_interface(config, ("127.0.0.1", "203.0.113.7"), 0) == "lo"
    assert collective_interface(Configuration("t.py"), ("127.0.0.1",), 0) is None
    with pytest.raises(ConfigError, match="--interface=eth99: this host has no such interface"):
        collective_interface(Configuration("t.py", interface="eth99"), ("127.0.0.1", "203.0.113.7"), 0)


def test_servers_and_workers_must_be_listed_with_the_address_of_the_interface() -> None:
    config = Configuration("t.py", interface="lo")
    check_interface(config, frozenset({"127.0.0.1"}), is_several=True)
    with pytest.raises(ConfigError, match=r"have 127\.0\.0\.9 .* for this host; write 127\.0\.0\.1 there"):
        check_interface(config, frozenset({"127.0.0.9"}), is_several=True)


def test_an_address_is_described_with_its_interface() -> None:
    assert describe_address("127.0.0.1") == "127.0.0.1 (interface lo)"
    assert describe_address("127.0.0.9") == "127.0.0.9 (interface unknown)"
