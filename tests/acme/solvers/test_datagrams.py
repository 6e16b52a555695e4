"""One DNS message by UDP, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import dns.exception
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rrset
import pytest

from certwright.acme.solvers.datagrams import LARGEST, TooLarge, exchange, exchange_tcp, parse_response
from support.programs import free_port

Answers = Callable[[dns.message.Message], list[bytes]]


class _Server(asyncio.DatagramProtocol):
    """Sends for each question what `answers` makes of it."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        for answer in self._answers(dns.message.from_wire(data)):
            self._transport.sendto(answer, address)


_PATIENCE_S = 60.0


@asynccontextmanager
async def serving(answers: Answers) -> AsyncIterator[int]:
    """A server by UDP at a port that nobody has by TCP either."""
    loop, port = asyncio.get_running_loop(), free_port()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Server(answers), local_addr=("127.0.0.1", port)
    )
    try:
        yield port
    finally:
        transport.close()


KINDS = pytest.mark.parametrize("kind", ["TXT", "A", "AAAA"])


def question(kind: str = "TXT") -> dns.message.Message:
    return dns.message.make_query("a.example.org", kind)


def reply_to(asked: dns.message.Message) -> dns.message.Message:
    reply = dns.message.make_response(asked)
    reply.answer.append(dns.rrset.from_text("a.example.org.", 60, "IN", "TXT", '"value"'))
    return reply


async def test_a_datagram_with_another_number_is_no_answer() -> None:
    def answers(asked: dns.message.Message) -> list[bytes]:
        other = reply_to(asked)
        other.id = asked.id ^ 1
        return [b"", other.to_wire(), reply_to(asked).to_wire()]

    async with serving(answers) as port:
        reply = await exchange(question(), "127.0.0.1", port, _PATIENCE_S)
    assert reply.answer[0][0].to_text() == '"value"'


@KINDS
async def test_the_answer_to_another_question_is_told(kind: str) -> None:
    def answers(asked: dns.message.Message) -> list[bytes]:
        other = dns.message.make_response(dns.message.make_query("b.example.org", kind, id=asked.id))
        return [other.to_wire()]

    async with serving(answers) as port:
        with pytest.raises(dns.query.BadResponse):
            await exchange(question(kind), "127.0.0.1", port, _PATIENCE_S)


@KINDS
@pytest.mark.parametrize("code", [dns.rcode.NOERROR, dns.rcode.NXDOMAIN, dns.rcode.SERVFAIL])
async def test_an_empty_answer_says_whether_the_name_is_there(kind: str, code: dns.rcode.Rcode) -> None:
    def answers(asked: dns.message.Message) -> list[bytes]:
        reply = dns.message.make_response(asked)
        reply.set_rcode(code)
        soa = "ns1.example.org. admin.example.org. 1 3600 600 86400 1"
        reply.authority.append(dns.rrset.from_text("example.org.", 60, "IN", "SOA", soa))
        return [reply.to_wire()]

    async with serving(answers) as port:
        response = await exchange(question(kind), "127.0.0.1", port, _PATIENCE_S)
    assert (response.rcode(), response.answer) == (code, [])


@KINDS
async def test_what_is_no_message_is_told(kind: str) -> None:
    async with serving(lambda asked: [asked.to_wire()[:5]]) as port:
        with pytest.raises(dns.exception.DNSException):
            await exchange(question(kind), "127.0.0.1", port, _PATIENCE_S)


@KINDS
async def test_an_answer_that_was_cut_is_asked_for_by_tcp(kind: str) -> None:
    async def by_tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(2), "big")
        wire = reply_to(dns.message.from_wire(await reader.readexactly(size))).to_wire()
        writer.write(len(wire).to_bytes(2, "big") + wire)
        await writer.drain()
        writer.close()

    def cut(asked: dns.message.Message) -> list[bytes]:
        reply = dns.message.make_response(asked)
        reply.flags |= dns.flags.TC
        return [reply.to_wire()]

    async with serving(cut) as port:
        server = await asyncio.start_server(by_tcp, "127.0.0.1", port)
        async with server:
            response = await exchange(question(kind), "127.0.0.1", port, _PATIENCE_S)
    assert response.answer[0][0].to_text() == '"value"'


def many_records(asked: dns.message.Message, count: int) -> bytes:
    reply = dns.message.make_response(asked)
    texts = [f'"{number}"' for number in range(count)]
    reply.answer.append(dns.rrset.from_text_list("a.example.org.", 60, "IN", "TXT", texts))
    return reply.to_wire(max_size=65535)


async def test_a_response_is_not_parsed_beyond_a_size() -> None:
    """A tenant's name servers answer as much as they like."""
    asked = question()
    assert len(parse_response(asked, many_records(asked, 800)).answer[0]) == 800
    assert len(many_records(asked, 3000)) > 3 * LARGEST // 2
    with pytest.raises(TooLarge, match="more bytes"):
        parse_response(asked, many_records(asked, 3000))

    async def by_tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
        writer.write((LARGEST + 1).to_bytes(2))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(by_tcp, "127.0.0.1", 0)
    async with server:
        with pytest.raises(TooLarge, match="more bytes"):
            await exchange_tcp(asked, "127.0.0.1", server.sockets[0].getsockname()[1], _PATIENCE_S)


async def test_a_server_that_is_not_there_is_waited_for() -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        await exchange(question(), "127.0.0.1", free_port(), 0.1)
