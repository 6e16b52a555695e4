"""Connections that begin before a server's certificate changes and end after it."""

from __future__ import annotations

import imaplib
import smtplib
import socket
import ssl
import struct
from typing import Protocol

_TIMEOUT_S = 60.0


class Held(Protocol):
    """A connection in the middle of a conversation."""

    def finish(self) -> bytes:
        """Continue; returns the answer."""


class HeldRequest:
    """An HTTP request whose end is not sent yet."""

    def __init__(self, port: int) -> None:
        self._socket = _context().wrap_socket(_connected(port))
        self._socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n")

    def finish(self) -> bytes:
        """Send the end; the first line of the answer."""
        with self._socket:
            self._socket.sendall(b"\r\n")
            return self._socket.recv(4096).split(b"\r\n")[0]


class HeldSession:
    """A session of PostgreSQL."""

    def __init__(self, port: int) -> None:
        plain = _connected(port)
        plain.sendall(b"\x00\x00\x00\x08\x04\xd2\x16\x2f")
        assert plain.recv(1) == b"S"
        self._socket = _context().wrap_socket(plain)
        start = struct.pack("!i", 196608) + b"user\0postgres\0database\0postgres\0\0"
        self._socket.sendall(struct.pack("!i", len(start) + 4) + start)
        self._until_ready()

    def finish(self) -> bytes:
        """Ask a question; the answer."""
        with self._socket:
            self._socket.sendall(b"Q" + struct.pack("!i", 4 + 10) + b"select 42\0")
            return self._until_ready()

    def _until_ready(self) -> bytes:
        answer = b""
        while not answer.endswith(b"Z\x00\x00\x00\x05I"):
            piece = self._socket.recv(4096)
            assert piece, answer
            answer += piece
        return answer


class HeldMail:
    """A session of SMTP after STARTTLS."""

    def __init__(self, port: int) -> None:
        self._session = smtplib.SMTP("127.0.0.1", port, local_hostname="localhost", timeout=_TIMEOUT_S)
        self._session.starttls(context=_context())

    def finish(self) -> bytes:
        """Send NOOP; its reply."""
        code, text = self._session.noop()
        self._session.close()
        return b"%d %b" % (code, text)


class HeldMailbox:
    """A session of IMAP after STARTTLS and the login."""

    def __init__(self, port: int) -> None:
        self._session = imaplib.IMAP4("127.0.0.1", port, timeout=_TIMEOUT_S)
        self._session.starttls(_context())
        self._session.login("anybody", "any password")

    def finish(self) -> bytes:
        """Send NOOP; its reply."""
        result, _ = self._session.noop()
        self._session.shutdown()
        return result.encode()


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)
