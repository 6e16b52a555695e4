"""Servers for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from certwright.admission.kinds import certificate_kinds
from certwright.kube.apiserver.background.expiry import DEFAULT_TTL
from certwright.kube.apiserver.base.features import FeatureGates
from certwright.kube.apiserver.http.fairness import InFlight
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.contract import Store
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util import ids
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import Identity
from certwright.resources.crds import custom_resource_definitions
from kube.apiserver.callers import ADMIN, Api, StartApi


@pytest.fixture
async def start_api() -> AsyncIterator[StartApi]:
    """Starts servers that are closed after the test."""
    started: list[Api] = []

    async def start(
        *,
        store: Store | None = None,
        bookmark_every_s: float | None = None,
        name_suffix: Callable[[], str] = ids.random_suffix,
        authenticator: Any = lambda _: None,
        user: Identity | None = ADMIN,
        anonymous: bool = False,
        gates: FeatureGates | None = None,
        root_ca: str = "",
        event_ttl: timedelta = DEFAULT_TTL,
        in_flight: InFlight | None = None,
        collects_garbage: bool = True,
    ) -> Api:
        store, clock = store or MemoryStore(), TestClock()
        server = ApiServer(
            store,
            clock,
            authenticator=authenticator,
            anonymous=anonymous,
            bookmark_every_s=bookmark_every_s,
            name_suffix=name_suffix,
            gates=gates,
            root_ca=root_ca,
            event_ttl=event_ttl,
            in_flight=in_flight,
            extensions=certificate_kinds(),
        )
        await server.start(custom_resource_definitions(), collects_garbage=collects_garbage)
        started.append(Api(server, clock, store, user))
        return started[-1]

    yield start
    for api in started:
        await api.server.close()
        await api.store.close()


@pytest.fixture
async def api(start_api: StartApi) -> Api:
    """A running server that has nothing to do: what it made at its start is there."""
    found: Api = await start_api()
    await found.settle()
    return found
