"""Which requests are rejected: the rules of Access, without a server."""

# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest
from starlette.datastructures import Headers

from argosy.dashboard.security import Access, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_addresses(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example", "localhost.example", ""])
def test_other_addresses(host: str) -> None:
    assert not is_loopback(host)


def test_without_a_token_nobody_gets_in_from_elsewhere() -> None:
    access = Access("0.0.0.0", 8640)
    cookie = Headers({"host": "a", "cookie": f"{access.cookie_name}={access.session}"})
    assert access.rejection("GET", "/", cookie) is not None
    assert not access.is_token("")


def test_the_cookie_belongs_to_the_token_and_the_port() -> None:
    access, other = Access("0.0.0.0", 8640, "a" * 32), Access("0.0.0.0", 8640, "b" * 32)
    headers = Headers({"host": "a", "cookie": f"{access.cookie_name}={access.session}"})
    assert access.rejection("GET", "/", headers) is None
    assert other.rejection("GET", "/", headers) is not None
    assert Access("0.0.0.0", 8641, "a" * 32).rejection("GET", "/", headers) is not None


def test_the_server_does_not_import_torch() -> None:
    check = "import sys, argosy.dashboard.app; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
