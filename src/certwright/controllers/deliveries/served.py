"""The certificate that a server presents: a TLS handshake, directly or after STARTTLS.

Only the certificate is read; the connection is closed after the handshake. The server's certificate is not
verified, because it is compared with the delivered one.

Source: RFC 3207 (SMTP), RFC 9051 §6.2.1 (IMAP), PostgreSQL "SSL Session Encryption" (SSLRequest).
"""

from __future__ import annotations

import asyncio
import ssl

from certwright.kube.util.encoding import in_words

_TIMEOUT_S = 10.0
# RFC 5321 §4.5.3.1.5: a reply line has 512 octets.
_LONGEST_LINE = 4096
_MOST_LINES = 100
_SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


class NotServed(Exception):
    """No certificate was presented; the text is a clause that names no byte of the server's answer."""


async def served_certificate(host: str, port: int, *, server_name: str, start_tls: str) -> bytes:
    """The DER of the certificate that the server presents for `server_name`. Raises `NotServed`."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, limit=_LONGEST_LINE)
            try:
                await _ask(start_tls, reader, writer)
                await writer.start_tls(_context(), server_hostname=server_name or None)
                found = writer.get_extra_info("ssl_object")
                certificate = found.getpeercert(binary_form=True) if found is not None else None
            finally:
                writer.close()
    except TimeoutError:
        raise NotServed(f"it did not answer within {_TIMEOUT_S:.0f} s") from None
    except ssl.SSLError as error:
        raise NotServed(f"the TLS handshake failed ({error.reason or 'unknown reason'})") from error
    except (OSError, EOFError, ValueError) as error:
        reason = (
            in_words(error)
            if isinstance(error, OSError)
            else "it closed the connection or sent no valid answer"
        )
        raise NotServed(reason) from error
    if not certificate:
        raise NotServed("it presented no certificate")
    return bytes(certificate)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _ask(protocol: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask the server to begin TLS. Raises `NotServed`, `OSError`, `EOFError` and `ValueError`."""
    match protocol:
        case "":
            return
        case "smtp":
            await _smtp_reply(reader, b"220")
            writer.write(b"EHLO certwright.invalid\r\n")
            await _smtp_reply(reader, b"250")
            writer.write(b"STARTTLS\r\n")
            await _smtp_reply(reader, b"220")
        case "imap":
            await reader.readline()
            writer.write(b"a STARTTLS\r\n")
            for _ in range(_MOST_LINES):
                line = await reader.readline()
                if line.startswith(b"a "):
                    break
            if not line.upper().startswith(b"A OK"):
                raise NotServed("it refused STARTTLS")
        case "postgres":
            writer.write(_SSL_REQUEST)
            if await reader.readexactly(1) != b"S":
                raise NotServed("it refused TLS")
        case _:
            raise NotServed(f"startTLS {protocol!r} is unknown")


async def _smtp_reply(reader: asyncio.StreamReader, code: bytes) -> None:
    for _ in range(_MOST_LINES):
        line = await reader.readline()
        if not line.startswith(code):
            raise NotServed("it refused STARTTLS")
        # RFC 5321 §4.2.1: a hyphen follows the code in all lines but the last.
        if line[3:4] != b"-":
            return
    raise NotServed("it refused STARTTLS")
