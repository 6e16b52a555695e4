"""Two API servers that are asked the same: the reference over HTTPS, ours in process or over HTTPS."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import aiohttp

from certwright.kube.apiserver.server import ApiServer
from certwright.kube.util.http_messages import Identity, Request
from conformance.scrub import Scrubber

Json = dict[str, Any]

ADMIN = Identity("kubernetes-admin", groups=("system:masters", "system:authenticated"))
AGENT = "differential/1.0"
_PATIENCE_S = 60.0
_BUSY_FOR_S, _BUSY_WORDS = 60.0, b"storage is (re)initializing"
"""How long the reference may be putting up the storage of a kind whose definition has just changed, and what
it answers meanwhile, to anything, with 429. It may have served the kind before."""
_PAUSE_S = 0.05
NOTHING = "nothing came"
"""What is noted of an event that a story has waited for in vain."""
_WARNING = re.compile(r'299 - "((?:\\.|[^"\\])*)"')
_COMPARED = ("content-type", "retry-after", "allow", "location", "accept-patch")
"""The header fields that clients act upon; `warning` is compared too, text by text."""


@dataclass(slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    warnings: list[str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; None where it is something else."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Peer(Protocol):
    """A server that can be asked."""

    async def send(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Ask, and wait for the whole answer."""

    def open(self, target: str, headers: dict[str, str]) -> AsyncIterator[bytes]:
        """Ask for a stream; the first item is the status and the header fields as a line of JSON."""

    async def forget(self, revision: int) -> None:
        """Let go of what was before a revision, where that takes more than writes."""


@dataclass(slots=True)
class HttpPeer:
    """A server behind HTTPS. `etcd`: the address of the etcd that it keeps its objects in, if it does."""

    session: aiohttp.ClientSession
    url: str
    etcd: str = ""

    async def send(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Ask, and wait for the whole answer."""
        async with self.session.request(
            method,
            self.url + target,
            headers=headers,
            data=body or None,
            allow_redirects=False,
            skip_auto_headers=("Content-Type",),
        ) as response:
            fields = {name.lower(): value for name, value in response.headers.items()}
            warnings = ", ".join(response.headers.getall("warning", []))
            return Answer(response.status, fields, _WARNING.findall(warnings), await response.read())

    async def open(self, target: str, headers: dict[str, str]) -> AsyncIterator[bytes]:
        """Ask for a stream."""
        async with self.session.get(
            self.url + target, headers=headers, timeout=aiohttp.ClientTimeout(total=None)
        ) as response:
            yield _opening(response.status, response.headers.get("content-type", ""))
            async for chunk in response.content.iter_any():
                yield chunk

    async def forget(self, revision: int) -> None:
        """Have etcd compact its history."""
        if self.etcd:
            body = {"revision": str(revision), "physical": True}
            async with self.session.post(f"{self.etcd}/v3/kv/compaction", json=body) as response:
                assert response.status == 200, await response.text()


@dataclass(slots=True)
class LocalPeer:
    """Our server, without a socket."""

    server: ApiServer

    async def send(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Ask, and wait for the whole answer."""
        response = await self.server.handle(Request(method, target, headers, body, user=ADMIN))
        content = response.body
        if response.stream is not None:
            content = b"".join([chunk async for chunk in response.stream])
        return Answer(
            response.status, response.headers, _WARNING.findall(response.headers.get("warning", "")), content
        )

    async def open(self, target: str, headers: dict[str, str]) -> AsyncIterator[bytes]:
        """Ask for a stream."""
        response = await self.server.handle(Request("GET", target, headers, user=ADMIN))
        yield _opening(response.status, response.headers.get("content-type", ""))
        if response.stream is None:
            yield response.body
            return
        try:
            async for chunk in response.stream:
                yield chunk
        finally:
            await response.stream.aclose()  # type: ignore[attr-defined] # the contract of `Response.stream` has it

    async def forget(self, revision: int) -> None:
        """Its window is small."""


def _prefix(body: Any) -> str:
    """The generateName of an object that is sent."""
    meta = body.get("metadata") if isinstance(body, dict) else None
    return str(meta.get("generateName", "")) if isinstance(meta, dict) else ""


def _opening(status: int, content_type: str) -> bytes:
    return json.dumps({"status": status, "content-type": content_type}).encode() + b"\n"


def _without_marks(body: bytes) -> bytes:
    """What a watch has sent, less the bookmarks that time, or a write elsewhere, has brought."""
    if not body.startswith(b'{"type":"'):
        return body
    lines = body.splitlines(keepends=True)
    return b"".join(
        line for line in lines if b'"type":"BOOKMARK"' not in line[:20] or b"initial-events-end" in line
    )


class Ask(NamedTuple):
    """One request. A body of bytes is sent unchanged, anything else as JSON."""

    method: str
    target: str
    body: Any = None
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def content(self) -> bytes:
        """The body as it is sent."""
        if isinstance(self.body, bytes):
            return self.body
        return b"" if self.body is None else json.dumps(self.body).encode()

    def with_defaults(self, agent: str) -> Ask:
        """With the header fields of every request; underscores in their names become hyphens."""
        headers = {name.replace("_", "-"): value for name, value in self.headers.items()}
        headers.setdefault("user-agent", agent)
        headers.setdefault("accept", "application/json")
        if self.content:
            headers.setdefault("content-type", "application/json")
        return self._replace(headers=headers)


@dataclass(slots=True)
class Exchange:
    """What was asked, and what came back after everything that is by chance was replaced. `sent` is the
    body, for people only: it may hold what the server said before."""

    asked: str
    answered: Any
    sent: str = ""


@dataclass(slots=True)
class Caller:
    """Asks one server and writes down what it says."""

    peer: Peer
    namespace: str = "default"
    other: str = "other"
    agent: str = AGENT
    scrub: Scrubber = field(default_factory=Scrubber)
    transcript: list[Exchange] = field(default_factory=list)

    async def call(
        self,
        method: str,
        target: str,
        body: Any = None,
        /,
        *,
        agent: str = "",
        quiet: bool = False,
        **named: str,
    ) -> Answer:
        """One request. A body of bytes is sent unchanged, anything else as JSON; header names are written
        with underscores. `quiet`: not to be compared."""
        ask = Ask(method, target, body, named).with_defaults(agent or self.agent)
        answer = await self._answer(ask)
        if not quiet:
            self._record(ask, answer)
        return answer

    async def call_together(self, asks: Iterable[Ask]) -> None:
        """Requests that do not depend on each other, sent at the same time and recorded in the given order:
        for watches, each of which lasts until its `timeoutSeconds` are over."""
        sent = [ask.with_defaults(self.agent) for ask in asks]
        for ask, answer in zip(sent, await asyncio.gather(*map(self._answer, sent)), strict=True):
            self._record(ask, answer)

    async def get_together(self, targets: Iterable[str], **named: str) -> None:
        """GET each at the same time, with the same header fields: see `call_together`."""
        await self.call_together([Ask("GET", target, None, named) for target in targets])

    async def _answer(self, ask: Ask) -> Answer:
        answer = await self._send(ask.method, ask.target, dict(ask.headers), ask.content)
        answer.body = _without_marks(answer.body)
        return answer

    def _record(self, ask: Ask, answer: Answer) -> None:
        answered = self._read(answer, prefix=_prefix(ask.body))
        shown = {name: value for name, value in ask.headers.items() if name != "user-agent"}
        asked = self.scrub.text(f"{ask.method} {ask.target} {json.dumps(shown)}")
        self.transcript.append(Exchange(asked, answered, ask.content[:2000].decode(errors="replace")))

    async def _send(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """The answer of a server that is ready to give one."""
        deadline = time.monotonic() + _BUSY_FOR_S
        while True:
            answer = await self.peer.send(method, target, headers, body)
            if not (answer.status == 429 and _BUSY_WORDS in answer.body) or time.monotonic() > deadline:
                return answer
            await asyncio.sleep(_PAUSE_S)

    def _read(self, answer: Answer, *, prefix: str) -> Any:
        body = answer.json
        self.scrub.learn(body, prefix=prefix)
        return {
            "status": answer.status,
            "headers": {name: answer.headers[name] for name in _COMPARED if name in answer.headers},
            "warnings": answer.warnings,
            "body": self.scrub.json(body)
            if body is not None
            else self.scrub.plain(answer.body.decode(errors="replace")),
        }

    async def get(self, target: str, /, **named: Any) -> Answer:
        return await self.call("GET", target, **named)

    async def post(self, target: str, body: Any, /, **named: Any) -> Answer:
        return await self.call("POST", target, body, **named)

    async def put(self, target: str, body: Any, /, **named: Any) -> Answer:
        return await self.call("PUT", target, body, **named)

    async def patch(self, target: str, body: Any, kind: str = "merge", /, **named: Any) -> Answer:
        """PATCH; `kind` is `merge`, `json`, `strategic` or `apply`."""
        media = {
            "merge": "application/merge-patch+json",
            "json": "application/json-patch+json",
            "strategic": "application/strategic-merge-patch+json",
            "apply": "application/apply-patch+yaml",
        }[kind]
        return await self.call("PATCH", target, body, content_type=media, **named)

    async def delete(self, target: str, body: Any = None, /, **named: Any) -> Answer:
        return await self.call("DELETE", target, body, **named)

    @asynccontextmanager
    async def watch(self, target: str, **named: str) -> AsyncIterator[Events]:
        headers = {name.replace("_", "-"): value for name, value in named.items()}
        headers.setdefault("user-agent", self.agent)
        headers.setdefault("accept", "application/json")
        target += f"{'&' if '?' in target else '?'}watch=true"
        events = Events(self, target, headers)
        try:
            yield events
        finally:
            await events.close()


class Events:
    """One watch, read in the background."""

    def __init__(self, caller: Caller, target: str, headers: dict[str, str]) -> None:
        self._caller = caller
        self._target = target
        self._headers = headers
        self._has_marked = False
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        rest = b""
        try:
            async for chunk in self._caller.peer.open(self._target, self._headers):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._lines.put_nowait(line)
        finally:
            if rest:
                self._lines.put_nowait(rest)
            self._lines.put_nowait(None)

    async def opened(self) -> Json:
        """Status and content type, which are compared."""
        line = await asyncio.wait_for(self._lines.get(), _PATIENCE_S)
        document: Json = json.loads(line or b"{}")
        self._note("opened", document)
        return document

    async def take(self, count: int) -> list[Json]:
        """The next events, which are compared."""
        events: list[Json] = []
        while len(events) < count:
            try:
                line = await asyncio.wait_for(self._lines.get(), _PATIENCE_S)
            except TimeoutError:
                self._note("event", NOTHING)
                break
            if line is None:
                self._note("event", "the stream ended")
                break
            event = json.loads(line)
            if self._came_by_the_clock(event):
                continue
            events.append(event)
            self._caller.scrub.learn(events[-1])
            self._note("event", self._caller.scrub.json(events[-1]))
        return events

    def _came_by_the_clock(self, event: Json) -> bool:
        """Whether it is a bookmark that only time has brought. The first may be of the initial events."""
        if event.get("type") != "BOOKMARK":
            return False
        first, self._has_marked = not self._has_marked, True
        return not (first and "sendInitialEvents=true" in self._target)

    async def until(self, name: str) -> list[Json]:
        """Events up to the first about an object of that name."""
        events: list[Json] = []
        while not events or events[-1]["object"].get("metadata", {}).get("name") != name:
            if not (more := await self.take(1)):
                break
            events += more
        return events

    async def rest(self) -> list[Json]:
        """All events until the server ends the stream."""
        events: list[Json] = []
        while (line := await asyncio.wait_for(self._lines.get(), _PATIENCE_S)) is not None:
            events.append(json.loads(line))
            self._caller.scrub.learn(events[-1])
            self._note("event", self._caller.scrub.json(events[-1]))
        self._note("event", "the stream ended")
        return events

    def _note(self, what: str, content: Any) -> None:
        asked = f"{what} of GET {self._target} {self._headers.get('accept', '')}"
        self._caller.transcript.append(Exchange(self._caller.scrub.text(asked), content))

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
