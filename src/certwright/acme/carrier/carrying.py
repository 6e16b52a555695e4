"""The child's work: sends and looks as it is told to, and tells what came of it."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from certwright.acme.carrier.framed import Framed
from certwright.acme.carrier.frames import (
    Answer,
    Ask,
    BadFrame,
    Close,
    Drop,
    Failure,
    Hello,
    Look,
    Open,
    Order,
    Result,
    Seen,
    Show,
    Shown,
    encode,
    orders,
)
from certwright.acme.protocol.errors import AcmeError, Unreachable
from certwright.acme.protocol.https import HttpTransport
from certwright.acme.protocol.messages import Action, Request
from certwright.acme.protocol.transport import TlsOptions

if TYPE_CHECKING:
    from certwright.acme.carrier.proofs import Proofs

_log = logging.getLogger(__name__)


class Carrying(Framed[Order]):
    """The child's end of the socket. `ended` is done when the other end is closed, and all work with it."""

    def __init__(self) -> None:
        super().__init__(orders())
        self.ended = asyncio.get_running_loop().create_future()
        self._senders: dict[int, HttpTransport] = {}
        self._proofs: Proofs | None = None
        self._work: dict[int, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._write(encode(Hello()))

    def connection_lost(self, _error: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        if not self.ended.done():
            self.ended.set_result(None)

    async def close(self) -> None:
        """End all work, and let go of all connections."""
        for task in self._work.values():
            task.cancel()
        await asyncio.gather(*self._work.values(), *self._closing, return_exceptions=True)
        for sender in self._senders.values():
            await sender.close()

    def _take(self, order: Order) -> None:
        match order:
            case Ask() | Look() | Show():
                task = self._work[order.number] = asyncio.create_task(self._carry(order))
                # Not by the work itself: one that is dropped at once never begins.
                task.add_done_callback(lambda _: self._work.pop(order.number))
            case Drop(number):
                if number in self._work:
                    self._work[number].cancel()
            case Open():
                self._senders[order.sender] = _sender(order)
            case Close(number):
                # Kept until it is done: a loop does not hold its tasks.
                task = asyncio.create_task(self._senders.pop(number).close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    def _misled(self, error: BadFrame) -> None:
        _log.error("Requests to ACME servers: what came is not of the parent", exc_info=error)
        self._socket.abort()

    async def _carry(self, order: Ask | Look | Show) -> None:
        result = await (self._send(order) if isinstance(order, Ask) else self._prove(order))
        await self._can_write.wait()
        self._write(_encoded(result))

    async def _prove(self, order: Look | Show) -> Result:
        if self._proofs is None:
            from certwright.acme.carrier.proofs import Proofs  # see there

            self._proofs = Proofs()
        try:
            if isinstance(order, Look):
                return await self._proofs.look(order)
            return await self._proofs.show(order)
        except Exception as error:
            # Neither must raise; who waits for one that does must hear of it. The text is for the log only:
            # users of the API are shown what the parent hears.
            _log.exception("the proof of %s: failed", order.task.identifier)
            name = type(error).__name__
            words = f"the proof of {order.task.identifier} could not be worked on ({name}; see the log)"
            return Seen(order.number, words) if isinstance(order, Look) else Shown(order.number, words)

    async def _send(self, ask: Ask) -> Result:
        # Which action it is, no transport asks.
        request = Request(Action.DIRECTORY, ask.method, ask.url, ask.body, ask.accept)
        try:
            response = await self._senders[ask.sender].send(request)
        except AcmeError as error:
            return Failure(ask.number, type(error).__name__, str(error))
        except Exception as error:
            _log.exception("%s %s failed", ask.method, ask.url)
            words = f"{ask.url} cannot be reached: {str(error) or type(error).__name__}"
            return Failure(ask.number, Unreachable.__name__, words)
        return Answer(ask.number, response.status, response.headers, response.body)


def _sender(order: Open) -> HttpTransport:
    return HttpTransport(
        TlsOptions(order.ca_bundle, skip_verify=order.skip_verify),
        user_agent=order.user_agent,
        # When an answer came, is for the parent's clock to say.
        now=lambda: datetime.now(UTC),
        timeout_s=order.timeout_s,
    )


def _encoded(result: Result) -> bytes:
    try:
        return encode(result)
    except UnicodeEncodeError:
        return encode(_readable(result))


def _readable(result: Result) -> Result:
    """The same, with `?` for each byte of a header that is no UTF-8, which aiohttp gives as a surrogate."""
    if isinstance(result, Failure):
        return Failure(result.number, result.kind, _text(result.words))
    if isinstance(result, Seen):
        return Seen(result.number, _text(result.reason), result.not_before_s)
    if isinstance(result, Shown):
        return Shown(result.number, _text(result.words))
    headers = tuple((_text(name), _text(value)) for name, value in result.headers)
    return Answer(result.number, result.status, headers, result.body)


def _text(text: str) -> str:
    return text.encode(errors="replace").decode()
