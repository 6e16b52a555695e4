"""TLS-ALPN-01: the challenge response is a certificate, served only for `acme-tls/1` (RFC 8737)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import ssl
import tempfile
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certwright.acme.protocol.challenges import ACME_IDENTIFIER_OID, ALPN_PROTOCOL, server_name, tls_digest
from certwright.acme.solvers.admitted import Admissions, Admitted
from certwright.acme.solvers.contract import Task
from certwright.acme.solvers.side_listener import Shown, SideListener

_TIMEOUT_S = 10.0
_CHUNK = 64 * 1024
EXTENSION = x509.ObjectIdentifier(ACME_IDENTIFIER_OID)
# An ASN.1 OCTET STRING of 32 bytes (RFC 8737 §3).
_OCTETS_32 = b"\x04\x20"
_HANDSHAKE_RECORD = b"\x16\x03"
_CLIENT_HELLO = 1
_SERVER_NAME = _HOST_NAME = 0
_PROTOCOLS = 16
_LARGEST = 64 * 1024
_LONGEST_FRAGMENT = 2**14


class Listener:
    """One listener for all tasks. Passes other connections unread to `backend` (host, port), or closes them
    without one. `shown` has the TLS contexts by server name; `admissions` limits the connections."""

    def __init__(
        self, *, backend: tuple[str, int] | None = None, admissions: Admissions | None = None
    ) -> None:
        self.shown: Shown[ssl.SSLContext] = Shown()
        self._backend = backend
        self._listener = SideListener("tls-alpn-01", self._serve, admissions=admissions)

    async def listen(self, host: str, port: int) -> int:
        return await self._listener.listen(host, port)

    async def close(self) -> None:
        await self._listener.close()

    async def present(self, task: Task) -> None:
        context = await asyncio.to_thread(_context_for, task)
        self.shown.add(server_name(task.identifier).lower(), task.uid, context)

    async def clean_up(self, task: Task) -> None:
        self.shown.remove(server_name(task.identifier).lower(), task.uid)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, admitted: Admitted
    ) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                message, hello = ClientHelloReader(), None
                while hello is None:
                    if not (more := await reader.read(_CHUNK)):
                        raise NotTls("the connection ended before the ClientHello did")
                    hello = message.feed(more)
            begun = bytes(message.begun)
            context = (
                await self.shown.wait_for(hello.server_name) if ALPN_PROTOCOL in hello.protocols else None
            )
            if context is not None:
                async with asyncio.timeout(_TIMEOUT_S):
                    await _handshake(context, begun, reader, writer)
            elif self._backend is not None and admitted.pass_on():
                there_reader, there_writer = await asyncio.open_connection(*self._backend)
                try:
                    there_writer.write(begun)
                    await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
                finally:
                    there_writer.close()
                    with contextlib.suppress(OSError):
                        await there_writer.wait_closed()
        except (OSError, TimeoutError, NotTls, asyncio.IncompleteReadError):
            pass


async def _handshake(
    context: ssl.SSLContext, begun: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Do the handshake only: "the ACME server … closes the connection" after it (§3). The client may send one
    chunk meanwhile, and one afterwards."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(begun)
    left = _CHUNK
    while True:
        try:
            session.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            done = False
        finally:
            writer.write(outgoing.read())
        await writer.drain()
        if done:
            break
        more = await reader.read(left)
        if not more:
            return
        left -= len(more)
        incoming.write(more)
    # The client closes first: a reset could overtake our last bytes.
    left = _CHUNK
    while left and (more := await reader.read(left)):
        left -= len(more)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()


def challenge_certificate(task: Task) -> tuple[bytes, bytes]:
    """The self-signed certificate of a task and its key, as PEM (RFC 8737 §3, RFC 8738 §6)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tls-alpn-01")])
    try:
        identifier: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(task.identifier))
    except ValueError:
        identifier = x509.DNSName(task.identifier)
    # CAs ignore the dates; far apart, because clocks differ.
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=7))
        .add_extension(x509.SubjectAlternativeName([identifier]), critical=False)
        .add_extension(x509.UnrecognizedExtension(EXTENSION, extension_value(task)), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return built.public_bytes(serialization.Encoding.PEM), private


def extension_value(task: Task) -> bytes:
    """The value of the extension `acmeIdentifier`, which proves control of the name (RFC 8737 §3)."""
    return _OCTETS_32 + tls_digest(task.key)


def _context_for(task: Task) -> ssl.SSLContext:
    certificate, private = challenge_certificate(task)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols([ALPN_PROTOCOL])
    # The ssl module reads only files. Mode 0600, and the key is good for nothing but this challenge.
    with tempfile.NamedTemporaryFile(prefix="tls-alpn-") as file:
        file.write(certificate + private)
        file.flush()
        os.fsync(file.fileno())
        context.load_cert_chain(file.name)
    return context


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
    name, protocols = "", list[str]()
    extensions = reader.block(2) if reader else _Reader(b"")
    while extensions:
        kind, content = extensions.number(2), extensions.block(2)
        if kind == _SERVER_NAME and content:
            names = content.block(2)
            while names:
                name_type, value = names.number(1), names.read(names.number(2))
                if name_type == _HOST_NAME:
                    name = value.decode("ascii", errors="replace").lower()
                    break
        elif kind == _PROTOCOLS and content:
            entries, protocols = content.block(2), []
            while entries:
                protocols.append(entries.read(entries.number(1)).decode("latin-1"))
    return ClientHello(name, tuple(protocols))
