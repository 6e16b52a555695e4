"""`certwright status` names what keeps the server from writing, e.g. a full disk."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from certwright.cli.commands.status import store_problem
from certwright.kube.client.rest import Client
from certwright.kube.util.http_messages import Response

FULL = b"internal server error: the disk that holds store.sqlite is full\n"
FORBIDDEN = b'{"kind":"Status","reason":"Forbidden","code":403,"message":"no"}'
WITHHELD = b"[-]etcd-readiness failed: reason withheld\nreadyz check failed\n"


class Server:
    """Answers by path."""

    def __init__(self, answers: Mapping[str, tuple[int, bytes]]) -> None:
        self._answers = answers

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        status, text = self._answers[target]
        return Response(status, {}, text)

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("etcd_check", "all_", "expected"),
    [
        pytest.param((200, b"ok"), (200, b"ok"), "", id="ready"),
        pytest.param(
            (500, FULL), (500, WITHHELD), "the disk that holds store.sqlite is full", id="full disk"
        ),
        pytest.param((403, FORBIDDEN), (500, WITHHELD), "it is not ready", id="the reason is withheld"),
        pytest.param((403, FORBIDDEN), (200, b"ok"), "", id="a reader, ready"),
        pytest.param((404, b"404 page not found"), (403, FORBIDDEN), "", id="unknown"),
    ],
)
def test_why_the_server_accepts_no_writes(
    etcd_check: tuple[int, bytes], all_: tuple[int, bytes], expected: str
) -> None:
    server = Server({"/readyz/etcd-readiness": etcd_check, "/readyz": all_})
    assert asyncio.run(store_problem(Client(server, user_agent="test"))) == expected
