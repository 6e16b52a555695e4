"""TSIG keys cross to the child; neither its log nor that of this process, nor any error, holds one."""

from __future__ import annotations

import asyncio
import base64
import logging
import traceback
from dataclasses import dataclass, replace

import msgspec
import pytest
from dns.exception import DNSException

from acme.carrier.conftest import TXT, no_solver_here, updating
from certwright.acme.carrier.choice import Transports
from certwright.acme.carrier.frames import BadFrame, Show, encode, orders
from certwright.acme.solvers.contract import SolverError, Task, Updating
from certwright.acme.solvers.dns01.rfc2136 import make_updater
from certwright.acme.solvers.names import NameServers
from support.bind import Bind
from support.programs import free_port

_PLAIN = "what-nobody-else-may-ever-see-of-it"
_SECRET = base64.b64encode(_PLAIN.encode()).decode()
_NO_BASE64 = f"{_PLAIN}!"

# What goes wrong, and the key that is used.
FAILURES = {
    "the server has another secret": ("hmacsha256", _SECRET, "HMACSHA256"),
    "the server knows no such key": ("other", _SECRET, "HMACSHA256"),
    "the secret is no base64": ("hmacsha256", _NO_BASE64, "HMACSHA256"),
    "the secret is no ASCII": ("hmacsha256", f"{_PLAIN}é", "HMACSHA256"),
    "the name is none": ("a..b", _SECRET, "HMACSHA256"),
    "the algorithm is none": ("hmacsha256", _SECRET, "HMACSHA0"),
}


@dataclass(slots=True)
class Listener:
    """Hears all that is told by the child and by this process."""

    transports: Transports
    bind: Bind
    here: pytest.LogCaptureFixture
    streams: pytest.CaptureFixture[str]
    by_child: str = ""

    async def assert_no_secret_is_told(self, asked: Updating, task: Task = TXT) -> None:
        """Have an update fail by way of the child, and in this process."""
        names = NameServers(asked.servers, authority_port=self.bind.port)
        with pytest.raises(SolverError) as carried:
            await self.transports.solver(asked, no_solver_here).present(task)
        with pytest.raises((SolverError, DNSException)) as inside:
            await make_updater(asked, names).present(task)
        # The child has said all when it is gone.
        await self.transports.close()
        self.by_child = self.streams.readouterr().err
        for error in (carried.value, inside.value):
            assert_without_secret(repr(error), *traceback.format_exception(error))
        assert_without_secret(self.here.text, self.by_child)


@pytest.fixture
def listener(
    transports: Transports,
    bind: Bind,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> Listener:
    """One that hears everything."""
    caplog.set_level(logging.DEBUG)
    return Listener(transports, bind, caplog, capfd)


def assert_without_secret(*texts: str) -> None:
    """Neither as it is written in a Secret, nor as the bytes that it stands for."""
    for text in texts:
        assert _PLAIN not in text
        assert _SECRET not in text


@pytest.mark.parametrize("key", FAILURES.values(), ids=FAILURES)
async def test_an_update_that_is_refused_tells_no_secret(
    key: tuple[str, str, str], listener: Listener
) -> None:
    await listener.assert_no_secret_is_told(replace(updating(listener.bind), tsig=key))


async def test_an_update_that_nobody_takes_tells_no_secret(listener: Listener) -> None:
    nobody = replace(updating(listener.bind, _SECRET), server=("127.0.0.1", free_port()), tcp=True)
    await listener.assert_no_secret_is_told(nobody)


async def test_a_server_that_answers_nonsense_makes_nobody_tell_a_secret(listener: Listener) -> None:
    async def rave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # What was asked, the signature included, as the answer, and less than its length promises.
        length = await reader.readexactly(2)
        asked = await reader.readexactly(int.from_bytes(length, "big"))
        writer.write(length + asked[:-7])
        writer.close()

    async with await asyncio.start_server(rave, "127.0.0.1", 0) as server:
        address = ("127.0.0.1", int(server.sockets[0].getsockname()[1]))
        raving = replace(updating(listener.bind, _SECRET), server=address, tcp=True)
        await listener.assert_no_secret_is_told(raving)


async def test_what_should_never_go_wrong_is_logged_without_a_secret(listener: Listener) -> None:
    no_text = replace(TXT, key='"')
    await listener.assert_no_secret_is_told(updating(listener.bind, _SECRET), no_text)
    assert "the proof of web.example.org: failed" in listener.by_child


def test_an_order_that_cannot_be_understood_tells_no_secret() -> None:
    asked = Updating(server=("192.0.2.1", 53), tsig=("name", _SECRET, "HMACSHA256"))
    assert_without_secret(repr(Show(1, asked, TXT, away=False)))
    whole = msgspec.msgpack.decode(encode(Show(1, asked, TXT, away=False))[4:])
    whole[2]["tsig"][2] = 5
    body = msgspec.msgpack.encode(whole)
    with pytest.raises(BadFrame) as found:
        list(orders().feed(len(body).to_bytes(4, "big") + body))
    assert_without_secret("".join(traceback.format_exception(found.value)))
