"""TLS ClientHello parser: the server name and protocols of a connection, read without answering it.

Needed if one port serves tls-alpn-01 and other traffic: only `acme-tls/1` connections are ours.

Source: RFC 8446 §4.1.2 and §5.1, RFC 6066 §3 (server_name), RFC 7301 §3.1 (application-layer protocols).
"""

from __future__ import annotations

import msgspec

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_PROTOCOLS = 16
_LARGEST = 64 * 1024


class ClientHello(msgspec.Struct, frozen=True):
    """The requested server name and protocols; empty if the client sends none."""

    server_name: str = ""
    protocols: tuple[str, ...] = ()


class NotTls(Exception):
    """The bytes are not the beginning of a TLS connection."""


def read_client_hello(data: bytes) -> ClientHello | None:
    """Parse the message at the beginning of `data`; None if more bytes are needed.

    Raises `NotTls`.
    """
    message = bytearray()
    while True:
        if len(data) < 5:
            if not message and data and data[0] != _HANDSHAKE:
                raise NotTls("no TLS handshake record")
            return None
        if data[0] != _HANDSHAKE or data[1] != 3:
            raise NotTls("no TLS handshake record")
        length = int.from_bytes(data[3:5], "big")
        if len(data) < 5 + length:
            return None
        message += data[5 : 5 + length]
        data = data[5 + length :]
        if len(message) >= 4 and message[0] != _CLIENT_HELLO:
            raise NotTls("no ClientHello")
        if len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4], "big"):
            return _parse(bytes(message[4:]))
        if len(message) > _LARGEST:
            raise NotTls("a ClientHello of more than 64 KiB")


class _Reader:
    """A cursor over bytes. Raises `NotTls` if there are too few."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def read(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise NotTls("a ClientHello that is cut off")
        octets = self._data[self._at : self._at + count]
        self._at += count
        return octets

    def number(self, size: int) -> int:
        return int.from_bytes(self.read(size), "big")

    def block(self, size: int) -> _Reader:
        return _Reader(self.read(self.number(size)))


def _parse(body: bytes) -> ClientHello:
    reader = _Reader(body)
    reader.read(2 + 32)  # legacy_version, random
    reader.block(1)  # legacy_session_id
    reader.block(2)  # cipher_suites
    reader.block(1)  # legacy_compression_methods
    name, protocols = "", tuple[str, ...]()
    extensions = reader.block(2) if reader else _Reader(b"")
    while extensions:
        kind, content = extensions.number(2), extensions.block(2)
        if kind == _SERVER_NAME and content:
            name = _server_name(content.block(2)) or name
        elif kind == _PROTOCOLS and content:
            protocols = _protocols(content.block(2))
    return ClientHello(name, protocols)


def _server_name(names: _Reader) -> str:
    while names:
        kind, value = names.number(1), names.read(names.number(2))
        if kind == 0:
            return value.decode("ascii", errors="replace").lower()
    return ""


def _protocols(entries: _Reader) -> tuple[str, ...]:
    protocols = []
    while entries:
        protocols.append(entries.read(entries.number(1)).decode("latin-1"))
    return tuple(protocols)
