"""DNS exchange over UDP, with TCP if the response is truncated.

Messages are dnspython's. Its own UDP code takes three times the CPU time, and a self-check of http-01 sends
two queries.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import dns.exception
import dns.message
import dns.query
import dns.rdatatype

# Datagrams get lost: each is sent again after a tenth of the timeout, and after three more tenths.
_SHARES: Final = (0.1, 0.3, 0.6)
_NUMBER_BYTES = _LENGTH_BYTES = 2
LARGEST: Final = 16 * 1024
"""Bytes of a response: 280 validation tokens. The name servers of a tenant's zone answer what they like, and
parsing 64 KiB takes hundreds of milliseconds."""
_ADDRESSES: Final = (dns.rdatatype.A, dns.rdatatype.AAAA)


class TooLarge(dns.exception.FormError):
    """The response has more bytes than are parsed."""


async def exchange(
    message: dns.message.Message, address: str, port: int, timeout_s: float
) -> dns.message.Message:
    """Send a message to the server at this address; if it is signed (TSIG), the response must be too.

    Raises `TimeoutError` or `dns.exception.Timeout` without a response, and another `DNSException` or
    `OSError` for an invalid one.
    """
    loop = asyncio.get_running_loop()
    wire = message.to_wire()
    answer: asyncio.Future[dns.message.Message] = loop.create_future()
    # Connected: the kernel drops datagrams from other addresses.
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Listener(message, wire, answer), remote_addr=(address, port)
    )
    try:
        for share in _SHARES:
            transport.sendto(wire)
            await asyncio.wait((answer,), timeout=share * timeout_s)
            if answer.done():
                return answer.result()
    except dns.message.Truncated:
        return await exchange_tcp(message, address, port, timeout_s)
    finally:
        transport.close()
        answer.cancel()
    raise TimeoutError(f"no answer within {timeout_s:g} s")


async def exchange_tcp(
    message: dns.message.Message, address: str, port: int, timeout_s: float
) -> dns.message.Message:
    """As `exchange`, over a connection of its own (RFC 1035 §4.2.2)."""
    wire = message.to_wire(prepend_length=True)
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(address, port)
        try:
            writer.write(wire)
            size = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
            # Not read at all if it is too large.
            data = await reader.readexactly(size) if size <= LARGEST else bytes(size)
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the server closed the connection") from error
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
    return parse_response(message, data)


def parse_response(asked: dns.message.Message, data: bytes) -> dns.message.Message:
    """The response to `asked`. Raises `DNSException`."""
    if len(data) > LARGEST:
        raise TooLarge
    # Most hosts lack an address of one family; parsing the reason takes six times as long and no caller needs
    # it. RFC 1035 §4.1.1: ANCOUNT is the fourth number of the header.
    is_for_addresses = asked.keyring is None and asked.question[0].rdtype in _ADDRESSES
    response = dns.message.from_wire(
        data,
        keyring=asked.keyring,
        request_mac=asked.mac,
        question_only=is_for_addresses and not any(data[6:8]),
        raise_on_truncation=True,
    )
    if not asked.is_response(response):
        raise dns.query.BadResponse
    return response


class _Listener(asyncio.DatagramProtocol):
    """Accepts the first datagram with the message's ID as the response. Treats an unreachable server
    (`error_received`) like a lost datagram."""

    def __init__(
        self, message: dns.message.Message, wire: bytes, answer: asyncio.Future[dns.message.Message]
    ) -> None:
        self._message = message
        self._number = wire[:_NUMBER_BYTES]
        self._answer = answer

    def datagram_received(self, data: bytes, _address: object) -> None:
        if data[:_NUMBER_BYTES] != self._number or self._answer.done():
            return
        try:
            self._answer.set_result(parse_response(self._message, data))
        except Exception as error:
            self._answer.set_exception(error)
