"""Who may see the page, and what the page may do.

On a loopback address: requests by the names of this host only, so that no page of another site reaches the server by
a name of its own (DNS rebinding). On any other address: a cookie, which the URL with the job token sets. In both
cases POST needs the page's origin and its CSRF token, and a page may load nothing from elsewhere.
"""

# SPDX-License-Identifier: Apache-2.0
import hashlib
import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
STANDALONE_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of a self-contained page, such as a timeline: its own scripts run, in an origin without cookies."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """True if only this host can connect to the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Access:
    """What a request must bring."""

    host: str
    """The address that the server listens on."""
    port: int
    token: str = ""
    """The job token; needed unless the address is a loopback one."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def needs_login(self) -> bool:
        return not is_loopback(self.host)

    @property
    def cookie_name(self) -> str:
        """With the port: cookies are shared by all ports of a host."""
        return f"argosy_dashboard_{self.port}"

    @property
    def session(self) -> str:
        """The value of the cookie: derived from the token, which a cookie should not reveal."""
        return hmac.new(self.token.encode(), b"argosy dashboard session", hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        """Compares in constant time."""
        return bool(self.token) and hmac.compare_digest(given.encode(), self.token.encode())

    def rejection(self, method: str, path: str, headers: Headers) -> Response | None:
        """Why a request is not answered, or None if it is."""
        host = headers.get("host", "")
        if not self.needs_login and _name(host) not in (*_LOOPBACK_NAMES, self.host):
            return _refused(
                421, f"host {host!r} is not a name of this server; open http://127.0.0.1:{self.port}/"
            )
        if self.needs_login and path != "/login" and not self._has_cookie(headers):
            return _refused(
                401, "not logged in: open the URL that fleetrun printed, http://HOST:PORT/login?token=…"
            )
        return None if method in ("GET", "HEAD") else self._post_rejection(method, host, headers)

    def _post_rejection(self, method: str, host: str, headers: Headers) -> Response | None:
        if method != "POST":
            return _refused(405, f"{method} is not allowed")
        origin = headers.get("origin", "")
        if (
            not host
            or urlsplit(origin).netloc != host
            or headers.get("sec-fetch-site", "same-origin") != "same-origin"
        ):
            return _refused(403, f"a request of another page: origin {origin!r}, host {host!r}")
        if not hmac.compare_digest(headers.get("x-csrf-token", "").encode(), self.csrf.encode()):
            return _refused(403, "the CSRF token is missing or out of date; reload the page")
        return None

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        morsel = cookies.get(self.cookie_name)
        return (
            bool(self.token)
            and morsel is not None
            and hmac.compare_digest(morsel.value.encode(), self.session.encode())
        )


def _name(host: str) -> str:
    """The host of a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _refused(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status)


@dataclass(frozen=True)
class Guard:
    """The outermost ASGI application: rejects requests, and adds headers to all answers."""

    app: ASGIApp
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no web sockets here

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Content-Security-Policy", PAGE_POLICY)
            await send(message)

        rejection = self.access.rejection(scope["method"], scope["path"], Headers(scope=scope))
        await (rejection or self.app)(scope, receive, send_with_headers)
