"""Addresses of this host, and which one another host reaches."""

# SPDX-License-Identifier: Apache-2.0
import re
import socket

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


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:6170", "127.0.0.1", 6170),
        (" node-3.cluster:1 ", "node-3.cluster", 1),
        ("[::1]:65535", "::1", 65535),
        ("[fe80::1%eth0]:6170", "fe80::1%eth0", 6170),
    ],
)
def test_an_endpoint_is_parsed_and_written_the_same(text: str, host: str, port: int) -> None:
    endpoint = net.Endpoint.parse(text)
    assert endpoint == (host, port)
    assert str(endpoint) == text.strip()
    assert net.host_of(text) == host


@pytest.mark.parametrize(
    "text", ["", "a", "a:", ":1", "a:0", "a:65536", "a:b", "a:-1", "a:1.5", "[]:1", "a b:1", "a:²"]
)
def test_a_malformed_endpoint_is_rejected_with_where_it_came_from(text: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^--servers: {re.escape(repr(text))} is not an endpoint; use host:port"
    ):
        net.Endpoint.parse(text, "--servers")


@pytest.mark.parametrize("text", ["::1", "::1:6170", "fe80::1:6170"])
def test_an_ipv6_address_without_brackets_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write an IPv6 address in brackets, such as \[::1\]:6170"):
        net.Endpoint.parse(text)


def test_port_0_is_an_endpoint_only_where_the_system_chooses_the_port() -> None:
    assert net.Endpoint.parse("a:0", least_port=0) == ("a", 0)
    with pytest.raises(ConfigError, match="'a:0' is not an endpoint"):
        net.Endpoint.parse("a:0")


def test_a_list_of_endpoints_has_each_of_them_once() -> None:
    assert net.endpoint_list(" a:1, b:1,", "LIST") == ("a:1", "b:1")
    assert net.endpoint_list("", "LIST") == ()
    with pytest.raises(ConfigError, match="LIST has a:1 twice; give every process a separate port"):
        net.endpoint_list("a:1,b:1,a:1", "LIST")


def test_the_loopback_interface_has_an_address_of_each_family() -> None:
    assert net.address_of_interface("lo") == "127.0.0.1"
    assert net.address_of_interface("lo", socket.AF_INET) == "127.0.0.1"
    assert net.interface_of("127.0.0.1") == "lo"
    assert net.interface_of("203.0.113.7") is None
    if not net.is_local("::1"):
        pytest.skip("this host has no IPv6")
    assert net.address_of_interface("lo", socket.AF_INET6) == "::1"
    assert net.interface_of("::1") == "lo"


def test_every_listed_address_is_local_and_of_its_interface() -> None:
    for interface, address in net.interface_addresses():
        assert net.is_local(address)
        assert net.interface_of(address) == interface


def test_an_unknown_interface_is_an_error_that_lists_the_interfaces() -> None:
    with pytest.raises(
        ConfigError, match=r"--interface=eth99: this host has no such interface; .*lo 127\.0\.0\.1"
    ):
        net.address_of_interface("eth99")


def test_an_interface_without_an_address_of_the_family_is_an_error() -> None:
    bare = {name for _, name in socket.if_nameindex()} - {i for i, a in net.interface_addresses() if ":" in a}
    if not bare:
        pytest.skip("every interface of this host has a global IPv6 address")
    with pytest.raises(ConfigError, match="the interface has no IPv6 address; this host has"):
        net.address_of_interface(bare.pop(), socket.AF_INET6)
