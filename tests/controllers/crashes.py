"""Processes that end between two writes, and a ledger of what was written."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from certwright.kube.api import errors
from certwright.kube.util.http_messages import Request, Response, close_stream
from certwright.pki.certificates import read_certificate
from certwright.pki.keys import load_private_key, public_key_der
from support.world import CONTROLLER, World

Handler = Callable[[Request], Awaitable[Response]]
CONFLICT = json.dumps({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409}).encode()


def is_write(request: Request) -> bool:
    """Whether this is a write of the controllers other than an Event."""
    return (
        request.user == CONTROLLER
        and request.method not in ("GET", "HEAD")
        and "/events" not in request.target
    )


class Guillotine:
    """An API server that cuts the controllers off once they have written `writes` times.

    With `answered` the answer to the last write still arrives, and the next one never does.
    """

    def __init__(self, handler: Handler, writes: int, *, answered: bool = False) -> None:
        self._handler = handler
        self._left = writes
        self._answered = answered

    @property
    def has_cut(self) -> bool:
        """Whether the controllers have been cut off."""
        return self._left <= 0

    async def handle(self, request: Request) -> Response:
        """Serve, or be gone."""
        if not is_write(request):
            return await self._handler(request)
        if self._left <= 0:
            raise errors.Unreachable("cut off")
        response = await self._handler(request)
        self._left -= response.status < 400
        if self._left == 0 and not self._answered:
            raise errors.Unreachable("cut off")
        return response


class Unreliable:
    """An API server of whose answers to the controllers 30 % are an error, or are lost after the deed."""

    def __init__(self, handler: Handler, seed: int) -> None:
        self._handler = handler
        self._random = random.Random(seed)

    async def handle(self, request: Request) -> Response:
        """Serve, fail before, or fail after."""
        if request.user != CONTROLLER or "watch=true" in request.target:
            return await self._handler(request)
        dice = self._random.random()
        if dice < 0.05:
            raise errors.Unreachable("lost on the way there")
        if dice < 0.1:
            return Response(500, {}, b"no")
        if dice < 0.2 and request.method != "GET":
            return Response(409, {}, CONFLICT)
        response = await self._handler(request)
        if dice >= 0.7 and dice < 0.8:
            raise errors.Unreachable("lost on the way back")
        return response


class Outage:
    """An API server that the controllers can lose: requests fail, and the watches that are open break."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._gone = asyncio.Event()
        self.refused = 0

    def begin(self) -> None:
        """Be gone."""
        self._gone.set()

    def end(self) -> None:
        """Be there again."""
        self._gone.clear()

    async def handle(self, request: Request) -> Response:
        """Serve, or be gone."""
        if request.user != CONTROLLER:
            return await self._handler(request)
        if self._gone.is_set():
            self.refused += 1
            raise errors.Unreachable("gone")
        response = await self._handler(request)
        if response.stream is None:
            return response
        return Response(response.status, response.headers, stream=self._breaking(response.stream))

    async def _breaking(self, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in cut_short(stream, self._gone.wait()):
            yield chunk
        if self._gone.is_set():
            raise errors.Unreachable("gone")


async def cut_short(stream: AsyncIterator[bytes], end: Coroutine[Any, Any, object]) -> AsyncIterator[bytes]:
    """The chunks of a stream until `end` returns."""
    over = asyncio.ensure_future(end)
    try:
        while True:
            chunk = asyncio.ensure_future(anext(stream, b""))
            try:
                await asyncio.wait((over, chunk), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not chunk.done():
                    chunk.cancel()
                    await asyncio.wait((chunk,))
            if over.done() or not (data := chunk.result()):
                return
            yield data
    finally:
        over.cancel()
        await close_stream(stream)


class Ledger:
    """Reads every write of the controllers that went through, whether its answer arrives or not.

    What must hold at each single write is checked at once: key and certificate of a target Secret belong
    together, and a key that waits for its certificate never changes.
    """

    def __init__(self, handler: Handler) -> None:
        self.writes: list[str] = []
        self.signed: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """By Certificate and revision: the certificates that were signed for it."""
        self.broken: list[str] = []
        """What must not have happened."""
        self._handler = handler
        self._waiting: dict[str, str] = {}

    async def handle(self, request: Request) -> Response:
        """Serve, and read."""
        response = await self._handler(request)
        if is_write(request) and response.status < 400:
            path = request.target.partition("?")[0]
            self.writes.append(f"{request.method} {path.partition('/namespaces/')[2]}")
            if request.method != "DELETE" and response.stream is None:
                self._read(json.loads(response.body))
        return response

    def _read(self, obj: dict[str, Any]) -> None:
        if obj["kind"] == "CertificateRequest" and obj.get("status", {}).get("certificate"):
            notes = obj["metadata"]["annotations"]
            revision = (
                notes["cert-manager.io/certificate-name"],
                notes["cert-manager.io/certificate-revision"],
            )
            self.signed[revision].add(obj["status"]["certificate"])
        elif obj["kind"] == "Secret":
            self._read_secret(obj["metadata"], obj["data"])

    def _read_secret(self, meta: dict[str, Any], data: dict[str, str]) -> None:
        if meta.get("labels", {}).get("cert-manager.io/next-private-key") == "true":
            if self._waiting.setdefault(meta["uid"], data["tls.key"]) != data["tls.key"]:
                self.broken.append(f"the key in {meta['name']} was overwritten")
            return
        key, leaf = (base64.b64decode(data[entry]) for entry in ("tls.key", "tls.crt"))
        if public_key_der(load_private_key(key)) != read_certificate(leaf).public_key_der:
            self.broken.append(f"key and certificate in {meta['name']} do not belong together")


class Webhook:
    """Changes what the controllers send of one kind before the API server stores it, as an admission webhook
    does. Secrets are those of next keys; `secrets/web` is the target."""

    def __init__(self, world: World, plural: str, change: Callable[[dict[str, Any]], object]) -> None:
        self._handler = world.recording.handler
        self._plural = plural
        self.change = change
        self.created = self.writes = 0
        world.recording.handler = self.handle

    async def handle(self, request: Request) -> Response:
        """Change the object, and serve."""
        path = request.target.partition("?")[0]
        if request.user != CONTROLLER or f"/{self._plural}" not in path or not request.body:
            return await self._handler(request)
        self.writes += request.method != "DELETE"
        is_target = path.endswith("/secrets/web")
        if is_target is (self._plural == "secrets/web") and request.method in ("POST", "PATCH"):
            self.created += request.method == "POST"
            body = json.loads(request.body)
            self.change(body)
            request = msgspec.structs.replace(request, body=json.dumps(body).encode())
        return await self._handler(request)


class LiveReads:
    """Stands before the API server and notes what the controllers read there: `paths` of single objects, and
    the queries of `lists` of Secrets."""

    def __init__(self, world: World) -> None:
        self.paths: list[str] = []
        self.lists: list[str] = []
        self._handler = world.recording.handler
        world.recording.handler = self._handle

    @property
    def secrets(self) -> Counter[str]:
        """How often each Secret was read, by its name."""
        return Counter(path.rpartition("/")[2] for path in self.paths if "/secrets/" in path)

    async def _handle(self, request: Request) -> Response:
        path, _, query = request.target.partition("?")
        if request.user == CONTROLLER and request.method == "GET" and "watch=" not in query:
            if path.count("/") > 5:
                self.paths.append(path)
            elif path.endswith("/secrets"):
                self.lists.append(query)
        return await self._handler(request)
