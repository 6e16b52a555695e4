"""Where the signatures of requests are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from acme.protocol.clients import new_key, opened
from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.directory import Directory
from certwright.acme.protocol.exchange import Nonces, Session, post
from certwright.acme.protocol.messages import Action, Request, Response

T = TypeVar("T")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLACES = Directory("https://ca/dir", "https://ca/nonce", "https://ca/account", "https://ca/order")


@dataclass
class CountingWorkshop:
    """Does what it is given at once, and counts it."""

    jobs: int = 0

    async def run(self, work: Callable[[], T]) -> T:
        """See `Workshop`."""
        self.jobs += 1
        return work()


@dataclass
class Pleased:
    """A server that has nothing against any request."""

    asked: list[Request] = field(default_factory=list)

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        self.asked.append(request)
        return Response(200, (("replay-nonce", "next"),), b"{}", request.url, NOW)

    async def close(self) -> None:
        """See `Transport`."""


@pytest.mark.parametrize(("algorithm", "size", "jobs"), [("RSA", 2048, 1), ("ECDSA", 256, 0)])
async def test_only_signatures_that_take_long_are_made_aside(algorithm: str, size: int, jobs: int) -> None:
    workshop, server, key = CountingWorkshop(), Pleased(), new_key(algorithm, size)
    client = AcmeClient(PLACES.url, key, server, now=lambda: NOW, workshop=workshop)
    nonces = Nonces()
    nonces.keep(Response(200, (("replay-nonce", "first"),), b"", "https://ca/nonce", NOW))
    answer = await client.drive(
        post(Session(PLACES, key, "https://ca/account/1", nonces), Action.ORDER, "https://ca/o/1")
    )
    assert answer.status == 200
    assert workshop.jobs == jobs
    [request] = server.asked
    header, _, _ = opened(request.body)
    assert (request.method, header["nonce"], header["alg"]) == ("POST", "first", key.algorithm)
