"""The walk of one certificate by ACME (docs/walk.md): its writes and requests, in the order of the page."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

from certwright.acme.protocol import messages
from certwright.kube.api import conditions
from certwright.kube.util.http_messages import Request, Response
from controllers.acme.fake_world import FakeWorld, fake_world
from support.world import CONTROLLER

PAGE = Path(__file__).parents[2] / "docs" / "walk.md"


def shown() -> list[str]:
    """The writes and requests of the page's last table."""
    table = PAGE.read_text().rpartition("| # | write or request |")[2]
    cells = re.findall(r"^\| \d+ \| (CA: )?`([^`]+)`", table, re.M)
    return [f"{ca}{what}" for ca, what in cells]


def record(fake: FakeWorld) -> list[str]:
    """The writes and requests from now on, as the page names them."""
    lines: list[str] = []
    handle, answer = fake.world.recording.handler, fake.ca.answer

    async def write(request: Request) -> Response:
        response = await handle(request)
        path = request.target.partition("?")[0].rpartition("/namespaces/default/")[2]
        ours = request.user == CONTROLLER and request.method != "GET"
        if ours and response.status < 400 and "events" not in path:
            short = re.sub(r"^(orders|challenges)/[^/]+", r"\1/…", path)
            lines.append(f"{request.method} {re.sub(r'^secrets/web-.*', 'secrets/…', short)}")
        return response

    def ask(request: messages.Request) -> messages.Response:
        lines.append(f"CA: {request.action}")
        return answer(request)

    fake.world.recording.handler = write
    setattr(fake.ca, "answer", ask)  # noqa: B010 - a method, for mypy
    return lines


async def test_the_writes_and_requests_are_those_of_the_page() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        lines = record(fake)
        await fake.issue("web", "a.example.org")
        await fake.world.advance(timedelta(seconds=10))
        assert lines == shown()
        assert conditions.is_true((await fake.certificate()).status.conditions, "Ready")
        assert not fake.shown.tokens, "the challenge response was not removed"
