"""Where the signatures of requests are made."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from acme.protocol.clients import NOW, PLACES, answer, new_key, opened, session
from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.exchange import post
from certwright.acme.protocol.messages import Action, Request, Response

T = TypeVar("T")


@dataclass
class CountingWorkshop:
    """Does what it is given at once, and counts it."""

    jobs: int = 0

    async def run(self, work: Callable[[], T], flow: Hashable) -> T:
        self.jobs += 1
        return work()


@dataclass
class Pleased:
    """A server that has nothing against any request."""

    asked: list[Request] = field(default_factory=list)

    async def send(self, request: Request) -> Response:
        self.asked.append(request)
        return answer(replay_nonce="next")

    async def close(self) -> None:
        """See `Transport`."""


@pytest.mark.parametrize(("algorithm", "size", "jobs"), [("RSA", 2048, 1), ("ECDSA", 256, 0)])
async def test_only_signatures_that_take_long_are_made_aside(algorithm: str, size: int, jobs: int) -> None:
    executor, server = CountingWorkshop(), Pleased()
    acme_session = session(key=new_key(algorithm, size))
    acme_session.nonces.keep(answer(replay_nonce="first"))
    client = AcmeClient(PLACES.url, acme_session.key, server, now=lambda: NOW, executor=executor)
    order = await client.drive(post(acme_session, Action.ORDER, "https://ca/o/1"))
    assert order.status == 200
    assert executor.jobs == jobs
    [request] = server.asked
    header, _, _ = opened(request.body)
    assert (request.method, header["nonce"], header["alg"]) == ("POST", "first", acme_session.key.algorithm)
