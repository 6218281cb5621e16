"""Only who has the job's token gets a connection: PLAIN with a digest of it, or CURVE with keys made of it.

ZeroMQ asks a ZAP handler (RFC 27) about each connection. The listener answers for itself, in its own loop.
With CURVE the server's key pair comes from the token: who lacks it does not know the server's public key, and no
handshake succeeds. PLAIN keeps strangers out, not listeners: it is for networks that are trusted.
"""

# SPDX-License-Identifier: Apache-2.0
import hmac
from hashlib import blake2b
from typing import Any

import zmq
from zmq.utils import z85

from argosy.engine.ps.rpc.settings import Settings

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_DOMAIN = b"argosy"


def guard_server(socket: "zmq.Socket[Any]", settings: Settings) -> None:
    """Let this socket accept only those with the token; somebody must answer its ZAP requests."""
    socket.zap_domain = _DOMAIN
    if settings.encrypt:
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = _server_keys(settings.token)
    else:
        socket.plain_server = True


def guard_client(socket: "zmq.Socket[Any]", settings: Settings) -> None:
    """Let this socket show that it has the token."""
    if settings.encrypt:
        socket.curve_serverkey = _server_keys(settings.token)[0]
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    else:
        socket.plain_username = _DOMAIN
        socket.plain_password = _password(settings.token)


def answer_zap(socket: "zmq.Socket[Any]", settings: Settings) -> None:
    """Take one question of ZeroMQ whether a connection is welcome, and answer it."""
    version, request, _domain, _address, _identity, mechanism, *credentials = socket.recv_multipart()
    if settings.encrypt:  # who got through the handshake had the server's public key
        welcome = mechanism == b"CURVE"
    else:
        wanted = [_DOMAIN, _password(settings.token)]
        welcome = mechanism == b"PLAIN" and hmac.compare_digest(b"\0".join(credentials), b"\0".join(wanted))
    status, text = (b"200", b"OK") if welcome else (b"400", b"wrong token")
    socket.send_multipart([version, request, status, text, b"", b""])


def _password(token: str) -> bytes:
    """A digest: the token may be long, and is not to be seen on the wire."""
    return blake2b(token.encode(), digest_size=32, person=b"argosy-ps-plain").hexdigest().encode()


def _server_keys(token: str) -> tuple[bytes, bytes]:
    secret = z85.encode(blake2b(token.encode(), digest_size=32, person=b"argosy-ps-curve").digest())
    return zmq.curve_public(secret), secret
