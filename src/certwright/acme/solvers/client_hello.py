"""TLS ClientHello parser: the server name and protocols of a connection, read without answering it.

Needed if one port serves tls-alpn-01 and other traffic: only `acme-tls/1` connections are ours.

Source: RFC 8446 §4.1.2 and §5.1, RFC 6066 §3 (server_name), RFC 7301 §3.1 (application-layer protocols).
"""

from __future__ import annotations

import msgspec

_HANDSHAKE_RECORD = b"\x16\x03"
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_PROTOCOLS = 16
_LARGEST = 64 * 1024
_LONGEST_FRAGMENT = 2**14


class ClientHello(msgspec.Struct, frozen=True):
    """The requested server name and protocols; empty if the client sends none."""

    server_name: str = ""
    protocols: tuple[str, ...] = ()


class NotTls(Exception):
    """The bytes are not the beginning of a TLS connection."""


class ClientHelloReader:
    """Parses the message at the beginning of a connection, as its bytes arrive, in linear time.

    `begun` are all bytes so far; more than `_LARGEST` of them without a complete message are refused.
    """

    def __init__(self) -> None:
        self.begun = bytearray()
        self._message = bytearray()
        self._at = 0  # Where the next record begins.

    def feed(self, data: bytes) -> ClientHello | None:
        """The message, as soon as it is complete. Raises `NotTls`."""
        self.begun += data
        while (fragment := self._next_fragment()) is not None:
            self._message += fragment
            message = self._message
            if message[0] != _CLIENT_HELLO:
                raise NotTls("no ClientHello")
            if len(message) >= 4 and len(message) >= (end := 4 + int.from_bytes(message[1:4])):
                return _parse(bytes(message[4:end]))
        if len(self.begun) > _LARGEST:
            raise NotTls("a ClientHello of more than 64 KiB")
        return None

    def _next_fragment(self) -> bytes | None:
        """The content of the next record; None until it is complete."""
        head = bytes(self.begun[self._at : self._at + 5])
        if not _HANDSHAKE_RECORD.startswith(head[:2]):
            raise NotTls("no TLS handshake record")
        if len(head) < 5:
            return None
        length = int.from_bytes(head[3:])
        # RFC 8446 §5.1: "Implementations MUST NOT send zero-length fragments of Handshake types", and "The
        # length MUST NOT exceed 2^14 bytes."
        if not 1 <= length <= _LONGEST_FRAGMENT:
            raise NotTls("a TLS record of a length that no client sends")
        begin, end = self._at + 5, self._at + 5 + length
        if len(self.begun) < end:
            return None
        self._at = end
        return bytes(self.begun[begin:end])


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
