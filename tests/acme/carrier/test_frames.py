"""What goes over the socket: whole, cut, not of the other process; and what is left of it in the child."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from acme.carrier.children import READS_FOR_EVER, that_does
from acme.carrier.conftest import MakeChild, Server, carried
from certwright.acme.carrier.carrying import Carrying
from certwright.acme.carrier.frames import (
    Answer,
    Ask,
    BadFrame,
    Drop,
    Failure,
    Frames,
    Hello,
    Open,
    Order,
    Result,
    encode,
    orders,
    results,
)
from certwright.acme.protocol.errors import Unreachable

_WITHIN_S = 120.0
_NONSENSE = (4).to_bytes(4, "big") + b"\xc1\xc1\xc1\xc1"


@dataclass(slots=True)
class Told:
    """A child's end in this process, and the socket of its parent."""

    carrying: Carrying
    socket: socket.socket
    frames: Frames[Hello | Result]

    async def says(self) -> list[Hello | Result]:
        """What has come of it next; nothing at its end."""
        while data := await asyncio.get_running_loop().sock_recv(self.socket, 65536):
            if whole := list(self.frames.feed(data)):
                return whole
        return []

    async def tell(self, data: bytes) -> None:
        """Say that to it."""
        await asyncio.get_running_loop().sock_sendall(self.socket, data)


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    """One that has said hello."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    _, carrying = await asyncio.get_running_loop().create_unix_connection(Carrying, sock=theirs)
    made = Told(carrying, ours, results())
    try:
        assert await made.says() == [Hello()]
        yield made
    finally:
        ours.close()
        await asyncio.wait_for(carrying.ended, _WITHIN_S)
        await carrying.close()


def test_however_the_socket_cuts_them_messages_come_whole_and_in_order() -> None:
    said: list[Result] = [Answer(1, 200, (("a", "b"),), b"body"), Failure(2, "NotAcme", "words")]
    data = encode(said[0]) + encode(said[1])
    for size in range(1, len(data) + 1):
        frames = results()
        pieces = [data[begin : begin + size] for begin in range(0, len(data), size)]
        assert [one for piece in pieces for one in frames.feed(piece)] == said


def test_a_length_beyond_all_that_is_ever_sent_is_refused_before_anything_is_held() -> None:
    with pytest.raises(BadFrame, match="of 4294967295 bytes"):
        list(orders().feed(b"\xff" * 4))


async def test_a_child_that_is_told_nonsense_ends(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    await told.tell(_NONSENSE)
    assert await asyncio.wait_for(told.says(), _WITHIN_S) == []
    assert "what came is not of the parent" in caplog.text


async def test_a_child_whose_parent_ends_amid_a_message_ends(told: Told) -> None:
    await told.tell(encode(Drop(1))[:-1])
    told.socket.shutdown(socket.SHUT_WR)
    await asyncio.wait_for(told.carrying.ended, _WITHIN_S)


def work_kept() -> set[int]:
    """The tasks of a child in this process that anybody still holds."""
    gc.collect()
    held = gc.get_objects()
    return {id(one) for one in held if isinstance(one, asyncio.Task) and "Carrying._carry" in repr(one)}


async def test_of_what_is_dropped_before_it_began_nothing_is_kept(told: Told, server: Server) -> None:
    before = work_kept()
    hang = Ask(1, 0, "GET", server.url + "/hang", b"", "")
    wanted = Ask(2, 0, "GET", server.url + "/", b"", "")
    options = Open(0, b"", skip_verify=False, user_agent="test", timeout_s=200.0)
    said: list[Order] = [options, hang, Drop(1), wanted]
    await told.tell(b"".join(encode(one) for one in said))
    (answer,) = await asyncio.wait_for(told.says(), _WITHIN_S)
    assert isinstance(answer, Answer)
    assert answer.number == 2
    assert work_kept() <= before


async def test_a_child_that_talks_nonsense_is_ended(server: Server, make_child: MakeChild) -> None:
    raves = f"end.recv(1); end.sendall({_NONSENSE!r}); {READS_FOR_EVER}"
    child = make_child(that_does(raves))
    with pytest.raises(Unreachable, match="says what cannot be understood"):
        await carried(child).send(server.get())
