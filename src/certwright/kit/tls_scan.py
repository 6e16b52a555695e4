"""Read the certificate that a TLS server presents, after STARTTLS where the protocol begins in plain text.

The certificate is not verified and nothing is sent over the connection, because the caller only reads what
is presented. The address is used as given: a caller that got it from an object checks it against the
operator's rules first.

Source: RFC 8446 and RFC 6066 §3 (TLS, server name); RFC 3207 (SMTP); RFC 9051 §6.2.1 (IMAP); PostgreSQL
documentation, "Message Flow" (SSL Session Encryption).
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final
from urllib.parse import urlsplit

import msgspec

from certwright.kube.util.connections import unverified_tls
from certwright.kube.util.encoding import in_brackets, in_words

DEFAULT_PORTS: Final = {"tls": 443, "smtp": 25, "imap": 143, "postgres": 5432}
"""The protocols before TLS, with their ports; `tls` is TLS from the first byte."""
_FORM = "write HOST, HOST:PORT, NAME@HOST:PORT, smtp://HOST, imap://HOST or postgres://HOST"
# Length and code of PostgreSQL's SSLRequest.
_POSTGRES_SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
_MOST_LINES = 100


class ScanFailed(Exception):
    """The server presented no certificate; the text is a clause with the address and the reason."""


class TlsAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server speaks TLS. `server_name` is sent for SNI, the host if it is empty; `protocol` is a key
    of `DEFAULT_PORTS`."""

    host: str
    port: int
    server_name: str = ""
    protocol: str = "tls"

    @classmethod
    def parse(cls, text: str) -> TlsAddress:
        """Read `[PROTOCOL://][SERVER_NAME@]HOST[:PORT]`; IPv6 addresses are in brackets. Raises `ValueError`
        with a sentence."""
        try:
            parts = urlsplit(text if "://" in text else f"tls://{text}")
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise ValueError(f"{text!r} is not an address: {error}; {_FORM}") from None
        if parts.scheme not in DEFAULT_PORTS:
            known = ", ".join(name for name in DEFAULT_PORTS if name != "tls")
            raise ValueError(f"{text!r} begins with an unknown protocol; known are {known}; {_FORM}")
        rest = parts.path.rstrip("/") or parts.query or parts.fragment or parts.password
        if not host or rest or port == 0 or not _is_host(host):
            raise ValueError(f"{text!r} is not an address; {_FORM}")
        return cls(
            host=host,
            port=port or DEFAULT_PORTS[parts.scheme],
            server_name=parts.username or "",
            protocol=parts.scheme,
        )

    def __str__(self) -> str:
        prefix = "" if self.protocol == "tls" else f"{self.protocol}://"
        name = f"{self.server_name}@" if self.server_name else ""
        return f"{prefix}{name}{in_brackets(self.host)}:{self.port}"


def _is_host(host: str) -> bool:
    return host.isprintable() and not any(character in " \\\"'<>" for character in host)


async def presented_certificate(address: TlsAddress, *, timeout_s: float) -> bytes:
    """The server's own certificate as DER. Raises `ScanFailed`, also when that takes longer than the time
    allowed."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await _begin(address.protocol, reader, writer)
            # No SNI is sent for an IP address, which RFC 6066 §3 does not permit.
            await writer.start_tls(_context(), server_hostname=address.server_name or address.host)
            connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
            der = connection.getpeercert(binary_form=True)
    except TimeoutError:
        raise ScanFailed(f"{address} did not answer within {timeout_s:g} s") from None
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise ScanFailed(f"{address} does not complete a TLS handshake ({reason})") from None
    except (OSError, UnicodeError) as error:
        reason = in_words(error) if isinstance(error, OSError) else "the name is not a host name"
        raise ScanFailed(f"{address} cannot be reached: {reason}") from None
    except (ValueError, EOFError) as error:
        reason = str(error) if type(error) is ValueError else "it closed the connection"
        raise ScanFailed(f"{address} cannot be read: {reason}") from None
    finally:
        if writer is not None:
            # `wait_closed` would never return after a reset in the middle of the handshake.
            writer.transport.abort()
    if not der:
        raise ScanFailed(f"{address} presents no certificate")
    return der


def _context() -> ssl.SSLContext:
    """Accepts any certificate, and old protocols and keys: those are what a scan is to find."""
    context = unverified_tls()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    return context


async def _begin(protocol: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bring the connection to where TLS begins. Raises `ValueError` where the server offers none."""
    match protocol:
        case "tls":
            return
        case "smtp":
            await _smtp_reply(reader, "220", "greet")
            writer.write(b"EHLO localhost\r\n")
            await _smtp_reply(reader, "250", "accept EHLO")
            writer.write(b"STARTTLS\r\n")
            await _smtp_reply(reader, "220", "accept STARTTLS")
        case "imap":
            await _line(reader)
            writer.write(b"a1 STARTTLS\r\n")
            for _ in range(_MOST_LINES):
                if (line := await _line(reader)).startswith("a1 "):
                    break
            else:
                raise ValueError("it sends too many lines")
            if not line.upper().startswith("A1 OK"):
                raise ValueError("it does not accept STARTTLS")
        case "postgres":
            writer.write(_POSTGRES_SSL_REQUEST)
            if await reader.readexactly(1) != b"S":
                raise ValueError("it does not offer TLS (PostgreSQL's setting ssl is off)")
        case _:
            raise ValueError(f"{protocol!r} is not a known protocol")


async def _smtp_reply(reader: asyncio.StreamReader, expected: str, action: str) -> None:
    for _ in range(_MOST_LINES):
        line = await _line(reader)
        if not line.startswith(expected):
            raise ValueError(f"it does not {action} as an SMTP server does")
        if line[3:4] != "-":
            return
    raise ValueError("it sends too many lines")


async def _line(reader: asyncio.StreamReader) -> str:
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line.decode("ascii", "replace").rstrip("\r\n")
