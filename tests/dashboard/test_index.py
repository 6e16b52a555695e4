"""The index: rows follow the API, and are freed when nobody looks; the first page says what is still read."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from certwright.dashboard import index
from certwright.dashboard.index import Index, Row, Scope, State, row_of
from certwright.dashboard.overview import OverviewScopes, headline, summarize
from certwright.dashboard.report import make_report
from certwright.diagnosis import related
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Response
from support.visitor import grant, visitor
from support.world import ADMIN, World

ALL = OverviewScopes(*4 * [Scope(everywhere=True)])
READY = {"type": "Ready", "status": "True"}
FAILED = {"type": "Issuing", "status": "False", "message": "no", "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def test_rows_follow_the_api_and_are_freed(shop_world: World) -> None:
    admin = await visitor(shop_world)
    before = (await admin.facts())["counts"]["total"]
    await shop_world.client.delete(related.CERTIFICATES, "lost", "shop")
    await shop_world.settle()
    assert (await admin.facts())["counts"]["total"] == before - 1
    watches = shop_world.server.open_watches
    await shop_world.advance(timedelta(minutes=21))
    assert shop_world.server.open_watches <= watches - 4, "its list is kept no longer"
    assert (await admin.facts())["counts"]["total"] == before - 1


def test_a_server_has_not_loaded_the_pages_that_nobody_has_opened(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from certwright import app
from certwright.app.options import ServeOptions

async def main():
    server = await app.start_server(ServeOptions(data_dir=Path(sys.argv[1]), port=0, store="memory"))
    pages = {"certwright.dashboard.site", "certwright.dashboard.index", "jinja2", "markupsafe"}
    print(*sorted(pages & set(sys.modules)), "and no others")
    await server.close()

asyncio.run(main())
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "and no others\n", done.stderr


@pytest.mark.parametrize(
    ("status", "state", "is_valid"),
    [
        ({}, State.WAITING, False),
        ({"conditions": [READY]}, State.READY, True),
        ({"conditions": [READY, {"type": "Issuing", "status": "True"}]}, State.ISSUING, True),
        ({"conditions": [FAILED], "lastFailureTime": "2026-01-01T00:00:00Z"}, State.FAILED, False),
        ({"conditions": [READY, FAILED], "lastFailureTime": "2026-01-01T00:00:00Z"}, State.FAILED, True),
    ],
)
def test_the_state_of_a_row(status: dict[str, object], state: State, is_valid: bool) -> None:
    row = make_row(status=status)
    assert (row.state, row.is_valid) == (state, is_valid)


def make_row(name: str = "web", **fields: object) -> Row:
    spec = {"secretName": name, "dnsNames": ["a.example.com"], "issuerRef": {"name": "ca"}}
    return row_of({"metadata": {"namespace": "shop", "name": name}, "spec": spec, **fields})


async def test_what_is_still_read_is_said(shop_world: World) -> None:
    its = Index(shop_world.client, shop_world.clock)
    try:
        assert (
            headline(summarize(its, ALL, 0.0), is_reading=not its.is_synced)
            == "Reading certificates: 0 so far"
        )
        await its.wait_synced()
        assert headline(summarize(its, ALL, 0.0)).startswith("1 of 4 certificates needs you: shop/lost")
    finally:
        await its.close()


class Slow(LocalTransport):
    """An API server that takes longer for its lists than a page waits."""

    async def request(self, *arguments: Any, **others: Any) -> Response:
        """See `Transport`."""
        await asyncio.sleep(0.05)
        return await super().request(*arguments, **others)


async def test_a_report_waits_for_all_certificates(
    shop_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_PATIENCE_S", 0.001)
    client = Client(Slow(shop_world.server.handle, ADMIN), user_agent="test")
    report = await make_report(client, shop_world.clock)
    assert report.json()["counts"] == {"total": 4, "attention": 1, "issuing": 1, "notValid": 1}


@pytest.mark.parametrize("namespace", ["", "shop"])
async def test_an_issuer_that_may_not_be_read_is_not_called_missing(
    shop_world: World, namespace: str
) -> None:
    eve = await grant(shop_world, "eve", ("get list watch", "cert-manager.io", "certificates", ""))
    client = Client(LocalTransport(shop_world.server.handle, eve), user_agent="test")
    of_reader = (await make_report(client, shop_world.clock, namespace=namespace)).json()
    assert {**of_reader["counts"], "total": 0} == {"total": 0, "attention": 0, "issuing": 1, "notValid": 1}
    of_admin = (await make_report(shop_world.client, shop_world.clock)).json()
    assert [card["reason"] for card in of_admin["attention"]] == ["no issuer"]
