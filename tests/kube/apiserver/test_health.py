"""Health checks beside a store that does not answer."""

from __future__ import annotations

import asyncio

import pytest

from certwright.kube.apiserver.paths import Health
from certwright.kube.store.contract import Key, Row
from certwright.kube.store.memory import MemoryStore


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
