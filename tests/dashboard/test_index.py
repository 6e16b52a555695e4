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
from dashboard.visits import shop
from support.world import ADMIN

ALL = OverviewScopes(*4 * [Scope(everywhere=True)])
READY = {"type": "Ready", "status": "True"}
FAILED = {"type": "Issuing", "status": "False", "message": "no", "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def test_rows_follow_the_api_and_are_freed() -> None:
    async with shop() as site:
        before = (await site.status("admin"))["counts"]["total"]
        await site.world.client.delete(related.CERTIFICATES, "lost", "shop")
        await site.world.settle()
        assert (await site.status("admin"))["counts"]["total"] == before - 1
        watches = site.world.server.open_watches
        await site.world.advance(timedelta(minutes=21))
        assert site.world.server.open_watches <= watches - 4, "its list is kept no longer"
        assert (await site.status("admin"))["counts"]["total"] == before - 1


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


async def test_what_is_still_read_is_said() -> None:
    async with shop() as site:
        its = Index(site.client_of("admin"), site.world.clock)
        try:
            summary = summarize(its, ALL, 0.0)
            assert headline(summary, is_reading=not its.is_synced) == "Reading certificates: 0 so far"
            await its.wait_synced()
            summary = summarize(its, ALL, 0.0)
            assert headline(summary).startswith("1 of 4 certificates needs you: shop/lost")
        finally:
            await its.close()


class Slow(LocalTransport):
    """An API server that takes longer for its lists than a page waits."""

    async def request(self, *arguments: Any, **others: Any) -> Response:
        """See `Transport`."""
        await asyncio.sleep(0.05)
        return await super().request(*arguments, **others)


async def test_a_report_waits_for_all_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_PATIENCE_S", 0.001)
    async with shop() as site:
        client = Client(Slow(site.world.server.handle, ADMIN), user_agent="test")
        report = await make_report(client, site.world.clock)
    assert report.json()["counts"] == {"total": 4, "attention": 1, "issuing": 1, "notValid": 1}


@pytest.mark.parametrize("namespace", ["", "shop"])
async def test_an_issuer_that_may_not_be_read_is_not_called_missing(namespace: str) -> None:
    async with shop() as site:
        rules = [
            {
                "apiGroups": ["cert-manager.io"],
                "resources": ["certificates"],
                "verbs": ["get", "list", "watch"],
            }
        ]
        role = {"metadata": {"name": "look"}, "rules": rules}
        await site.post_object("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": "look"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "look"},
            "subjects": [{"kind": "ServiceAccount", "name": "eve", "namespace": "default"}],
        }
        await site.post_object(f"/apis/{group}/v1/clusterrolebindings", binding)
        of_reader = await make_report(site.client_of("eve"), site.world.clock, namespace=namespace)
        of_admin = await make_report(site.world.client, site.world.clock)
    counts = {**of_reader.json()["counts"], "total": 0}
    assert counts == {
        "total": 0,
        "attention": 0,
        "issuing": 1,
        "notValid": 1,
    }
    assert [card["reason"] for card in of_admin.json()["attention"]] == ["no issuer"]
