"""Health checks, also beside a store that does not answer."""

from __future__ import annotations

import asyncio

import pytest

from certwright.kube.apiserver.paths import Health
from certwright.kube.store.contract import Key, Row
from certwright.kube.store.contract import Unavailable as StoreUnavailable
from certwright.kube.store.memory import MemoryStore
from kube.apiserver.callers import Api


class Silent(MemoryStore):
    """A store that does not answer; `asked` counts the requests that wait."""

    asked = 0

    @property
    def trouble(self) -> str:
        """What went wrong before."""
        return "etcd at e1:2379 cannot be reached"

    async def get(self, key: Key) -> Row | None:
        """Wait until cancelled."""
        self.asked += 1
        await asyncio.Event().wait()
        return None

    async def check(self) -> None:
        """Wait until cancelled."""
        self.asked += 1
        await asyncio.Event().wait()


@pytest.mark.parametrize(("root", "checks"), [("livez", 1), ("readyz", 2)])
async def test_all_checks_answer_in_time_and_name_the_cause(root: str, checks: int) -> None:
    store = Silent()
    health = Health(store, budget_s=0.01)
    health.started = True
    answer = await health.respond(f"/{root}", "verbose")
    assert answer is not None
    assert (answer.status, store.asked) == (500, checks)
    cause = b"the store does not answer within 0.01 s (etcd at e1:2379 cannot be reached)"
    assert answer.body.count(cause) == checks
    single = await health.respond(f"/{root}/etcd", "")
    assert single is not None
    assert (single.status, cause in single.body) == (500, True)


async def test_head_and_health(api: Api) -> None:
    for path in ("/healthz", "/livez", "/livez/ping", "/readyz", "/readyz/etcd", "/readyz/shutdown"):
        response = await api.raw("HEAD", path)
        assert (response.status, response.body) == (200, b"ok")
    assert (await api.raw("GET", "/livez/nonsense")).status == 404
    await api.server.close()
    stopping = await api.raw("GET", "/readyz")
    assert (stopping.status, stopping.body.decode().splitlines()) == (
        500,
        [
            "[+]ping ok",
            "[+]log ok",
            "[+]etcd ok",
            "[+]etcd-readiness ok",
            "[+]informer-sync ok",
            "[-]shutdown failed: reason withheld",
            "readyz check failed",
        ],
    )
    assert (await api.raw("GET", "/readyz/shutdown")).status == 500
    assert (await api.raw("GET", "/readyz?exclude=shutdown")).status == 200
    assert (await api.raw("GET", "/livez")).status == 200


async def test_health_check_by_check(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    verbose = await api.raw("GET", "/livez?verbose&exclude=log&exclude=nonsense")
    assert verbose.body.decode().splitlines() == [
        "[+]ping ok",
        "[+]log excluded: ok",
        "[+]etcd ok",
        'warn: some health checks cannot be excluded: no matches for "nonsense"',
        "livez check passed",
    ]

    async def broken(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(api.store, "get", broken)
    sick = await api.raw("GET", "/livez")
    assert (sick.status, b"[-]etcd failed: reason withheld" in sick.body) == (500, True)
    response = await api.raw("GET", "/livez/etcd")
    assert (response.status, response.body) == (500, b"internal server error: the disk is full\n")
