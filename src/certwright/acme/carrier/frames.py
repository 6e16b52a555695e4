"""What the two processes say to each other over their socket: MessagePack behind four bytes of length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from certwright.acme.solvers.contract import Looking, Task, Updating

M = TypeVar("M")

_LENGTH = 4
# A body of 4 MiB, the largest that a transport takes, and its headers.
_LONGEST = 6 * 2**20


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """What is said: the first member names which."""


class Open(_Message, frozen=True):
    """From now on `sender` is a transport with these options; see `HttpTransport`."""

    sender: int
    ca_bundle: bytes
    skip_verify: bool
    user_agent: str
    timeout_s: float


class Close(_Message, frozen=True):
    """Let go of the connections of a sender."""

    sender: int


class Ask(_Message, frozen=True):
    """Send this request by way of that sender. `number` is unique on the socket."""

    number: int
    sender: int
    method: str
    url: str
    body: bytes
    accept: str


class Look(_Message, frozen=True):
    """Look for the proof of that task once. `number` is unique on the socket."""

    number: int
    looking: Looking
    task: Task


class Show(_Message, frozen=True):
    """Write the proof of that task, or take it `away`. `number` is unique on the socket."""

    number: int
    updating: Updating
    task: Task
    away: bool


class Drop(_Message, frozen=True):
    """Nobody waits for what goes by that number any more."""

    number: int


class Hello(_Message, frozen=True):
    """The child runs, and does as it is told from now on: the first that it says."""


class Answer(_Message, frozen=True):
    """What came back; the headers are those of `Response`."""

    number: int
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Failure(_Message, frozen=True):
    """No answer came, or none that is of use: `kind` is the name of an `AcmeError`, `words` are its text."""

    number: int
    kind: str
    words: str


class Seen(_Message, frozen=True):
    """What the look has come to: a `Ready` where there is no `reason`, else a `NotYet`."""

    number: int
    reason: str = ""
    not_before_s: float = 0.0


class Shown(_Message, frozen=True):
    """It is done where there are no `words`; else those of a `SolverError`."""

    number: int
    words: str = ""


Order = Open | Close | Ask | Look | Show | Drop
"""What the parent says."""
Result = Answer | Failure | Seen | Shown
"""What the child says of an order."""

_encoder = msgspec.msgpack.Encoder()


class BadFrame(Exception):
    """What came over the socket is not of the other process."""


def encode(message: Order | Hello | Result) -> bytes:
    """The message as it goes over the socket. Raises `UnicodeEncodeError` for a text that is none."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


class Frames(Generic[M]):
    """Puts together again what the socket cuts."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[M]) -> None:
        self._decoder = decoder
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[M]:
        """The messages that are whole now. Raises `BadFrame`."""
        self._held += data
        begin = 0
        while (end := self._end(begin)) <= len(self._held):
            try:
                yield self._decoder.decode(self._held[begin + _LENGTH : end])
            except msgspec.MsgspecError as error:
                raise BadFrame(str(error)) from error
            begin = end
        del self._held[:begin]

    def _end(self, begin: int) -> int:
        """Where the message that begins there ends; behind what is held, if its length is not known yet."""
        body = begin + _LENGTH
        if body > len(self._held):
            return body
        length = int.from_bytes(self._held[begin:body], "big")
        if length > _LONGEST:
            raise BadFrame(f"a message of {length} bytes")
        return body + length


def orders() -> Frames[Order]:
    """For the child."""
    return Frames(msgspec.msgpack.Decoder(Order))


def results() -> Frames[Hello | Result]:
    """For the parent."""
    return Frames(msgspec.msgpack.Decoder(Hello | Result))
